#include "weft/checkpoint/hf_names.h"

#include <tuple>

#include <gtest/gtest.h>

namespace weft {
namespace {

// Six query heads in two groups, heads of width 4.
HfNames names(const std::string& type, const std::string& block = "sequential") {
  HfModel model{type, {}};
  model.config.n_heads = 6, model.config.n_kv_heads = 2, model.config.head_dim = 4,
  model.config.block = block;
  return HfNames(model);
}

void expect_place(const HfNames& names, const std::string& param, int64_t rows, const std::string& name,
                  int64_t groups, int64_t group_rows, int64_t begin, bool transposed = false) {
  const HfPlace place = names.place(param, rows);
  EXPECT_EQ(std::tuple(place.name, place.groups, place.group_rows, place.begin, place.transposed),
            std::tuple(name, groups, group_rows, begin, transposed))
      << param;
}

TEST(HfNames, AreLlamasUnlessTheTypeSaysOtherwise) {
  for (const HfNames& plain : {names("llama"), names("gemma2")})
    for (const char* name : {"model.embed_tokens.weight", "model.layers.12.self_attn.q_proj.bias",
                             "model.layers.0.mlp.gate_proj.weight", "model.norm.weight", "lm_head.weight",
                             "model.layers.0.scale", "model.scale"})
      expect_place(plain, name, 7, name, 1, 7, 0);
}

TEST(HfNames, Phi3FusesRowsOneAfterTheOther) {
  const HfNames phi3 = names("phi3");
  const std::string layer = "model.layers.11.", qkv = layer + "self_attn.qkv_proj.weight";
  expect_place(phi3, layer + "self_attn.q_proj.weight", 24, qkv, 1, 40, 0);
  expect_place(phi3, layer + "self_attn.k_proj.weight", 8, qkv, 1, 40, 24);
  expect_place(phi3, layer + "self_attn.v_proj.weight", 8, qkv, 1, 40, 32);
  expect_place(phi3, layer + "mlp.gate_proj.weight", 9, layer + "mlp.gate_up_proj.weight", 1, 18, 0);
  expect_place(phi3, layer + "mlp.up_proj.weight", 9, layer + "mlp.gate_up_proj.weight", 1, 18, 9);
}

TEST(HfNames, Gpt2TransposesMatricesOnly) {
  const HfNames gpt2 = names("gpt2");
  expect_place(gpt2, "model.embed_positions.weight", 5, "transformer.wpe.weight", 1, 5, 0);
  expect_place(gpt2, "model.layers.3.self_attn.k_proj.weight", 8, "transformer.h.3.attn.c_attn.weight", 1, 40,
               24, true);
  expect_place(gpt2, "model.layers.3.self_attn.k_proj.bias", 8, "transformer.h.3.attn.c_attn.bias", 1, 40,
               24);
  expect_place(gpt2, "model.layers.3.mlp.down_proj.weight", 6, "transformer.h.3.mlp.c_proj.weight", 1, 6, 0,
               true);
  expect_place(gpt2, "model.norm.bias", 6, "transformer.ln_f.bias", 1, 6, 0);
}

TEST(HfNames, FalconFusesPerKeyValueHead) {
  const HfNames falcon = names("falcon", "parallel");
  const std::string qkv = "transformer.h.0.self_attention.query_key_value.weight";
  expect_place(falcon, "model.layers.0.self_attn.q_proj.weight", 24, qkv, 2, 20, 0);
  expect_place(falcon, "model.layers.0.self_attn.k_proj.weight", 8, qkv, 2, 20, 12);
  expect_place(falcon, "model.layers.0.self_attn.v_proj.weight", 8, qkv, 2, 20, 16);
  expect_place(falcon, "model.layers.0.post_attention_layernorm.bias", 9, "transformer.h.0.ln_mlp.bias", 1, 9,
               0);
  expect_place(names("falcon"), "model.layers.0.post_attention_layernorm.bias", 9,
               "transformer.h.0.post_attention_layernorm.bias", 1, 9, 0);
}

}  // namespace
}  // namespace weft
