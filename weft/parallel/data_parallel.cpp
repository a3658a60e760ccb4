#include "weft/parallel/data_parallel.h"

#include <algorithm>
#include <sstream>

#include <xxhash.h>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/trace.h"
#include "weft/comm/dropped_sum.h"

namespace weft {
namespace {

at::ScalarType dtype_of(const std::string& name) { return name == "fp64" ? at::kDouble : at::kFloat; }

std::vector<ParamUnit*> pointers(const std::vector<std::unique_ptr<ParamUnit>>& units) {
  std::vector<ParamUnit*> all;
  for (const auto& unit : units) all.push_back(unit.get());
  return all;
}

bool divides_units(const ParallelConfig& parallel, const Mesh& mesh) {
  return parallel.zero > 0 && mesh.size(Axis::dp_shard) > 1;
}

/// "NAME HASH" of the bits of each param that has elements in [begin, end) of the unit's buffer, of which
/// `part` holds these.
std::vector<std::pair<const Param*, std::string>> fingerprints(const ParamUnit& unit, const at::Tensor& part,
                                                               int64_t first, const char* what) {
  std::vector<std::pair<const Param*, std::string>> lines;
  unit.for_params_in(first, first + part.numel(), [&](const Param& param, int64_t begin, int64_t end) {
    if (begin == end) return;
    const at::Tensor bits = part.narrow(0, param.offset() + begin - first, end - begin);
    lines.emplace_back(&param, fmt::format("{} of {} {:016x}\n", what, param.name(),
                                           XXH3_64bits(bits.data_ptr(), bits.nbytes())));
  });
  return lines;
}

/// The first line in which a rank's text is not the first rank's, as an error; "" if there is none.
std::string difference(Group& group, const std::string& text) {
  const std::vector<std::string> texts = all_gather(group, text);
  for (size_t other = 1; other < texts.size(); ++other) {
    std::istringstream expected(texts[0]), found(texts[other]);
    for (std::string a, b; std::getline(expected, a) && std::getline(found, b);)
      if (a != b)
        return fmt::format(
            "rank {} and rank {} should hold the same bits and do not: {} (parallel.check_replicas)\nMemory "
            "may "
            "have failed on one of the machines: go on from the last checkpoint.",
            group.ranks()[0], group.ranks()[other], a.substr(0, a.rfind(' ')));
  }
  return {};
}

/// The slots that passes over the model need: two of the largest unit, one in use and one being gathered or
/// reduced. A tied unit stays from one of its blocks to the other, so it has a slot of its own, and there is
/// one more for the unit of the block that shares it, the smallest.
std::vector<int64_t> transient_sizes(const std::vector<ParamUnit*>& units,
                                     const std::vector<ParamUnit*>& tied, int64_t shards) {
  std::vector<int64_t> sizes, others;
  for (const ParamUnit* unit : units)
    (std::ranges::find(tied, unit) == tied.end() ? others : sizes).push_back(unit->padded_numel(shards));
  const auto [smallest, largest] = std::ranges::minmax(others);
  if (!tied.empty()) sizes.push_back(smallest);
  sizes.insert(sizes.end(), {largest, largest});
  return sizes;
}

}  // namespace

Dtypes dtypes_of(const PrecisionConfig& precision) {
  Dtypes dtypes;
  dtypes.compute = dtype_of(precision.compute);
  dtypes.params = dtype_of(precision.params);
  dtypes.gradients = dtype_of(precision.gradients);
  dtypes.reduce = dtype_of(precision.reduce);
  return dtypes;
}

DataParallel::DataParallel(const ParallelConfig& parallel, MeshGroups& groups,
                           const std::vector<std::unique_ptr<ParamUnit>>& units,
                           const std::vector<ParamUnit*>& tied)
    : units_(pointers(units)),
      groups_(groups),
      zero_(divides_units(parallel, groups.mesh()) ? parallel.zero : 0),
      shards_each_(zero_ >= 2 && parallel.gradient_sync == "each"),
      data_group_(&groups.get(kDataAxes)),
      shard_group_(&groups.get(zero_ > 0 ? Axes{Axis::dp_shard} : Axes{})),
      replica_group_(zero_ > 0 ? &groups.get({Axis::dp_replicate}) : data_group_) {
  const int64_t shards = shard_group_->size();
  for (ParamUnit* unit : units_) {
    const bool stays = zero_ < 3;
    unit->allocate(
        shard_group_->rank(), shards,
        stays ? new_whole(*unit, unit->dtypes().compute, MemoryKind::params) : at::Tensor(),
        shards_each_ ? at::Tensor() : new_whole(*unit, unit->dtypes().gradients, MemoryKind::gradients));
  }
  std::vector<int64_t> sizes = transient_sizes(units_, tied, shards);
  const Dtypes& dtypes = units_.front()->dtypes();
  if (shards_each_) gradient_slots_ = make_slots(sizes, dtypes.gradients, MemoryKind::reduced);
  if (!parallel.reshard_after_forward) {  // a place for each
    sizes.clear();
    for (const ParamUnit* unit : units_) sizes.push_back(unit->padded_numel(shards));
  }
  if (zero_ == 3) weight_slots_ = make_slots(sizes, dtypes.compute, MemoryKind::gathered);
}

at::Tensor DataParallel::new_whole(const ParamUnit& unit, at::ScalarType dtype, MemoryKind kind) {
  Group& group = zero_ > 0 ? *shard_group_ : *data_group_;
  const int64_t numel = unit.padded_numel(shard_group_->size());
  return counted_zeros(kind, numel, dtype, group.new_buffer(numel, dtype));
}

DataParallel::Slots DataParallel::make_slots(std::vector<int64_t> sizes, at::ScalarType dtype,
                                             MemoryKind kind) {
  Slots slots;
  for (const int64_t numel : sizes)
    slots.emplace_back().buffer = counted_zeros(kind, numel, dtype, shard_group_->new_buffer(numel, dtype));
  return slots;
}

DataParallel::Slot* DataParallel::slot_of(Slots& slots, const ParamUnit* unit) {
  const auto found = std::ranges::find(slots, unit, &Slot::unit);
  return found == slots.end() ? nullptr : &*found;
}

/// The smallest that is large enough; of several, the one that was used least lately. Null: all are in use.
DataParallel::Slot* DataParallel::free_slot(Slots& slots, int64_t numel) {
  Slot* best = nullptr;
  const auto rank = [](const Slot& slot) { return std::pair(slot.buffer.numel(), slot.last_use); };
  for (Slot& slot : slots)
    if (slot.users == 0 && slot.buffer.numel() >= numel && (!best || rank(slot) < rank(*best))) best = &slot;
  return best;
}

at::Tensor DataParallel::shard_of(const ParamUnit& unit, const at::Tensor& whole) const {
  return whole.narrow(0, unit.shard().begin, unit.shard().numel);
}

DataParallel::Slot* DataParallel::gather(ParamUnit& unit) {
  if (Slot* slot = slot_of(weight_slots_, &unit)) return slot;
  const int64_t numel = unit.padded_numel(shard_group_->size());
  Slot* slot = free_slot(weight_slots_, numel);
  if (!slot) return nullptr;
  slot->work.wait();  // one that was gathered in vain may still be on its way
  if (slot->unit) slot->unit->weights() = at::Tensor();
  slot->unit = &unit;
  const at::Tensor whole = slot->buffer.narrow(0, 0, numel), own = shard_of(unit, whole);
  own.copy_(unit.shard().master);
  slot->work = shard_group_->all_gather(whole, own);
  return slot;
}

void DataParallel::acquire(const std::vector<ParamUnit*>& units) {
  for (ParamUnit* unit : units) {
    if (zero_ < 3) {
      if (const auto found = publishing_.find(unit); found != publishing_.end()) {
        found->second.wait();
        publishing_.erase(found);
      }
      continue;
    }
    Slot* slot = gather(*unit);
    WEFT_ASSERT(slot, "no buffer is free for the weights of {}", unit->name());
    slot->work.wait();
    slot->work = {};
    unit->weights() = slot->buffer.narrow(0, 0, unit->padded_numel(shard_group_->size()));
    ++slot->users;
  }
}

void DataParallel::release(const std::vector<ParamUnit*>& units) {
  if (zero_ < 3) return;
  for (ParamUnit* unit : units) {
    Slot* slot = slot_of(weight_slots_, unit);
    --slot->users;
    slot->last_use = ++clock_;
  }
}

void DataParallel::prefetch(const std::vector<ParamUnit*>& units) {
  if (zero_ < 3) return;
  for (ParamUnit* unit : units) gather(*unit);
}

void DataParallel::zero_grad() {
  const Span span(SpanLevel::phase, "zero_grad", SpanKind::optimizer);
  for (ParamUnit* unit : units_) (unit->grads().defined() ? unit->grads() : unit->shard().grad).zero_();
}

void DataParallel::begin_gradients(ParamUnit& unit) {
  if (unit.grads().defined() || !unit.trainable()) return;
  const int64_t numel = unit.padded_numel(shard_group_->size());
  Slot* slot = free_slot(gradient_slots_, numel);
  for (; !slot; slot = free_slot(gradient_slots_, numel)) {
    WEFT_ASSERT(!reductions_.empty(), "no buffer is free for the gradients of {}", unit.name());
    finish_oldest_reduction();
  }
  slot->unit = &unit, slot->users = 1;
  unit.grads() = slot->buffer.narrow(0, 0, numel).zero_();
}

void DataParallel::reduce(ParamUnit& unit, bool complete, bool last) {
  if (!unit.trainable()) return;
  if (!complete) {
    if (dropped("tied embedding")) unit.grads().zero_();
    return;
  }
  if (shards_each_ || last) start_reduction(unit, slot_of(gradient_slots_, &unit));
}

void DataParallel::start_reduction(ParamUnit& unit, Slot* slot) {
  const at::Tensor whole = unit.grads().to(unit.dtypes().reduce);
  Request work;
  if (zero_ == 0) {
    if (!dropped("gradients over dp_replicate x dp_shard")) work = data_group_->all_reduce(whole);
  } else if (!dropped("gradients over dp_shard")) {
    work = shard_group_->reduce_scatter(shard_of(unit, whole), whole);
  }
  // The next micro-batch may need a buffer for the unit before this one is free.
  if (slot) unit.grads() = at::Tensor(), slot->unit = nullptr;
  reductions_.push_back({&unit, whole, slot, work});
}

void DataParallel::finish_oldest_reduction() {
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  reduction.work.wait();
  ParamUnit& unit = *reduction.unit;
  const at::Tensor sum = shard_of(unit, reduction.whole);
  if (reduction.slot) {
    unit.shard().grad.add_(sum);
    reduction.slot->users = 0;
    reduction.slot->last_use = ++clock_;
  } else if (unit.dtypes().reduce != unit.dtypes().gradients) {
    unit.shard().grad.copy_(sum);
  }
}

void DataParallel::finish_reductions() {
  while (!reductions_.empty()) finish_oldest_reduction();
  if (zero_ == 0 || replica_group_->size() == 1 || dropped(kSumOfReplicas)) return;
  std::vector<std::pair<at::Tensor, Request>> sums;
  for (ParamUnit* unit : units_) {
    if (!unit->trainable()) continue;
    const at::Tensor sum = unit->shard().grad.to(unit->dtypes().reduce);
    sums.emplace_back(sum, replica_group_->all_reduce(sum));
  }
  size_t next = 0;
  for (ParamUnit* unit : units_) {
    if (!unit->trainable()) continue;
    auto& [sum, work] = sums[next++];
    work.wait();
    if (!sum.is_same(unit->shard().grad)) unit->shard().grad.copy_(sum);
  }
}

double DataParallel::sum_over_shards(double value) {
  Axes axes;
  if (zero_ > 0 && !dropped("gradient norm over dp_shard")) axes.insert(Axis::dp_shard);
  if (groups_.mesh().size(Axis::tp) > 1 && !dropped("gradient norm over tp")) axes.insert(Axis::tp);
  return all_reduce(groups_.get(axes), {value}).front();
}

void DataParallel::publish() {
  for (Slot& slot : weight_slots_) {
    WEFT_ASSERT(slot.users == 0, "{} is in use while its weights change", slot.unit->name());
    slot.work.wait();
    slot.work = {};
    if (slot.unit) slot.unit->weights() = at::Tensor();
    slot.unit = nullptr;
  }
  if (zero_ == 3) return;
  for (ParamUnit* unit : units_) {
    if (const auto found = publishing_.find(unit); found != publishing_.end()) found->second.wait();
    const at::Tensor own = shard_of(*unit, unit->weights());
    if (own.data_ptr() != unit->shard().master.data_ptr()) own.copy_(unit->shard().master);
    if (zero_ > 0) publishing_[unit] = shard_group_->all_gather(unit->weights(), own);
  }
}

int64_t DataParallel::first_ranks(int64_t number) {
  const at::Tensor shared = at::full({1}, number, at::kLong);
  groups_.all().broadcast(shared, 0).wait();
  return shared.item<int64_t>();
}

std::pair<int64_t, int64_t> DataParallel::saved_range(const ParamUnit& unit) const {
  const Shard& shard = unit.shard();
  const int64_t writers = replica_group_->size(), index = replica_group_->rank();
  return {shard.begin + shard.numel * index / writers, shard.begin + shard.numel * (index + 1) / writers};
}

void DataParallel::check_replicas() {
  acquire(zero_ < 3 ? units_ : std::vector<ParamUnit*>{});
  std::string masters, weights;
  std::map<int64_t, std::string> copies;  // by how many tp ranks hold the same
  for (const ParamUnit* unit : units_) {
    const Shard& shard = unit->shard();
    for (const auto& [param, line] : fingerprints(*unit, shard.master, shard.begin, "the master weights")) {
      masters += line;
      if (param->copies() > 1) copies[param->copies()] += line;
    }
    if (zero_ == 3) continue;
    for (const auto& [param, line] : fingerprints(*unit, unit->weights(), 0, "the weights")) weights += line;
  }
  std::vector<std::string> found = {difference(*replica_group_, masters), difference(*data_group_, weights)};
  for (const auto& [count, lines] : copies)
    found.push_back(difference(groups_.neighbours(Axis::tp, count), lines));
  for (const std::string& text : found)
    if (!text.empty()) fail("{}", text);
}

}  // namespace weft
