// Param: what the system knows of one parameter. Its global shape, where its pieces lie on the mesh and over
// which axes its gradient is partial are declared once, by the layer that owns it; initialisation, gradient
// sums, the optimizer, checkpoints and the memory report are all derived from this description.
//
// A Param is not an autograd leaf. Ops take a Param&, read weight() when they need it (in forward and in
// backward) and add its gradient to grad() themselves; a param that is not trainable gets none.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/boxes.h"
#include "weft/comm/mesh.h"

namespace weft {

class ParamUnit;

/// How a parameter lies over the tensor-parallel ranks.
struct Placement {
  enum class Kind { Replicate, Shard } kind = Kind::Replicate;
  int64_t dim = 0;     // Shard: the split dim
  int64_t copies = 1;  // Shard: how many ranks hold each piece (KV heads when tp exceeds them)

  static Placement replicate() { return {}; }
  static Placement shard(int64_t dim, int64_t copies = 1) { return {Kind::Shard, dim, copies}; }
};

/// Where this rank stands among the tensor-parallel ones, and whether between blocks each of them has a part
/// of the tokens only.
struct TensorPlace {
  int64_t rank = 0, size = 1;
  bool sequence_parallel = false;
};

/// Initial value: normal(mean, std).
struct Init {
  double std = 0;
  double mean = 0;
};

/// What a layer declares.
struct ParamSpec {
  std::string name;            // as HuggingFace spells it
  std::vector<int64_t> shape;  // global
  Init init = {};
  Placement placement = {};
  Axes partial = {};       // axes over which its gradient is summed, besides those of the data
  bool looked_up = false;  // rows are only looked up, never multiplied
};

/// How a param is trained, as [optim] has it (set_update_rules in optim/update_rule.h).
struct UpdateRule {
  bool trainable = true;  // false: no gradient is computed, no update made, the bits stay
  bool decays = true;     // weight decay applies
  double lr_multiplier = 1;

  bool operator==(const UpdateRule&) const = default;
};

class Param {
 public:
  Param(ParamSpec spec, ParamUnit* unit, int64_t offset);

  const std::string& name() const { return spec_.name; }
  const ParamSpec& spec() const { return spec_; }
  const std::vector<int64_t>& shape() const { return spec_.shape; }  // global
  int64_t global_numel() const;

  /// This rank's piece. Where ranks do not divide dim 0, the pieces of the last ones end in rows of padding,
  /// which hold zeros and are no part of the param.
  const std::vector<int64_t>& local_shape() const { return local_shape_; }
  int64_t numel() const { return numel_; }
  const Box& piece() const { return piece_; }  // of the global tensor, without padding

  /// How many tensor-parallel ranks, neighbours, hold the same piece. Is this the first of them? So it is
  /// counted, and saved, once.
  int64_t copies() const;
  bool is_first_copy() const;

  /// Elements [begin, end) of the piece as boxes of the global tensor, padding aside, each with the element
  /// of the piece that it begins with: those of a box lie one behind the other.
  std::vector<std::pair<int64_t, Box>> boxes(int64_t begin, int64_t end) const;

  const UpdateRule& update_rule() const { return update_rule_; }
  void set_update_rule(const UpdateRule& rule) { update_rule_ = rule; }
  bool trainable() const { return update_rule_.trainable; }

  ParamUnit& unit() const { return *unit_; }
  int64_t offset() const { return offset_; }  // first element in the unit's buffers

  /// This param's elements of a flat buffer laid out like its unit's, as a view in its local shape.
  at::Tensor view_of(const at::Tensor& flat) const;
  // Only while the unit has them.
  at::Tensor weight() const;
  at::Tensor grad() const;

 private:
  ParamSpec spec_;
  UpdateRule update_rule_;
  ParamUnit* unit_;
  int64_t offset_;
  std::vector<int64_t> local_shape_;
  int64_t numel_;
  Box piece_;
};

/// `inner` of a tensor that holds `outer`, as a view.
at::Tensor narrowed(at::Tensor tensor, const Box& outer, const Box& inner);

/// Params that lie side by side in one unit as one: [sum of rows, dim] for matrices, [sum] for vectors, so
/// that q, k and v (or gate and up) take one GEMM, forward and weight gradient.
at::Tensor fused_weight(const std::vector<Param*>& params);
at::Tensor fused_grad(const std::vector<Param*>& params);

/// sum += a b, also where gradients are accumulated in another dtype than a and b have.
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

}  // namespace weft
