#include "weft/comm/together.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {

void together(Group& group, const std::function<void()>& body) {
  if (group.size() == 1) return body();
  std::string problem;
  try {
    body();
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    problem = error.what();
    if (problem.empty()) problem = "unknown error";
  }
  const std::vector<std::string> problems = all_gather(group, problem);
  const auto first = std::ranges::find_if(problems, [](const auto& text) { return !text.empty(); });
  if (first == problems.end()) return;
  const bool alike = std::ranges::count(problems, *first) == std::ptrdiff_t(problems.size());
  throw JointError(
      alike ? *first : fmt::format("rank {}: {}", group.ranks()[size_t(first - problems.begin())], *first));
}

void on_first(Group& group, const std::function<void()>& body) {
  together(group, [&] {
    if (group.rank() == 0) body();
  });
}

}  // namespace weft
