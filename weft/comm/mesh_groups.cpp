#include "weft/comm/mesh_groups.h"

namespace weft {

MeshGroups::MeshGroups(const Mesh& mesh, World& world) : mesh_(mesh), world_(&world), rank_(world.rank()) {}

MeshGroups::MeshGroups() : mesh_(ParallelConfig{}, 1), world_(nullptr), rank_(0) {}

MeshGroups& MeshGroups::alone() {
  static MeshGroups groups;
  return groups;
}

Group& MeshGroups::get(const Axes& axes) {
  std::shared_ptr<Group>& group = groups_[axes];
  if (!group) group = world_ ? world_->group(to_string(axes), mesh_.group(rank_, axes)) : Group::alone();
  return *group;
}

}  // namespace weft
