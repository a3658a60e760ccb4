#include "weft/parallel/data_parallel_cost.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "weft/parallel/data_parallel.h"

namespace weft {
namespace {

using Units = std::vector<std::unique_ptr<ParamUnit>>;

/// One dp_shard rank has nobody to share with: that is stage 0.
int64_t stage(const Config& config, const Mesh& mesh) {
  return mesh.size(Axis::dp_shard) > 1 ? config.parallel.zero : 0;
}

int64_t shards(const Config& config, const Mesh& mesh) {
  return stage(config, mesh) > 0 ? mesh.size(Axis::dp_shard) : 1;
}

bool reduces_each(const Config& config, const Mesh& mesh) {
  return stage(config, mesh) >= 2 && config.parallel.gradient_sync == "each";
}

/// How often zero 3 gathers a unit in a step. Two buffers for untied units make a pass over the model save
/// some: the head and the last layer serve forward and backward; the first layer is still there when the next
/// micro-batch begins. A tied embedding, which has a buffer of its own, stays for the whole step, and the
/// head, which then has one too, leaves the last two layers in theirs.
int64_t gathers(const Config& config, size_t unit, size_t n_units, bool tied, int64_t micro_batches) {
  if (!config.parallel.reshard_after_forward) return 1;
  const bool embedding = unit == 0, head = unit + 1 == n_units;
  const size_t n_layers = n_units - 2;
  if (tied) {
    if (embedding || head) return 1;
    const bool turns = unit + 2 > n_layers;  // the last two layers: where forward turns into backward
    const bool starts = unit <= 2;           // the first two: where backward meets the next forward
    return 2 * micro_batches - (turns ? micro_batches : 0) - (starts ? micro_batches - 1 : 0);
  }
  if (head) return micro_batches;
  // A norm of the embedding needs its weights in backward too; they are then still there for the next one.
  if (embedding) return micro_batches + (config.model.embedding_norm ? 1 : 0);
  return 2 * micro_batches - (unit == n_layers ? micro_batches : 0) - (unit == 1 ? micro_batches - 1 : 0);
}

}  // namespace

int64_t all_reduce_bytes(int64_t numel, int64_t element, int64_t index, int64_t n) {
  if (numel * element <= 16 << 10) return numel * element * (n - 1);
  const int64_t own = numel * (index + 1) / n - numel * index / n;
  return (numel - own + own * (n - 1)) * element;
}

HeldBytes held_bytes(const Config& config, const Mesh& mesh, const Units& units,
                     const std::vector<ParamUnit*>& tied) {
  const int64_t n = shards(config, mesh);
  const Dtypes dtypes = dtypes_of(config.precision);
  const auto size = [](at::ScalarType type) { return int64_t(at::elementSize(type)); };
  HeldBytes held;
  int64_t largest = 0, smallest = INT64_MAX, tied_numel = 0, all = 0;
  for (const auto& unit : units) {
    const int64_t whole = unit->padded_numel(n), shard = whole / n;
    const bool weights_stay = stage(config, mesh) < 3;
    if (weights_stay) held.params += whole * size(dtypes.compute);
    if (!weights_stay || dtypes.params != dtypes.compute) held.params += shard * size(dtypes.params);
    held.gradients += (reduces_each(config, mesh) ? shard : whole) * size(dtypes.gradients);
    held.optimizer +=
        shard * size(dtypes.params) * ((unit->trainable() ? 2 : 0) + (config.optim.ema_decay > 0 ? 1 : 0));
    all += whole;
    if (std::ranges::find(tied, unit.get()) != tied.end()) {
      tied_numel += whole;
    } else {
      largest = std::max(largest, whole), smallest = std::min(smallest, whole);
    }
  }
  const int64_t transient = 2 * largest + (tied.empty() ? 0 : tied_numel + smallest);
  if (stage(config, mesh) == 3)
    held.gathered = (config.parallel.reshard_after_forward ? transient : all) * size(dtypes.compute);
  if (reduces_each(config, mesh)) held.reduced = transient * size(dtypes.gradients);
  return held;
}

SentBytes sent_bytes(const Config& config, const Mesh& mesh, int64_t rank, const Units& units,
                     const std::vector<ParamUnit*>& tied, int64_t micro_batches) {
  const int64_t n = shards(config, mesh), zero = stage(config, mesh);
  const Dtypes dtypes = dtypes_of(config.precision);
  const auto size = [](at::ScalarType type) { return int64_t(at::elementSize(type)); };
  const Axes replicas = zero > 0 ? Axes{Axis::dp_replicate} : kDataAxes;
  const int64_t n_replicas = mesh.size(replicas);
  int64_t gathered = 0, scattered = 0, reduced = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const ParamUnit& unit = *units[i];
    const int64_t shard = unit.padded_numel(n) / n;
    if (zero > 0)
      gathered += shard * (n - 1) * size(dtypes.compute) *
                  (zero < 3 ? 1 : gathers(config, i, units.size(), !tied.empty(), micro_batches));
    if (!unit.trainable()) continue;
    if (zero > 0)
      scattered += shard * (n - 1) * size(dtypes.reduce) * (reduces_each(config, mesh) ? micro_batches : 1);
    if (n_replicas > 1)
      reduced += all_reduce_bytes(shard, size(dtypes.reduce), mesh.coordinate(rank, replicas), n_replicas);
  }
  SentBytes sent;
  if (zero > 0) {
    const std::string group = to_string(Axes{Axis::dp_shard});
    sent[{group, "all_gather"}] = gathered;
    sent[{group, "reduce_scatter"}] = scattered;
  }
  if (n_replicas > 1) sent[{to_string(replicas), "all_reduce"}] = reduced;
  return sent;
}

}  // namespace weft
