#include "weft/parallel/tensor_parallel_cost.h"

#include <ATen/ATen.h>

#include "weft/parallel/data_parallel.h"
#include "weft/parallel/partial_gradients.h"

namespace weft {

SentBytes tensor_parallel_bytes(const Config& config, const Mesh& mesh, int64_t rank,
                                const std::vector<std::unique_ptr<ParamUnit>>& units,
                                const std::vector<int64_t>& tokens) {
  const int64_t n = mesh.size(Axis::tp), index = mesh.coordinate(rank, Axis::tp);
  SentBytes sent;
  if (n == 1) return sent;
  const ModelConfig& model = config.model;
  const Dtypes dtypes = dtypes_of(config.precision);
  const auto size = [](at::ScalarType type) { return int64_t(at::elementSize(type)); };
  const int64_t element = size(dtypes.compute), layers = model.n_layers;
  const std::string tp = to_string(Axes{Axis::tp});
  const int64_t forwards = config.memory.recompute == "block" ? 2 : 1;
  int64_t reduced = 0, scattered = 0, gathered = 0, pieces = 0;
  for (const int64_t unpadded : tokens) {
    // In each layer's linears; and the embedding leaves once, and so does the head's gradient; its input
    // enters once, and the embedding's gradient.
    const int64_t sums = (2 * forwards + 2) * layers, again = 2 * layers;  // as many gathers as sums
    int64_t t = unpadded;
    if (config.parallel.sequence_parallel) {
      t = (t + n - 1) / n * n;
      const int64_t piece = t / n * model.dim * (n - 1) * element;
      (config.parallel.async_tp ? pieces : scattered) += sums * piece;
      (config.parallel.async_tp ? pieces : gathered) += sums * piece;
      scattered += 2 * piece, gathered += (again + 2) * piece;
    } else {
      reduced += (sums + 2) * all_reduce_bytes(t * model.dim, element, index, n);
    }
    gathered +=
        2 * t * (n - 1) * element;     // each token's log-sum-exp and target's logit, of the ranks' parts
    if (model.qk_norm == "all_heads")  // means of q and k: one in forward, again and one more in backward
      reduced += layers * (2 * forwards + 4) * all_reduce_bytes(t, element, index, n);
  }
  for (int64_t count = 2; count <= n; ++count) {
    int64_t partial = 0;
    for (const auto& unit : units) partial += partial_numel(*unit, count);
    const int64_t bytes = all_reduce_bytes(partial, size(dtypes.reduce), index % count, count);
    if (count == n)
      reduced += bytes;
    else if (partial > 0)
      sent[{neighbours_name(Axis::tp, count), "all_reduce"}] = bytes;
  }
  sent[{tp, "all_gather"}] = gathered;
  if (reduced > 0) sent[{tp, "all_reduce"}] = reduced;
  if (scattered > 0) sent[{tp, "reduce_scatter"}] = scattered;
  if (pieces > 0) sent[{tp, "send_recv"}] = pieces;
  return sent;
}

}  // namespace weft
