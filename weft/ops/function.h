// The one bridge between Weft's ops and libtorch's autograd. An Op is an object with a forward, a backward
// and the activations it keeps; apply() records it as one node. Parameters never pass through autograd: ops
// hold Param pointers and add weight gradients themselves.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/trace.h"
#include "weft/param/param.h"

namespace weft {

/// An activation kept for backward. All ops keep activations through this type, so that what is kept can be
/// counted and, by policy, recomputed or moved. Detached: a kept output must not own the node that keeps it.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const at::Tensor& tensor) : tensor_(tensor.detach()) {}
  const at::Tensor& get() const { return tensor_; }

 private:
  at::Tensor tensor_;
};

/// One differentiable operation, used once: apply() runs forward, backward follows at most once.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::vector<at::Tensor> forward(at::TensorList inputs) = 0;
  /// Gradients of the outputs (undefined: zero; at least one is defined) to gradients of the inputs
  /// (undefined where there is none).
  virtual std::vector<at::Tensor> backward(at::TensorList grads) = 0;

  /// How many outputs, the first ones, carry gradients; the others are plain results (a log-sum-exp, a loss
  /// to report).
  virtual size_t differentiable_outputs(size_t outputs) const { return outputs; }

  /// The field's term for it; of static storage.
  virtual const char* name() const = 0;
  /// What one pass did, called right after it with what the pass took and gave (undefined tensors count
  /// nothing). By default no FLOPs, and the bytes of both and of what is kept for backward.
  virtual Work work(Pass pass, at::TensorList taken, at::TensorList given) const;
  /// The activations that backward reads (undefined where nothing is kept): all that the op holds on to.
  virtual std::vector<at::Tensor> kept() const { return {}; }

  // Set by apply() before forward.
  bool recording = false;           // will a backward follow?
  SpanKind kind = SpanKind::other;  // whom the time of both passes counts for
};

/// Runs the op. With grad mode off nothing is kept. Inputs must be defined; outputs carry gradients even if
/// no input does, since the weights behind the op need theirs.
std::vector<at::Tensor> apply(std::shared_ptr<Op> op, at::TensorList inputs);

/// The ops recorded behind `output`, up to the leaves, in the order in which they ran.
std::vector<std::shared_ptr<const Op>> recorded_ops(const at::Tensor& output);

/// The defined tensors' sizes, summed.
double bytes_of(at::TensorList tensors);

/// Starts a backward pass at `output` with gradient `grad`; gradients arrive in the leaves' .grad() and in
/// the params.
void backward(const at::Tensor& output, const at::Tensor& grad);

/// A param, or this rank's piece of it, as an ordinary autograd tensor, for layers written from ATen ops: its
/// gradient lands where the others' do. Where weights come and go (zero 3) its block is recomputed.
at::Tensor as_tensor(Param& param);

}  // namespace weft
