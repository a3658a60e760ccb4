#include "weft/nn/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>

#include "weft/base/philox.h"

namespace weft {

int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, int64_t position) {
  const at::Tensor wide = logits.to(at::kDouble).contiguous();
  const double* logit = wide.const_data_ptr<double>();
  const auto vocab = size_t(wide.numel());
  std::vector<int64_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logit[a] > logit[b]; });
  if (options.temperature == 0) return order[0];

  size_t kept = options.top_k > 0 ? std::min(vocab, size_t(options.top_k)) : vocab;
  std::vector<double> weight(kept);
  for (size_t i = 0; i < kept; ++i)
    weight[i] = std::exp((logit[order[i]] - logit[order[0]]) / options.temperature);
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  if (options.top_p < 1) {
    double sum = 0;
    size_t i = 0;
    while (i < kept && sum < options.top_p * total) sum += weight[i++];
    kept = std::max<size_t>(1, i), total = std::max(sum, weight[0]);
  }
  const auto bits = philox(options.seed, uint64_t(position));
  double left = uniform_from_bits(bits[0], bits[1]) * total;
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weight[i]) < 0) return order[i];
  return order[kept - 1];
}

}  // namespace weft
