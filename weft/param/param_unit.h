// ParamUnit: the params of one block (embedding, decoder layer, head) in one flat padded buffer; params(), in
// order and with their offsets, are its segment table. It is what data parallelism gathers and reduces, what
// the optimizer steps and what a checkpoint writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/param/param.h"

namespace weft {

class ParamUnit {
 public:
  ParamUnit(std::string name, at::ScalarType dtype) : name_(std::move(name)), dtype_(dtype) {}
  ParamUnit(const ParamUnit&) = delete;

  /// Declares a param; it lies right behind the one declared before. The reference stays valid.
  Param& add(ParamSpec spec);

  /// Makes the buffers, zeroed. No param can be added afterwards.
  void allocate();

  /// Fills the weights: element i of a param is f(seed, its name, i), drawn in fp64 and rounded, whatever the
  /// layout.
  void initialise(uint64_t seed);

  const std::string& name() const { return name_; }
  at::ScalarType dtype() const { return dtype_; }
  const std::vector<std::unique_ptr<Param>>& params() const { return params_; }  // in buffer order
  int64_t numel() const { return numel_; }                                       // without padding

  at::Tensor& weights() { return weights_; }  // [padded numel]
  at::Tensor& grads() { return grads_; }      // [padded numel]; the padding stays zero

 private:
  // The tail is padded so that a unit's buffer divides among ranks and vector lanes.
  static constexpr int64_t kAlign = 64;

  std::string name_;
  at::ScalarType dtype_;
  std::vector<std::unique_ptr<Param>> params_;
  int64_t numel_ = 0;
  at::Tensor weights_, grads_;
};

}  // namespace weft
