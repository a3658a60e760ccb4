#include "weft/param/param_unit.h"

#include <algorithm>

#include <xxhash.h>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"

namespace weft {
namespace {

/// out[i - begin] = mean + std * normal(key, i) for i in [begin, end). One counter makes two normals:
/// elements 2c and 2c + 1.
template <class T>
void draw_normals(T* out, uint64_t key, const Init& init, int64_t begin, int64_t end) {
  at::parallel_for(begin / 2, (end + 1) / 2, 4096, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const auto [a, b] = philox_normals(key, uint64_t(c));
      if (2 * c >= begin) out[2 * c - begin] = T(init.mean + init.std * a);
      if (2 * c + 1 < end) out[2 * c + 1 - begin] = T(init.mean + init.std * b);
    }
  });
}

}  // namespace

at::Tensor Shard::part_of(const at::Tensor& flat, const Param& param, int64_t first, int64_t last) const {
  return flat.narrow(0, first < last ? param.offset() + first - begin : 0, last - first);
}

at::Tensor counted_zeros(MemoryKind kind, int64_t numel, at::ScalarType dtype, at::Tensor buffer) {
  if (!buffer.defined()) buffer = at::zeros({numel}, dtype);
  const auto counted = std::make_shared<CountedBytes>(kind, int64_t(buffer.nbytes()));
  return at::from_blob(
      buffer.data_ptr(), {numel}, [buffer, counted](void*) {}, buffer.options());
}

Param& ParamUnit::add(ParamSpec spec) {
  WEFT_ASSERT(!shard_.master.defined(), "{} is declared after unit {} was allocated", spec.name, name_);
  params_.push_back(std::make_unique<Param>(std::move(spec), this, numel_));
  numel_ += params_.back()->numel();
  return *params_.back();
}

int64_t ParamUnit::padded_numel(int64_t shards) const {
  const int64_t multiple = kAlign * shards;
  return (numel_ + multiple - 1) / multiple * multiple;
}

void ParamUnit::allocate() {
  allocate(0, 1, counted_zeros(MemoryKind::params, padded_numel(1), dtypes_.compute),
           counted_zeros(MemoryKind::gradients, padded_numel(1), dtypes_.gradients));
}

void ParamUnit::allocate(int64_t index, int64_t shards, at::Tensor weights, at::Tensor grads) {
  weights_ = std::move(weights), grads_ = std::move(grads);
  weights_stay_ = weights_.defined();
  shard_.numel = padded_numel(shards) / shards;
  shard_.begin = index * shard_.numel;
  const auto part_of = [&](const at::Tensor& whole, at::ScalarType dtype, MemoryKind kind) {
    return whole.defined() && whole.scalar_type() == dtype ? whole.narrow(0, shard_.begin, shard_.numel)
                                                           : counted_zeros(kind, shard_.numel, dtype);
  };
  shard_.master = part_of(weights_, dtypes_.params, MemoryKind::params);
  shard_.grad = part_of(grads_, dtypes_.gradients, MemoryKind::gradients);
}

bool ParamUnit::trainable() const {
  return std::ranges::any_of(params_, [](const auto& param) { return param->trainable(); });
}

void ParamUnit::set_master(const Param& param, const at::Tensor& values) {
  for_params_in(shard_.begin, shard_.end(), [&](const Param& other, int64_t begin, int64_t end) {
    if (&other != &param) return;
    const Box whole = whole_box(param.shape());
    for (const auto& [first, box] : param.boxes(begin, end))
      shard_.part_of(shard_.master, param, first, first + box.numel())
          .copy_(narrowed(values.reshape(param.shape()), whole, box).reshape({-1}));
  });
}

void ParamUnit::initialise(uint64_t seed) {
  for_params_in(shard_.begin, shard_.end(), [&](const Param& param, int64_t begin, int64_t end) {
    if (begin == end) return;
    const Init init = param.spec().init;
    const uint64_t key = XXH64(param.name().data(), param.name().size(), seed);
    for (const auto& [first, box] : param.boxes(begin, end)) {
      at::Tensor part = shard_.part_of(shard_.master, param, first, first + box.numel());
      if (init.std == 0) {
        part.fill_(init.mean);
        continue;
      }
      AT_DISPATCH_FLOATING_TYPES(dtypes_.params, "initialise", [&] {
        scalar_t* out = part.data_ptr<scalar_t>();
        for (const auto& [run_begin, run_end] : runs_of_box(param.shape(), box)) {
          draw_normals(out, key, init, run_begin, run_end);
          out += run_end - run_begin;
        }
      });
    }
  });
}

}  // namespace weft
