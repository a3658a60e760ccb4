// ParamUnit: a rank's pieces of the params of one block (embedding, decoder layer, head) in one flat padded
// buffer; params(), in order and with their offsets, are its segment table. It is what data parallelism
// gathers and reduces, what the optimizer steps and what a checkpoint writes.
//
// A rank owns one contiguous shard of the unit, all of it unless ZeRO divides it: the optimizer updates the
// shard's master weights from its gradients. The model computes with weights() and adds to grads(), whole
// buffers that may come and go; where they stay and have the same dtype, the shard is a view of them.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/memory.h"
#include "weft/param/param.h"

namespace weft {

/// Number formats of a unit's buffers.
struct Dtypes {
  at::ScalarType compute = at::kFloat;    // of weights()
  at::ScalarType params = at::kFloat;     // of the shard's master weights and the optimizer's state
  at::ScalarType gradients = at::kFloat;  // of grads()
  at::ScalarType reduce = at::kFloat;     // in which gradients are summed over ranks

  Dtypes() = default;
  Dtypes(at::ScalarType all)  // one for everything
      : compute(all), params(all), gradients(all), reduce(all) {}
};

/// A rank's part of a unit: elements [begin, begin + numel) of its flat buffers.
struct Shard {
  int64_t begin = 0, numel = 0;
  at::Tensor master;  // [numel] weights, as the optimizer keeps them
  at::Tensor grad;    // [numel] their gradients, summed over ranks once a step's reductions are done

  int64_t end() const { return begin + numel; }

  /// Elements [first, last) of a param, perhaps none, in a buffer [numel] laid out as the shard.
  at::Tensor part_of(const at::Tensor& flat, const Param& param, int64_t first, int64_t last) const;
};

/// A zeroed flat buffer that is entered as `kind` until it is freed. `buffer`: memory to use, if it must be
/// of some special kind.
at::Tensor counted_zeros(MemoryKind kind, int64_t numel, at::ScalarType dtype, at::Tensor buffer = {});

class ParamUnit {
 public:
  ParamUnit(std::string name, const Dtypes& dtypes, const TensorPlace& place = {})
      : name_(std::move(name)), dtypes_(dtypes), tensor_place_(place) {}
  ParamUnit(const ParamUnit&) = delete;

  /// Declares a param; it lies right behind the one declared before. The reference stays valid.
  Param& add(ParamSpec spec);

  /// Length of the flat buffers when the unit is divided among `shards` ranks: shards are of equal length,
  /// and begin on the bounds of vector registers.
  int64_t padded_numel(int64_t shards) const;

  /// Makes the buffers of a rank that owns all of the unit, zeroed.
  void allocate();

  /// The same, of one that owns shard `index` of `shards`. `weights` and `grads`: the whole buffers, zeroed,
  /// that stay; undefined where they come and go.
  void allocate(int64_t index, int64_t shards, at::Tensor weights, at::Tensor grads);

  /// Fills the shard's master weights: element i of a global param is f(seed, its name, i), drawn in fp64 and
  /// rounded, whatever the layout. weights() are not touched unless the master is a view of them.
  void initialise(uint64_t seed);

  /// Fills what the shard has of one param from the values of the global tensor, in its order of elements.
  /// Shape and dtype may be others.
  void set_master(const Param& param, const at::Tensor& values);

  const std::string& name() const { return name_; }
  const Dtypes& dtypes() const { return dtypes_; }
  const TensorPlace& tensor_place() const { return tensor_place_; }
  const std::vector<std::unique_ptr<Param>>& params() const { return params_; }  // in buffer order
  int64_t numel() const { return numel_; }                                       // without padding
  bool trainable() const;                                                        // any of it?

  Shard& shard() { return shard_; }
  const Shard& shard() const { return shard_; }

  // [padded numel]; undefined while not gathered, or while there is no gradient buffer. The padding holds
  // zeros.
  at::Tensor& weights() { return weights_; }
  at::Tensor& grads() { return grads_; }
  const at::Tensor& weights() const { return weights_; }

  /// Do weights() stay between passes, or come and go?
  bool weights_stay() const { return weights_stay_; }

  /// An ordinary autograd tensor of one of its params is in some graph: it reads weights() in backward.
  void note_as_tensor() { used_as_tensor_ = true; }
  bool used_as_tensor() const { return used_as_tensor_; }

  /// Calls visit(param, begin, end) for each param: its elements [begin, end), perhaps none, lie in elements
  /// [first, last) of the buffers.
  template <class Visit>
  void for_params_in(int64_t first, int64_t last, const Visit& visit) const {
    for (const auto& param : params_) {
      const auto place = [&](int64_t element) {
        return std::clamp(element - param->offset(), int64_t{0}, param->numel());
      };
      visit(*param, place(first), place(last));
    }
  }

 private:
  static constexpr int64_t kAlign = 64;

  std::string name_;
  Dtypes dtypes_;
  TensorPlace tensor_place_;
  std::vector<std::unique_ptr<Param>> params_;
  int64_t numel_ = 0;
  bool weights_stay_ = false, used_as_tensor_ = false;
  at::Tensor weights_, grads_;
  Shard shard_;
};

}  // namespace weft
