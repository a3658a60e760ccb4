#include "weft/ops/dropout.h"

#include <xxhash.h>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "weft/base/philox.h"
#include "weft/ops/function.h"

namespace weft {
namespace {

class DropoutOp : public Op {
 public:
  DropoutOp(const Dropout& dropout, const at::Tensor& index) : dropout_(dropout), index_(index) {}

  std::vector<at::Tensor> forward(at::TensorList inputs) override { return {masked(inputs[0])}; }
  std::vector<at::Tensor> backward(at::TensorList grads) override { return {masked(grads[0])}; }
  const char* name() const override { return "dropout"; }

 private:
  at::Tensor masked(const at::Tensor& x) const {
    at::Tensor out = x.clone(at::MemoryFormat::Contiguous);
    const int64_t dim = x.size(1);
    const int64_t* index = index_.const_data_ptr<int64_t>();
    const uint64_t threshold = dropout_.threshold();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropout", [&] {
      const scalar_t scale = scalar_t(1 / (1 - dropout_.p));
      scalar_t* data = out.data_ptr<scalar_t>();
      at::parallel_for(0, x.size(0), 16, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t)
          for (int64_t j = 0; j < dim; j += 4) {
            const auto bits = philox(dropout_.key, uint64_t(index[t]), uint64_t(j / 4));
            for (int64_t k = 0; k < std::min<int64_t>(4, dim - j); ++k) {
              scalar_t& element = data[t * dim + j + k];
              element = bits[size_t(k)] < threshold ? scalar_t(0) : element * scale;
            }
          }
      });
    });
    return out;
  }

  Dropout dropout_;
  at::Tensor index_;
};

}  // namespace

uint64_t random_key(uint64_t seed, int64_t step, std::string_view site) {
  const auto mixed = philox(seed, uint64_t(step));
  return XXH64(site.data(), site.size(), uint64_t(mixed[0]) << 32 | mixed[1]);
}

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout, const at::Tensor& index) {
  if (dropout.p == 0) return x;
  return apply(std::make_shared<DropoutOp>(dropout, index.contiguous()), {x})[0];
}

}  // namespace weft
