#include "weft/comm/alike.h"

#include <cstring>

#include <ATen/ATen.h>

namespace weft {

Told exchange(Operation* operation, const void* own, size_t bytes, int tag) {
  const Channel& channel = operation->channel();
  const auto told = std::make_shared<std::vector<at::Tensor>>();
  for (size_t peer = 0; peer < channel.ranks.size(); ++peer)
    told->push_back(at::empty({int64_t(bytes)}, at::kByte));
  const at::Tensor here = (*told)[size_t(channel.rank)];
  std::memcpy(here.data_ptr(), own, bytes);
  for (int peer = 0; peer < int(told->size()); ++peer) {
    if (peer == channel.rank) continue;
    operation->receive((*told)[size_t(peer)], peer, tag);
    operation->send_aside(here, peer, tag);
  }
  return told;
}

namespace {

void check_operations(const Channel& channel, const std::vector<at::Tensor>& told) {
  std::vector<std::pair<int64_t, OpRecord>> by_rank;
  for (size_t peer = 0; peer < told.size(); ++peer) {
    by_rank.emplace_back(channel.ranks[peer], OpRecord{});
    std::memcpy(&by_rank.back().second, told[peer].data_ptr(), sizeof(OpRecord));
  }
  if (const std::string text = disagreement(by_rank, channel.ranks); !text.empty())
    throw CommError(fmt::format("{} (comm.check)", text));
}

void check_counts(const Channel& channel, const std::vector<at::Tensor>& told) {
  const size_t ranks = told.size();
  for (size_t from = 0; from < ranks; ++from)
    for (size_t to = 0; to < ranks; ++to) {
      const int64_t sent = static_cast<const int64_t*>(told[from].const_data_ptr())[to];
      const int64_t expected = static_cast<const int64_t*>(told[to].const_data_ptr())[ranks + from];
      if (sent != expected)
        throw CommError(fmt::format("rank {} sends {} elements to rank {}, which expects {} (comm.check)",
                                    channel.ranks[from], sent, channel.ranks[to], expected));
    }
}

}  // namespace

void check_alike(Operation* operation, const OpRecord& what, const std::vector<int64_t>& counts, int tag) {
  const Told operations = exchange(operation, &what, sizeof what, tag);
  operation->then([=] { check_operations(operation->channel(), *operations); });
  if (counts.empty()) return;
  // Only then: what is told has another size than for other operations.
  const auto told = std::make_shared<Told>();
  operation->then([=] { *told = exchange(operation, counts.data(), counts.size() * sizeof(int64_t), tag); });
  operation->then([=] { check_counts(operation->channel(), **told); });
}

}  // namespace weft
