#include "weft/param/param_unit.h"

#include <xxhash.h>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"

namespace weft {

Param& ParamUnit::add(ParamSpec spec) {
  WEFT_ASSERT(!weights_.defined(), "{} is declared after unit {} was allocated", spec.name, name_);
  params_.push_back(std::make_unique<Param>(std::move(spec), this, numel_));
  numel_ += params_.back()->numel();
  return *params_.back();
}

void ParamUnit::allocate() {
  const int64_t padded = (numel_ + kAlign - 1) / kAlign * kAlign;
  weights_ = at::zeros({padded}, dtype_);
  grads_ = at::zeros({padded}, dtype_);
}

void ParamUnit::initialise(uint64_t seed) {
  for (const auto& param : params_) {
    at::Tensor weight = param->weight();
    const Init init = param->spec().init;
    if (init.std == 0) {
      weight.fill_(init.constant);
      continue;
    }
    const uint64_t key = XXH64(param->name().data(), param->name().size(), seed);
    AT_DISPATCH_FLOATING_TYPES(dtype_, "initialise", [&] {
      scalar_t* out = weight.data_ptr<scalar_t>();
      const int64_t n = param->numel();
      // One counter makes two normals: elements 2c and 2c + 1.
      at::parallel_for(0, (n + 1) / 2, 4096, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          const auto [a, b] = philox_normals(key, uint64_t(c));
          out[2 * c] = scalar_t(init.std * a);
          if (2 * c + 1 < n) out[2 * c + 1] = scalar_t(init.std * b);
        }
      });
    });
  }
}

}  // namespace weft
