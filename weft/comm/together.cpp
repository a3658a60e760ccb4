#include "weft/comm/together.h"

#include "weft/base/error.h"

namespace weft {

void together(Group& group, const std::function<void()>& body) {
  if (group.size() == 1) return body();
  std::string problem;
  try {
    body();
  } catch (const Error& error) {
    problem = error.what();
    if (problem.empty()) problem = "unknown error";
  }
  const std::vector<std::string> problems = all_gather(group, problem);
  for (size_t rank = 0; rank < problems.size(); ++rank)
    if (!problems[rank].empty()) fail("rank {}: {}", group.ranks()[rank], problems[rank]);
}

}  // namespace weft
