#include "weft/comm/op_record.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace weft {

std::string describe(const OpRecord& record, const std::vector<int64_t>& ranks) {
  const std::string kind = field_text(record.kind);
  std::string text = kind;
  if (kind == "all_reduce" || kind == "reduce_scatter")
    text += fmt::format("({})", field_text(record.reduction));
  text += fmt::format(" of {} {}", record.numel, field_text(record.dtype));
  if (record.buffer >= 0) text += fmt::format(" in shared buffer {}", record.buffer);
  if (record.peer < 0) return text;
  const bool known = size_t(record.peer) < ranks.size();
  text +=
      fmt::format(" {} {}", kind == "send" ? "to" : "from", known ? ranks[size_t(record.peer)] : record.peer);
  if (record.tag >= 0) text += fmt::format(" (tag {})", record.tag);
  return text;
}

bool same_operation(const OpRecord& a, const OpRecord& b) {
  const bool same_size = a.numel == b.numel || field_text(a.kind) == "all_to_all";
  return same_size && a.peer == b.peer && a.buffer == b.buffer &&
         std::memcmp(a.kind, b.kind, sizeof a.kind) == 0 &&
         std::memcmp(a.dtype, b.dtype, sizeof a.dtype) == 0 &&
         std::memcmp(a.reduction, b.reduction, sizeof a.reduction) == 0;
}

std::string disagreement(const std::vector<std::pair<int64_t, OpRecord>>& by_rank,
                         const std::vector<int64_t>& ranks) {
  std::vector<std::pair<OpRecord, std::vector<int64_t>>> versions;
  for (const auto& [rank, record] : by_rank) {
    const auto found = std::ranges::find_if(
        versions, [&](const auto& version) { return same_operation(version.first, record); });
    found == versions.end() ? versions.push_back({record, {rank}}) : found->second.push_back(rank);
  }
  if (versions.size() < 2) return "";
  std::ranges::stable_sort(versions, std::greater(),
                           [](const auto& version) { return version.second.size(); });
  std::string text;
  for (const auto& [record, those] : versions)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", but ", ranks_text(those),
                        !text.empty()       ? ""
                        : those.size() == 1 ? "issues "
                                            : "issue ",
                        describe(record, ranks));
  return text;
}

std::string ranks_text(std::vector<int64_t> ranks) {
  std::ranges::sort(ranks);
  std::vector<std::string> parts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    parts.push_back(end - i == 1 ? fmt::format("{}", ranks[i])
                                 : fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

}  // namespace weft
