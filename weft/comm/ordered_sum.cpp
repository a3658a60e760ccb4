#include "weft/comm/ordered_sum.h"

#include <ATen/ATen.h>

namespace weft {
namespace {

// Elements that are summed at once: few enough that partial sums stay in the cache.
constexpr int64_t kBlock = 1 << 15;

void combine(at::Tensor out, const at::Tensor& a, const at::Tensor& b, ReduceOp op) {
  op == ReduceOp::sum ? at::add_out(out, a, b) : at::maximum_out(out, a, b);
}

}  // namespace

void ordered_sum(const at::Tensor& output, const std::vector<at::Tensor>& pieces, ReduceOp op) {
  const bool half = output.scalar_type() == at::kHalf || output.scalar_type() == at::kBFloat16;
  if (pieces.size() == 2 && !half) return combine(output, pieces[0], pieces[1], op);
  const at::ScalarType dtype = half ? at::kFloat : output.scalar_type();
  const at::Tensor buffer = at::empty({std::min(kBlock, output.numel())}, dtype);
  for (int64_t begin = 0; begin < output.numel(); begin += kBlock) {
    const int64_t count = std::min(kBlock, output.numel() - begin);
    const auto block = [&](size_t piece) { return pieces[piece].narrow(0, begin, count); };
    const at::Tensor sum = buffer.narrow(0, 0, count);
    sum.copy_(block(0));
    for (size_t piece = 1; piece < pieces.size(); ++piece) combine(sum, sum, block(piece).to(dtype), op);
    output.narrow(0, begin, count).copy_(sum);
  }
}

}  // namespace weft
