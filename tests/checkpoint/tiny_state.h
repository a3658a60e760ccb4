// A small training state for tests: awkward shapes, one unit of weights and two tensors of an optimizer per
// param.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "weft/checkpoint/checkpoint.h"
#include "weft/param/param_unit.h"

namespace weft {

class TinyState {
 public:
  explicit TinyState(at::ScalarType dtype = at::kFloat,
                     const std::vector<std::vector<int64_t>>& shapes = {{7, 13}, {11}, {1}, {3, 2, 5}})
      : unit_("tiny", Dtypes(dtype)) {
    for (size_t i = 0; i < shapes.size(); ++i)
      unit_.add({"layer." + std::to_string(i) + ".weight", shapes[i], {}, {}});
    unit_.allocate();
    for (const auto& param : unit_.params())
      for (const char* kind : {kWeight, "exp_avg", "exp_avg_sq"})
        tensors_.push_back(
            {kind, param.get(), 0,
             kind == kWeight ? param->weight().view({-1}) : at::zeros({param->numel()}, dtype)});
  }

  /// Values that depend on `seed`, with all their bits in use.
  TinyState& fill(uint64_t seed) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (const StateTensor& tensor : tensors_) at::Tensor(tensor.data).normal_(0, 1, generator);
    return *this;
  }

  const std::vector<StateTensor>& tensors() const { return tensors_; }

  /// What rank `rank` of `ranks` holds if all elements, in the order of the tensors, are cut into even runs.
  std::vector<StateTensor> tensors_of(int64_t rank, int64_t ranks) const {
    int64_t total = 0, before = 0;
    for (const StateTensor& tensor : tensors_) total += tensor.data.numel();
    const int64_t first = total * rank / ranks, last = total * (rank + 1) / ranks;
    std::vector<StateTensor> parts;
    for (const StateTensor& tensor : tensors_) {
      const auto place = [&](int64_t element) {
        return std::clamp(element - before, int64_t{0}, tensor.data.numel());
      };
      const int64_t begin = place(first), numel = place(last) - begin;
      parts.push_back({tensor.kind, tensor.param, begin, tensor.data.narrow(0, begin, numel)});
      before += tensor.data.numel();
    }
    return parts;
  }

  std::vector<Param*> params() const {
    std::vector<Param*> params;
    for (const auto& param : unit_.params()) params.push_back(param.get());
    return params;
  }

  bool same_bits(const TinyState& other) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const at::Tensor &a = tensors_[i].data, &b = other.tensors_[i].data;
      if (a.scalar_type() != b.scalar_type() || a.nbytes() != b.nbytes() ||
          std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) != 0)
        return false;
    }
    return true;
  }

 private:
  ParamUnit unit_;
  std::vector<StateTensor> tensors_;
};

}  // namespace weft
