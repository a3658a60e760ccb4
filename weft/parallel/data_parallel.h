// DataParallel: data parallelism and ZeRO (Rajbhandari et al. 2020), one engine for all stages. It owns the
// buffers of the model's units and every exchange of weights and gradients among data-parallel ranks.
//
//   zero  each dp_shard rank keeps                communication of a step (P parameters, n ranks)
//   0     all of it                               all-reduce of gradients: 2 P (n-1)/n
//   1     1/n of optimizer state, masters         reduce-scatter of gradients, all-gather of weights
//   2     1/n of gradients too                    the same, gradients after each micro-batch
//   3     1/n of weights too                      all-gather in forward and in backward, reduce-scatter
//
// With dp_replicate > 1 (HSDP) shards of gradients are then summed over the replicas. One dp_shard rank is
// zero 0; with zero 0 dp_replicate and dp_shard are one group.
//
// All ranks call the same functions in the same order.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "weft/base/config.h"
#include "weft/comm/mesh_groups.h"
#include "weft/param/param_unit.h"

namespace weft {

Dtypes dtypes_of(const PrecisionConfig& precision);

class DataParallel {
 public:
  /// Allocates the buffers of `units`, whose params are declared; units and groups must outlive it.
  /// `parallel` is resolved. `tied`: those of which two blocks use the weights.
  DataParallel(const ParallelConfig& parallel, MeshGroups& groups,
               const std::vector<std::unique_ptr<ParamUnit>>& units, const std::vector<ParamUnit*>& tied);

  /// The units' weights are there until release(). Counted: a unit may be acquired several times.
  void acquire(const std::vector<ParamUnit*>& units);
  void release(const std::vector<ParamUnit*>& units);
  /// Starts to gather what will be acquired next, as far as there is room.
  void prefetch(const std::vector<ParamUnit*>& units);

  void zero_grad();
  /// The unit has a gradient buffer from now until the reduce() that completes it.
  void begin_gradients(ParamUnit& unit);
  /// A block has added its gradients to the unit's buffer. `complete`: those of all blocks that use the unit
  /// are in; `last`: this is the last micro-batch of the step. Starts to reduce them as soon as they are due.
  void reduce(ParamUnit& unit, bool complete, bool last);
  /// Waits until every shard's gradients are summed over all ranks.
  void finish_reductions();

  /// The sum of a number that each rank has for its shards of its pieces, as if each element of the model
  /// were counted once.
  double sum_over_shards(double value);

  /// The masters have changed: the weights that the model computes with follow.
  void publish();

  /// The first rank's number: what is decided from logits must be the same on all, whatever their machines
  /// make of the last bit.
  int64_t first_ranks(int64_t number);

  /// The part of a unit's flat buffer that this rank writes into a checkpoint: the ranks' parts tile it.
  std::pair<int64_t, int64_t> saved_range(const ParamUnit& unit) const;

  /// Throws Error naming rank and param unless every copy of the masters and of the weights, on all ranks
  /// that hold one, has the same bits. Other ranks than those that differ may not notice.
  void check_replicas();

 private:
  /// A buffer that units take in turn while their weights, or gradients, are whole.
  struct Slot {
    at::Tensor buffer;
    ParamUnit* unit = nullptr;  // whose contents it holds
    int64_t users = 0;          // while there are any, it stays
    int64_t last_use = 0;
    Request work;  // fills it
  };
  using Slots = std::vector<Slot>;

  /// Gradients on their way to the shards.
  struct Reduction {
    ParamUnit* unit;
    at::Tensor whole;  // in the reduce dtype
    Slot* slot;        // free afterwards; null: the gradients stay whole
    Request work;
  };

  at::Tensor new_whole(const ParamUnit& unit, at::ScalarType dtype, MemoryKind kind);
  Slots make_slots(std::vector<int64_t> sizes, at::ScalarType dtype, MemoryKind kind);
  static Slot* slot_of(Slots& slots, const ParamUnit* unit);
  Slot* free_slot(Slots& slots, int64_t numel);
  Slot* gather(ParamUnit& unit);
  void start_reduction(ParamUnit& unit, Slot* slot);
  void finish_oldest_reduction();
  at::Tensor shard_of(const ParamUnit& unit, const at::Tensor& whole) const;

  std::vector<ParamUnit*> units_;
  MeshGroups& groups_;
  int64_t zero_;          // as it takes effect
  bool shards_each_;      // gradients become shards after each micro-batch
  Group* data_group_;     // all that see different data
  Group* shard_group_;    // that divide a unit among them; zero 0: of one rank
  Group* replica_group_;  // that hold the same shard
  Slots weight_slots_, gradient_slots_;
  std::map<ParamUnit*, Request> publishing_;  // all-gathers of new weights
  std::deque<Reduction> reductions_;          // oldest first
  int64_t clock_ = 0;                         // of the slots' uses
};

/// The weights of a block's units, as long as it lives; meanwhile those of the block that comes next are
/// gathered.
class Gathered {
 public:
  Gathered(DataParallel& engine, std::vector<ParamUnit*> units, const std::vector<ParamUnit*>& next = {})
      : engine_(engine), units_(std::move(units)) {
    engine_.acquire(units_);
    engine_.prefetch(next);
  }
  ~Gathered() { engine_.release(units_); }
  Gathered(const Gathered&) = delete;

 private:
  DataParallel& engine_;
  std::vector<ParamUnit*> units_;
};

}  // namespace weft
