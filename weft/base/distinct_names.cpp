#include "weft/base/distinct_names.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace weft {
namespace {

/// The last `parts` parts of a path: all of it if there are no more.
std::string tail(const std::filesystem::path& path, int64_t parts) {
  const int64_t extra = std::max<int64_t>(0, std::distance(path.begin(), path.end()) - parts);
  std::filesystem::path rest;
  for (auto part = std::next(path.begin(), extra); part != path.end(); ++part) rest /= *part;
  return rest.string();
}

}  // namespace

std::vector<std::string> distinct_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const auto& path : paths) {
    int64_t parts = 1;
    const auto is_shared = [&] {
      return std::ranges::any_of(
          paths, [&](const auto& other) { return other != path && tail(other, parts) == tail(path, parts); });
    };
    while (is_shared() && tail(path, parts) != tail(path, parts + 1)) ++parts;
    names.push_back(tail(path, parts));
  }
  return names;
}

}  // namespace weft
