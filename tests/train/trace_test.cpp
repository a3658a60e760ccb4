// What the spans of a model's passes say: kinds, nesting, sums, FLOPs.
#include "weft/base/trace.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/nn/decoder.h"
#include "weft/optim/update_rule.h"
#include "weft/train/flops.h"

#include "tests/base/fake_clock.h"

namespace weft {
namespace {

ModelConfig small_model() {
  ModelConfig model;
  model.n_layers = 3, model.dim = 12, model.n_heads = 3, model.n_kv_heads = 1, model.head_dim = 4;
  model.ffn_dim = 7, model.vocab_size = 13, model.qk_norm = "head", model.init_std = 0.3;
  resolve(&model);
  return model;
}

// `documents` sequences of `length` tokens.
MicroBatch batch_of(int64_t documents, int64_t length, int64_t vocab) {
  MicroBatch batch;
  batch.index = at::arange(documents * length, at::kLong);
  batch.positions = batch.index % length;
  batch.tokens = batch.index * 7 % vocab;
  batch.labels = (batch.index + 1) * 5 % vocab;
  for (int64_t d = 0; d <= documents; ++d) batch.cu_seqlens.push_back(d * length);
  return batch;
}

class ModelTrace : public testing::Test {
 protected:
  ModelTrace() { FakeClock::install_ticking(); }
  ~ModelTrace() override { Trace::global().restart(); }

  static void step(Decoder& decoder, const MicroBatch& batch) {
    const Span span(SpanLevel::phase, "step", {.index = 1});
    decoder.data_parallel().zero_grad();
    decoder.forward_backward(batch, 1.0, {}, 5, 1);
  }
};

TEST_F(ModelTrace, OpsCountForTheLayerThatCalledThemInBothPasses) {
  Decoder decoder(small_model(), at::kDouble);
  step(decoder, batch_of(2, 5, 13));
  const OpTotals totals = Trace::global().totals();
  const auto expect_calls = [&](const char* op, SpanKind kind, int64_t calls) {
    for (const Pass pass : {Pass::forward, Pass::backward})
      EXPECT_EQ(totals.at({op, kind, pass}).calls, calls) << op << " " << to_string(kind);
  };
  expect_calls("embedding", SpanKind::embedding, 1);
  expect_calls("linear", SpanKind::attention, 2 * 3);
  expect_calls("qk_norm", SpanKind::attention, 3);
  expect_calls("rope", SpanKind::attention, 3);
  expect_calls("attention", SpanKind::attention, 3);
  expect_calls("linear", SpanKind::mlp, 2 * 3);
  expect_calls("swiglu", SpanKind::mlp, 3);
  expect_calls("rms_norm", SpanKind::norm, 2 * 3 + 1);
  expect_calls("cross_entropy", SpanKind::head, 1);
  expect_calls("other", SpanKind::other, 3 + 2);  // blocks
  EXPECT_EQ(totals.size(), 2u * 10 + 2) << "and zero_grad and the step";
}

TEST_F(ModelTrace, SpansNestAndTheirOwnTimesSumToTheStep) {
  Decoder decoder(small_model(), at::kDouble);
  Trace::global().keep_events();
  step(decoder, batch_of(2, 5, 13));
  const OpTotals totals = Trace::global().totals();
  const auto spans = Trace::global().take_events();

  OpTotals of_events;
  int64_t sum = 0;
  for (const SpanEvent& span : spans) add(&of_events, span), sum += span.own;
  const SpanEvent& whole = spans.back();
  EXPECT_EQ(whole.title(), "step 1");
  EXPECT_EQ(sum, whole.end - whole.begin);
  ASSERT_EQ(of_events.size(), totals.size());
  for (const auto& [key, total] : totals) {
    EXPECT_EQ(of_events.at(key).nanoseconds, total.nanoseconds);
    EXPECT_EQ(of_events.at(key).calls, total.calls);
    EXPECT_EQ(of_events.at(key).work.bytes, total.work.bytes);
  }

  const auto contains = [](const SpanEvent& a, const SpanEvent& b) {
    return a.begin < b.begin && b.end < a.end;
  };
  size_t ops = 0;
  for (const SpanEvent& a : spans) {
    EXPECT_EQ(a.thread, whole.thread);
    size_t blocks = 0;
    for (const SpanEvent& b : spans) {
      if (&a == &b) continue;
      EXPECT_TRUE(a.end < b.begin || b.end < a.begin || contains(a, b) || contains(b, a));
      if (b.level == SpanLevel::block && contains(b, a)) {
        EXPECT_EQ(b.pass, a.pass);
        ++blocks;
      }
    }
    EXPECT_EQ(blocks, a.level == SpanLevel::op ? 1u : 0u) << a.title();
    ops += a.level == SpanLevel::op;
  }
  EXPECT_EQ(ops, 2u * (1 + 3 * 10 + 2));
  for (const char* name : {"embedding forward", "layer 2 forward", "head backward", "layer 0 backward"})
    EXPECT_EQ(
        std::ranges::count_if(
            spans, [&](const SpanEvent& s) { return s.level == SpanLevel::block && s.title() == name; }),
        1)
        << name;
}

TEST_F(ModelTrace, AnEvaluationCountsAsOne) {
  Decoder decoder(small_model(), at::kDouble);
  {
    const Span span(SpanLevel::phase, "evaluation", SpanKind::evaluation);
    decoder.loss(batch_of(2, 5, 13), 1.0, 0);
  }
  for (const auto& [key, total] : Trace::global().totals()) {
    EXPECT_EQ(key.kind, SpanKind::evaluation) << key.op;
    EXPECT_NE(key.pass, Pass::backward) << key.op;
  }
  EXPECT_EQ((Trace::global().totals().at({"linear", SpanKind::evaluation, Pass::forward}).calls), 4 * 3);
}

TEST_F(ModelTrace, KeepingEventsChangesNoBit) {
  Decoder decoder(small_model(), at::kFloat);
  decoder.initialise(1);
  const auto gradients = [&] {
    step(decoder, batch_of(2, 5, 13));
    std::vector<at::Tensor> grads;
    for (const auto& unit : decoder.units()) grads.push_back(unit->grads().clone());
    return at::cat(grads);
  };
  const at::Tensor plain = gradients();
  Trace::global().keep_events();
  EXPECT_TRUE(at::equal(gradients(), plain));
}

// Blocks of 256 queries with all keys that any of them sees: what attention computes, masked or not.
double attention_scores(int64_t length, int64_t window) {
  double scores = 0;
  for (int64_t begin = 0; begin < length; begin += 256) {
    const int64_t end = std::min(begin + 256, length);
    const int64_t first = window > 0 ? std::max<int64_t>(0, begin - window + 1) : 0;
    scores += double(end - begin) * double(end - first);
  }
  return scores;
}

// The FLOPs of a step's ops are those of the analytic formula, but for three things: the formula counts
// vectors (gains, biases) as multiplied matrices; it leaves out the scores above the diagonal, of which
// attention computes some; and it counts four products of backward, where attention takes five (it computes
// the scores again). `frozen` must name all of the lowest units, or only matrices.
void expect_analytic_flops(const ModelConfig& model, int64_t documents, int64_t length,
                           const std::vector<std::string>& frozen = {}) {
  Trace::global().restart();
  Decoder decoder(model, at::kFloat);
  OptimConfig optim;
  optim.freeze = frozen;
  set_update_rules(optim, decoder.params());
  const size_t first = decoder.first_trainable_unit();
  decoder.forward_backward(batch_of(documents, length, model.vocab_size), 1.0, {}, 5, 1);
  double executed = 0, vectors = 0;
  for (const auto& [key, total] : Trace::global().totals()) executed += total.work.flops;
  for (size_t unit = 0; unit < decoder.units().size(); ++unit)
    for (const auto& param : decoder.units()[unit]->params())
      if (param->shape().size() == 1) vectors += (unit >= first ? 6 : 2) * double(param->numel());

  const double tokens = double(documents * length), width = double(model.n_heads * model.head_dim);
  double attention = 0, formula = 0;
  for (int64_t layer = 0; layer < model.n_layers; ++layer) {
    const bool sliding = model.layer_types[size_t(layer) % model.layer_types.size()] == "sliding";
    const bool backward = size_t(layer) + 1 >= first;
    const double n = double(length), window = sliding ? double(std::min(model.sliding_window, length)) : n;
    attention += 2 * (backward ? 2 + 5 : 2) * double(documents) * width *
                 attention_scores(length, sliding ? model.sliding_window : 0);
    formula += 2 * (backward ? 2 + 4 : 2) * double(documents) * width * (n * window - window * window / 2);
  }
  const double analytic = tokens * (model_flops_per_token(decoder, length) - vectors);
  EXPECT_DOUBLE_EQ(executed, analytic - formula + attention);
}

TEST_F(ModelTrace, FlopsAreThoseOfTheFormula) {
  ModelConfig model = small_model();
  expect_analytic_flops(model, 3, 20);
  model.tie_embeddings = false, model.mlp = "plain", model.norm = "layernorm", model.qkv_bias = true;
  model.mlp_bias = true, model.position = "learned", model.max_positions = 30;
  expect_analytic_flops(model, 2, 30);
  model.position = "rope", model.layer_types = {"sliding", "full"}, model.sliding_window = 70;
  expect_analytic_flops(model, 2, 600);
  expect_analytic_flops(model, 1, 50);
  expect_analytic_flops(model, 2, 20, {"lm_head", "layers\\.1\\.mlp\\.(up|down)_proj.weight"});
  expect_analytic_flops(model, 2, 20, {"embed_tokens", "layers\\.[01]\\."});
}

TEST_F(ModelTrace, BytesAreThoseOfTheTensors) {
  ModelConfig model = small_model();
  Decoder decoder(model, at::kFloat);
  step(decoder, batch_of(2, 5, 13));
  const OpTotals totals = Trace::global().totals();
  const double x = 10 * 12, up = 10 * 14, gated = 10 * 7, up_weight = 14 * 12, down_weight = 12 * 7;
  EXPECT_EQ((totals.at({"linear", SpanKind::mlp, Pass::forward}).work.bytes),
            4 * 3 * (x + up_weight + up + gated + down_weight + x));
  // Backward takes dy and the input, gives dx, reads the weight, reads and writes its gradient.
  EXPECT_EQ((totals.at({"linear", SpanKind::mlp, Pass::backward}).work.bytes),
            4 * 3 * (up + 2 * x + 3 * up_weight + x + 2 * gated + 3 * down_weight));
  EXPECT_EQ((totals.at({"swiglu", SpanKind::mlp, Pass::backward}).work.bytes), 4 * 3 * (gated + 2 * up));
}

}  // namespace
}  // namespace weft
