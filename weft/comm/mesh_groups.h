// MeshGroups: the groups that a rank communicates in, by axes of the mesh.
#pragma once

#include <map>
#include <memory>

#include "weft/comm/group.h"
#include "weft/comm/mesh.h"

namespace weft {

/// "2 of tp".
std::string neighbours_name(Axis axis, int64_t count);

class MeshGroups {
 public:
  /// The mesh lies over the first mesh.ranks() ranks of the world; this process is one of them.
  MeshGroups(const Mesh& mesh, World& world);

  /// Of a process that shares nothing with others.
  static MeshGroups& alone();

  const Mesh& mesh() const { return mesh_; }
  int64_t rank() const { return rank_; }

  /// The ranks that differ from this one on `axes` only. Made when first asked for, by all of them, then
  /// kept.
  Group& get(const Axes& axes);

  /// Of the ranks along an axis, the `count` neighbours among which this one is: `count` divides the axis.
  Group& neighbours(Axis axis, int64_t count);

  /// Every rank of the mesh.
  Group& all() { return get({kAxes.begin(), kAxes.end()}); }

 private:
  MeshGroups();

  Mesh mesh_;
  World* world_;
  int64_t rank_;
  std::map<Axes, std::shared_ptr<Group>> groups_;
  std::map<std::pair<Axis, int64_t>, std::shared_ptr<Group>> neighbours_;
};

}  // namespace weft
