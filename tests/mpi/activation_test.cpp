// What a layer keeps for backward: what its ops hold on to, what the formula says, and what the allocator has
// given out are the same bytes.
#include <map>
#include <memory>
#include <set>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "weft/nn/activation_cost.h"
#include "weft/nn/decoder.h"
#include "weft/ops/function.h"

#include "tests/mpi/world.h"

namespace weft {
namespace {

/// Bytes that this thread has taken from the allocator and not given back, since it was made.
class LiveBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override { live += size; }
  bool memoryProfilingEnabled() const override { return true; }

  int64_t live = 0;
};

class ActivationBytes : public testing::Test {
 protected:
  ActivationBytes() {
    model_.n_layers = 1, model_.dim = 24, model_.n_heads = 12;
    model_.n_kv_heads = world().size() % 3 == 0 ? 3 : 2;
    model_.head_dim = 6, model_.ffn_dim = 36, model_.vocab_size = 31, model_.dropout = 0.1,
    model_.attention_dropout = 0.1;
    model_.qk_norm = "head", model_.qkv_bias = true;
  }

  void check(const std::string& what, bool sequence_parallel) {
    SCOPED_TRACE(what);
    ModelConfig model = model_;
    resolve(&model);
    const int64_t ranks = world().size();
    ParallelConfig parallel;
    parallel.tp = ranks, parallel.dp_shard = 1, parallel.sequence_parallel = sequence_parallel;
    MeshGroups groups(Mesh(parallel, ranks), world());
    Decoder decoder(model, at::kDouble, parallel, groups);
    decoder.initialise(1);

    const int64_t tokens = 7 * ranks;  // two documents, of odd lengths
    const MicroBatch batch{.tokens = at::arange(tokens) % model.vocab_size,
                           .labels = {},
                           .positions = at::cat({at::arange(3), at::arange(tokens - 3)}),
                           .index = at::arange(tokens),
                           .cu_seqlens = {0, 3, tokens}};
    const TensorParallel tp{&groups.get({Axis::tp}), sequence_parallel && ranks > 1};
    PassContext pass{
        .batch = batch, .tp = tp, .index = tp.outside(batch.index), .rope_full = {}, .rope_sliding = {}};
    pass.rope_full = pass.rope_sliding =
        rope_table(model, "full", batch.positions, batch.cu_seqlens, at::kDouble);
    pass.training = true;

    const int64_t outside = tp.sequence ? tokens / ranks : tokens;
    const auto forward = [&] {
      const at::Tensor x = at::ones({outside, model.dim}, at::kDouble).requires_grad_();
      return decoder.blocks()[1]->forward(x, pass);
    };
    forward();  // what is made once is there now
    const auto counted = std::make_shared<LiveBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counted);
    at::Tensor y = forward();
    std::map<std::string, double> kept;
    std::set<const void*> seen;
    double all = 0;
    for (const auto& op : recorded_ops(y)) {
      for (const at::Tensor& tensor : op->kept()) {
        if (!tensor.defined() || !seen.insert(tensor.storage().data()).second) continue;
        kept[op->name()] += double(tensor.nbytes());
        all += double(tensor.nbytes());
      }
    }
    EXPECT_EQ(double(counted->live), all + double(y.nbytes())) << "something is kept beside what ops declare";
    std::map<std::string, double> expected;
    for (const auto& [op, elements] : kept_per_token(model, {tp.rank(), ranks, tp.sequence}))
      expected[op] = elements * double(tokens) * sizeof(double);
    EXPECT_EQ(kept, expected);
    y = at::Tensor();
    EXPECT_EQ(counted->live, 0);
  }

  ModelConfig model_;
};

TEST_F(ActivationBytes, EqualTheFormulaAndTheAllocatorsCount) {
  const ModelConfig llama = model_;
  for (const bool sequence_parallel : {true, false}) {
    SCOPED_TRACE(sequence_parallel ? "sequence parallel" : "tokens whole");
    model_ = llama;
    check("Llama", sequence_parallel);
    model_.n_kv_heads = 12, model_.qk_norm = "all_heads", model_.norm_placement = "post";
    check("OLMo-2", sequence_parallel);
    model_ = llama, model_.norm_placement = "sandwich", model_.activation = "gelu_tanh";
    check("Gemma", sequence_parallel);
    model_ = llama, model_.qk_norm = "none", model_.norm = "layernorm", model_.mlp = "plain";
    model_.position = "alibi";
    check("BLOOM", sequence_parallel);
    model_.block = "parallel", model_.activation = "gelu";
    check("Falcon, two norms", sequence_parallel);
    model_.block = "parallel_shared_norm", model_.n_kv_heads = 1;
    check("Falcon", sequence_parallel);
  }
}

}  // namespace
}  // namespace weft
