#include "weft/comm/mesh_groups.h"

#include <fmt/format.h>

namespace weft {

MeshGroups::MeshGroups(const Mesh& mesh, World& world) : mesh_(mesh), world_(&world), rank_(world.rank()) {}

MeshGroups::MeshGroups() : mesh_(ParallelConfig{}, 1), world_(nullptr), rank_(0) {}

MeshGroups& MeshGroups::alone() {
  static MeshGroups groups;
  return groups;
}

std::string neighbours_name(Axis axis, int64_t count) {
  return fmt::format("{} of {}", count, to_string(axis));
}

Group& MeshGroups::neighbours(Axis axis, int64_t count) {
  if (count == mesh_.size(axis)) return get({axis});
  std::shared_ptr<Group>& group = neighbours_[{axis, count}];
  if (!group) {
    const std::vector<int64_t> all = mesh_.group(rank_, {axis});
    const auto first = all.begin() + mesh_.coordinate(rank_, axis) / count * count;
    group = world_->group(neighbours_name(axis, count), {first, first + count});
  }
  return *group;
}

Group& MeshGroups::get(const Axes& axes) {
  std::shared_ptr<Group>& group = groups_[axes];
  if (!group) group = world_ ? world_->group(to_string(axes), mesh_.group(rank_, axes)) : Group::alone();
  return *group;
}

}  // namespace weft
