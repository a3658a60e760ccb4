#include "weft/checkpoint/hf_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

ModelConfig fixture(const std::string& name) {
  return read_hf_model(Env::system(), fmt::format("{}/{}", WEFT_FIXTURES, name)).config;
}

class HfConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / fmt::format("weft-hf-{}", getpid());
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  ModelConfig read(const std::string& text) {
    std::ofstream(dir_ / "config.json", std::ios::binary) << text;
    return read_hf_model(Env::system(), dir_.string()).config;
  }

  /// A small model of one type, with `changes` merged over it (null there stays null).
  static Json small(const std::string& model_type, const Json& changes = Json::object()) {
    Json json = {{"model_type", model_type}, {"hidden_size", 64},       {"num_hidden_layers", 6},
                 {"num_attention_heads", 4}, {"intermediate_size", 96}, {"vocab_size", 100},
                 {"num_key_value_heads", 2}};
    for (const auto& [key, value] : changes.items()) json[key] = value;
    return json;
  }
  ModelConfig read(const std::string& model_type, const Json& changes) {
    return read(small(model_type, changes).dump());
  }

  /// The error, without the directory's name.
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      const std::string what = error.what(), prefix = dir_.string() + "/";
      return what.starts_with(prefix) ? what.substr(prefix.size()) : what;
    }
    return "accepted";
  }
  std::string refusal(const std::string& model_type, const Json& changes) {
    return refusal(small(model_type, changes).dump());
  }

  std::filesystem::path dir_;
};

/// What is equal in all of the fixtures, then the rest as TOML without those lines.
void expect_fixture(const std::string& name, const std::string& changes) {
  Config expected;
  ModelConfig& model = expected.model;
  model.n_layers = 3;
  model.dim = 32;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.head_dim = 8;
  model.ffn_dim = 48;
  model.vocab_size = 96;
  model.tie_embeddings = false;
  model.norm_eps = 1e-6;
  model.attn_scale = 1 / std::sqrt(8.0);
  model.init_std = 0.12;
  std::vector<std::string> warnings;
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("weft-hf-expected-{}.toml", getpid());
  std::ofstream(path) << to_toml(expected);
  std::vector<std::string> overrides;
  for (size_t at = 0; at < changes.size();) {
    const size_t end = changes.find('\n', at);
    overrides.push_back("model." + changes.substr(at, end - at));
    at = end + 1;
  }
  Config wanted = load_config(path.string(), overrides, &warnings);
  resolve(&wanted.model);
  std::filesystem::remove(path);
  Config got;
  got.model = fixture("hf/" + name);
  EXPECT_EQ(to_toml(got), to_toml(wanted)) << name;
}

TEST(HfFixtures, MapToTheirModels) {
  const std::string root32 = fmt::format("embedding_multiplier={}\n", std::sqrt(32.0));
  expect_fixture("llama-gqa", "");
  expect_fixture("llama-mha-tied", "n_kv_heads=4\ntie_embeddings=true\n");
  expect_fixture("llama-bias-headdim",
                 fmt::format("head_dim=12\nattn_scale={}\nqkv_bias=true\no_bias=true\nmlp_bias=true\n",
                             1 / std::sqrt(12.0)));
  expect_fixture(
      "llama3-rope",
      "norm_eps=1e-5\nrope_theta=500000\nrope_scaling=llama3\nrope_factor=8\nrope_original_seq_len=32\n");
  expect_fixture("mistral-window", "layer_types=sliding\nsliding_window=16\n");
  expect_fixture("qwen2", "qkv_bias=true\n");
  expect_fixture("qwen3", "qk_norm=\"head\"\n");
  expect_fixture("smollm3-nope", "n_layers=4\nrope_theta=2e6\nrope_layers=[true, true, true, false]\n");
  const std::string gemma = root32 +
                            "norm_unit_offset=true\nnorm_placement=sandwich\nactivation=gelu_tanh\n"
                            "sliding_window=16\ntie_embeddings=true\n";
  expect_fixture("gemma2", gemma +
                               "n_layers=4\nattn_softcap=50\nfinal_softcap=30\n"
                               "layer_types=[sliding, full, sliding, full]\n");
  expect_fixture("gemma3", gemma +
                               "n_layers=6\nqk_norm=\"head\"\nrope_theta=1e6\nrope_theta_sliding=1e4\n"
                               "layer_types=[sliding, sliding, sliding, sliding, sliding, full]\n");
  EXPECT_EQ(fixture("llama-tiny").head_dim, 16);
  EXPECT_EQ(fixture("llama-tiny").norm_eps, 1e-5);
}

TEST_F(HfConfigTest, AbsentKeysTakeTheDefaultsOfTheModelType) {
  struct Row {
    const char* model_type;
    bool tied;
    int64_t n_kv_heads, head_dim;
    double rope_theta;
  };
  for (const auto& row :
       {Row{"llama", false, 32, 2, 1e4}, Row{"mistral", false, 8, 2, 1e4}, Row{"qwen2", false, 32, 2, 1e4},
        Row{"qwen3", false, 32, 128, 1e4}, Row{"smollm3", true, 4, 2, 2e6}, Row{"gemma2", true, 4, 256, 1e4},
        Row{"gemma3_text", true, 4, 256, 1e6}}) {
    Json json = small(row.model_type, {{"num_attention_heads", 32}});
    json.erase("num_key_value_heads");
    const ModelConfig model = read(json.dump());
    EXPECT_EQ(model.tie_embeddings, row.tied) << row.model_type;
    EXPECT_EQ(model.n_kv_heads, row.n_kv_heads) << row.model_type;
    EXPECT_EQ(model.head_dim, row.head_dim) << row.model_type;
    EXPECT_EQ(model.rope_theta, row.rope_theta) << row.model_type;
    EXPECT_EQ(model.norm_eps, 1e-6) << row.model_type;
    json["num_key_value_heads"] = nullptr;
    json["head_dim"] = nullptr;
    EXPECT_EQ(read(json.dump()).n_kv_heads, 32) << row.model_type;
    EXPECT_EQ(read(json.dump()).head_dim, 2) << row.model_type;
  }
}

TEST_F(HfConfigTest, OldAndNewSpellingsOfRopeAgree) {
  const Json llama3 = {{"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 8192}};
  Json v4 = llama3, v5 = llama3;
  v4["rope_type"] = "llama3";
  v5["rope_type"] = "llama3";
  v5["rope_theta"] = 5e5;
  const ModelConfig old_one =
      read("llama", {{"rope_theta", 5e5}, {"rope_scaling", v4}, {"torch_dtype", "bfloat16"}});
  const ModelConfig new_one = read("llama", {{"rope_parameters", v5}, {"dtype", "bfloat16"}});
  EXPECT_EQ(old_one.rope_theta, 5e5);
  EXPECT_EQ(old_one.rope_scaling, "llama3");
  EXPECT_EQ(old_one.rope_factor, 8);
  EXPECT_EQ(old_one.rope_original_seq_len, 8192);
  Config a, b;
  a.model = old_one;
  b.model = new_one;
  EXPECT_EQ(to_toml(a), to_toml(b));

  const ModelConfig linear = read("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}});
  EXPECT_EQ(linear.rope_scaling, "linear");
  EXPECT_EQ(linear.rope_factor, 2.5);
  EXPECT_EQ(read("llama", {{"rope_scaling", nullptr}, {"rope_theta", 7}}).rope_theta, 7);
  EXPECT_EQ(read("llama", {{"rope_scaling", {{"rope_type", "default"}}}}).rope_scaling, "none");
}

TEST_F(HfConfigTest, YarnFactors) {
  Json yarn = {{"rope_type", "yarn"}, {"factor", 4}};
  ModelConfig model = read("qwen3", {{"rope_scaling", yarn}, {"max_position_embeddings", 4096}});
  EXPECT_EQ(model.rope_scaling, "yarn");
  EXPECT_EQ(model.rope_original_seq_len, 4096);
  EXPECT_EQ(model.rope_beta_fast, 32);
  EXPECT_EQ(model.rope_beta_slow, 1);
  EXPECT_TRUE(model.rope_truncate);
  EXPECT_DOUBLE_EQ(model.rope_attention_factor, 0.1 * std::log(4) + 1);

  yarn["mscale"] = 0.7;
  yarn["mscale_all_dim"] = 1.2;
  yarn["beta_fast"] = 30;
  yarn["truncate"] = false;
  model = read("llama", {{"rope_scaling", yarn}, {"max_position_embeddings", 4096}});
  EXPECT_DOUBLE_EQ(model.rope_attention_factor, (0.07 * std::log(4) + 1) / (0.12 * std::log(4) + 1));
  EXPECT_EQ(model.rope_beta_fast, 30);
  EXPECT_FALSE(model.rope_truncate);

  yarn["attention_factor"] = 1.5;
  yarn.erase("factor");
  yarn["original_max_position_embeddings"] = 512;
  model = read("llama", {{"rope_scaling", yarn}, {"max_position_embeddings", 4096}});
  EXPECT_EQ(model.rope_attention_factor, 1.5);
  EXPECT_EQ(model.rope_factor, 8);  // 4096 / 512
}

TEST_F(HfConfigTest, SlidingLayers) {
  EXPECT_EQ(read("mistral", Json::object()).sliding_window, 4096);
  EXPECT_THAT(read("mistral", Json::object()).layer_types, ElementsAre("sliding"));
  EXPECT_THAT(read("mistral", {{"sliding_window", nullptr}}).layer_types, ElementsAre("full"));

  const Json qwen = {{"use_sliding_window", true}, {"sliding_window", 32}, {"max_window_layers", 4}};
  EXPECT_THAT(read("qwen2", qwen).layer_types,
              ElementsAre("full", "full", "full", "full", "sliding", "sliding"));
  EXPECT_EQ(read("qwen2", qwen).sliding_window, 32);
  EXPECT_THAT(read("qwen2", {{"sliding_window", 32}, {"max_window_layers", 4}}).layer_types,
              ElementsAre("full"));

  const Json smol = {{"use_sliding_window", true}, {"sliding_window", 32}, {"no_rope_layer_interval", 3}};
  EXPECT_THAT(read("smollm3", smol).rope_layers, ElementsAre(true, true, false, true, true, false));
  EXPECT_THAT(read("smollm3", smol).layer_types,
              ElementsAre("full", "full", "sliding", "full", "full", "sliding"));

  EXPECT_THAT(read("gemma2", Json::object()).layer_types,
              ElementsAre("sliding", "full", "sliding", "full", "sliding", "full"));
  EXPECT_THAT(read("gemma3_text", {{"sliding_window_pattern", 3}}).layer_types,
              ElementsAre("sliding", "sliding", "full", "sliding", "sliding", "full"));
}

TEST_F(HfConfigTest, GemmaThreeInTheOldSpelling) {
  const ModelConfig model = read("gemma3_text", {{"rope_theta", 1e6},
                                                 {"rope_local_base_freq", 2e4},
                                                 {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}},
                                                 {"query_pre_attn_scalar", 168}});
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.rope_theta_sliding, 2e4);
  EXPECT_EQ(model.rope_scaling, "linear");
  EXPECT_DOUBLE_EQ(model.attn_scale, std::pow(168.0, -0.5));
  EXPECT_EQ(model.embedding_multiplier, 8);
  EXPECT_EQ(model.attn_softcap, 0);
  EXPECT_EQ(read("gemma2", {{"attn_logit_softcapping", nullptr}}).attn_softcap, 0);
  EXPECT_EQ(read("gemma2", Json::object()).final_softcap, 30);
}

// What transformers 5.24 fills in where config.json says nothing.
TEST_F(HfConfigTest, AbsentKeysTakeTheFamilysDefaults) {
  const auto bare = [&](const char* type) {
    return read(fmt::format(R"({{"model_type": "{}", "n_layer": 2, "n_embd": 16, "n_embed": 16, "n_head": 2,)"
                            R"("num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2,)"
                            R"("intermediate_size": 24, "vocab_size": 10}})",
                            type));
  };
  const ModelConfig gpt2 = bare("gpt2"), bloom = bare("bloom"), falcon = bare("falcon"),
                    olmo2 = bare("olmo2"), phi3 = bare("phi3"), granite = bare("granite"),
                    starcoder2 = bare("starcoder2");
  for (const ModelConfig* model : {&gpt2, &bloom, &falcon}) {
    EXPECT_EQ(model->ffn_dim, 64);
    EXPECT_TRUE(model->tie_embeddings);
    EXPECT_EQ(model->norm_eps, 1e-5);
    EXPECT_EQ(model->mlp + model->norm, "plainlayernorm");
  }
  EXPECT_EQ(gpt2.position, "learned");
  EXPECT_EQ(gpt2.max_positions, 1024);
  EXPECT_EQ(gpt2.activation, "gelu_tanh");
  EXPECT_TRUE(gpt2.qkv_bias && gpt2.o_bias && gpt2.mlp_bias);
  EXPECT_EQ(bloom.position, "alibi");
  EXPECT_TRUE(bloom.embedding_norm && bloom.qkv_bias);
  EXPECT_EQ(falcon.n_kv_heads, 1);
  EXPECT_EQ(falcon.block, "parallel_shared_norm");
  EXPECT_EQ(falcon.activation, "gelu");
  EXPECT_FALSE(falcon.qkv_bias);
  EXPECT_EQ(olmo2.norm_eps, 1e-5);
  EXPECT_EQ(olmo2.norm_placement + olmo2.qk_norm, "postall_heads");
  EXPECT_FALSE(olmo2.tie_embeddings);
  EXPECT_EQ(phi3.layer_types, std::vector<std::string>{"full"});
  EXPECT_EQ(phi3.norm_eps, 1e-5);
  EXPECT_EQ(granite.attn_scale, 1);
  EXPECT_EQ(granite.norm_eps, 1e-6);
  EXPECT_EQ(starcoder2.n_kv_heads, 2);
  EXPECT_TRUE(starcoder2.tie_embeddings && starcoder2.mlp_bias);
  EXPECT_EQ(starcoder2.activation, "gelu_tanh");
}

// Phi-3's own key for the original length wins, "su" and "yarn" mean longrope, the factor is the ratio of
// lengths.
TEST_F(HfConfigTest, Phi3ScalesAsItsReleasesSay) {
  for (const char* type : {"su", "yarn", "longrope"}) {
    const std::vector<double> factors(4, 1.5);
    const ModelConfig model = read(
        "phi3", {{"max_position_embeddings", 64},
                 {"original_max_position_embeddings", 16},
                 {"partial_rotary_factor", 0.5},
                 {"sliding_window", 5},
                 {"rope_scaling", {{"type", type}, {"short_factor", factors}, {"long_factor", factors}}}});
    EXPECT_EQ(model.rope_scaling, "longrope");
    EXPECT_EQ(model.rope_original_seq_len, 16);
    EXPECT_EQ(model.rope_factor, 4);
    EXPECT_EQ(model.rope_dim, 8);
    EXPECT_DOUBLE_EQ(model.rope_attention_factor, std::sqrt(1.5));  // 1 + ln 4 / ln 16
    EXPECT_EQ(model.layer_types, std::vector<std::string>{"sliding"});
  }
}

TEST_F(HfConfigTest, RefusesWhatItCannotHonour) {
  EXPECT_EQ(refusal("t5", {}),
            "config.json: model_type = \"t5\": the supported ones are llama, mistral, qwen2, qwen3, smollm3, "
            "gemma2, "
            "gemma3_text, olmo2, phi3, granite, starcoder2, gpt2, bloom, falcon");
  EXPECT_THAT(refusal("{}"), StartsWith("config.json: model_type is missing: "));
  EXPECT_EQ(
      refusal("llama", {{"hidden_act", "relu"}}),
      "config.json: hidden_act = \"relu\": the supported ones are silu, gelu, gelu_pytorch_tanh, gelu_new");
  EXPECT_EQ(
      refusal("llama", {{"rope_scaling", {{"rope_type", "spiral"}, {"factor", 2}}}}),
      "config.json: rope_scaling: rope_type = \"spiral\": the supported ones are default, linear, dynamic, "
      "llama3, yarn, longrope");
  EXPECT_EQ(refusal("llama", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}}),
            "config.json: max_position_embeddings is missing: expected 1 or more");
  EXPECT_EQ(refusal("phi3", {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1}}}}}),
            "config.json: rope_scaling: long_factor is missing: expected a list of numbers");
  EXPECT_THAT(refusal("phi3", {{"rope_scaling",
                                {{"type", "su"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1}}}}}),
              HasSubstr("rope_short_factors = [1.0, 1.0]: rope_scaling = \"longrope\" needs 8 factors"));
  EXPECT_EQ(refusal("falcon", {{"alibi", true}}),
            "config.json: alibi = true: only false is supported in this model type");
  EXPECT_EQ(refusal("falcon", {{"new_decoder_architecture", true}, {"parallel_attn", false}}),
            "config.json: parallel_attn = false: must be true where new_decoder_architecture is");
  EXPECT_EQ(refusal("falcon", {{"multi_query", false}, {"num_kv_heads", 2}}),
            "config.json: num_kv_heads = 2: must equal num_attention_heads where multi_query is false");
  EXPECT_EQ(refusal("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}),
            "config.json: scale_attn_by_inverse_layer_idx = true: only false is supported");
  EXPECT_EQ(refusal("bloom", {{"apply_residual_connection_post_layernorm", true}}),
            "config.json: apply_residual_connection_post_layernorm = true: only false is supported");
  EXPECT_EQ(refusal("granite", {{"logits_scaling", 0}}),
            "config.json: logits_scaling = 0: expected a number above 0");
  EXPECT_EQ(refusal("llama", {{"rope_scaling", {{"rope_type", "linear"}}}}),
            "config.json: rope_scaling: factor is missing: expected a number");
  EXPECT_EQ(
      refusal("llama", {{"quantization_config", {{"bits", 4}}}}),
      "config.json: quantization_config = {...}: quantized weights are not supported; use the unquantized "
      "model");
  EXPECT_EQ(
      refusal("gemma3_text", {{"use_bidirectional_attention", true}}),
      "config.json: use_bidirectional_attention = true: only causal decoders are supported, where this is "
      "false");
  EXPECT_EQ(refusal("llama", {{"partial_rotary_factor", 0.5}}),
            "config.json: partial_rotary_factor = 0.5: only 1 is supported");
  EXPECT_EQ(refusal("qwen2", {{"layer_types", {"full_attention"}}}),
            "config.json: layer_types = [...]: expected a list of 6, one item a layer");
  EXPECT_EQ(
      refusal("gemma3_text", {{"rope_parameters", {{"sliding_attention", {{"rope_type", "yarn"}}}}}}),
      "config.json: rope_parameters: sliding_attention: rope_type = \"yarn\": only default is supported in "
      "sliding layers");
  EXPECT_EQ(refusal("llama", {{"hidden_size", "64"}}),
            "config.json: hidden_size = \"64\": expected an integer");
  EXPECT_EQ(refusal("llama", {{"hidden_size", nullptr}}),
            "config.json: hidden_size is missing: expected an integer");
  EXPECT_EQ(refusal("llama", {{"num_key_value_heads", 3}, {"rms_norm_eps", -1}}),
            "config.json: an impossible model:\n  norm_eps = -1.0: expected a number in (0, 1]");
  EXPECT_EQ(
      refusal("llama", {{"num_key_value_heads", 3}}),
      "config.json: an impossible model:\n  n_kv_heads = 3: must divide n_heads = 4: 1, 2 or 4 would work");
  EXPECT_THAT(refusal("{\"model_type\": "), HasSubstr("config.json: not valid JSON: "));
  EXPECT_THAT(refusal(R"({"rms_norm_eps": 1e400})"), HasSubstr("config.json: not valid JSON: "));
  EXPECT_EQ(refusal("[]"), "config.json: expected a JSON object");
  std::filesystem::remove(dir_ / "config.json");
  EXPECT_THROW(read_hf_model(Env::system(), dir_.string()), Error);
}

TEST_F(HfConfigTest, ArbitraryBytesAreRefusedOrReadButNeverCrash) {
  std::mt19937_64 rng(3);
  const std::string valid = small("gemma3_text", {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2}}},
                                                  {"max_position_embeddings", 64}})
                                .dump();
  ASSERT_EQ(refusal(valid), "accepted");
  int refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text = valid;
    for (int i = 0; i < 2; ++i)
      text[rng() % text.size()] = static_cast<char>(rng() % 2 ? rng() : '0' + rng() % 10);
    refused += refusal(text) != "accepted";
  }
  EXPECT_GT(refused, 1000);
  // Each key in turn with a value of another kind, or absurd.
  const Json start = Json::parse(valid);
  for (const auto& [key, old_value] : start.items()) {
    for (const Json& value : {Json(nullptr), Json(-1), Json(1e300), Json("x"), Json::array(), Json::object(),
                              Json(true), Json(9223372036854775807), Json(0)}) {
      Json changed = start;
      changed[key] = value;
      refusal(changed.dump());
    }
  }
  const std::string deep(200000, '[');
  EXPECT_THAT(refusal("{\"model_type\": " + deep + std::string(deep.size(), ']') + "}"), HasSubstr("nested"));
}

TEST_F(HfConfigTest, ApplyKeepsWhatBelongsToTraining) {
  read("llama", {{"initializer_range", 0.5}});
  Config config;
  config.model.from_hf = dir_.string();
  config.model.dim = 1024;
  config.model.dropout = 0.1;
  config.model.attention_dropout = 0.2;
  config.model.init_std = 0.01;
  apply_from_hf(&config);
  EXPECT_EQ(config.model.dim, 64);
  EXPECT_EQ(config.model.from_hf, dir_.string());
  EXPECT_EQ(config.model.dropout, 0.1);
  EXPECT_EQ(config.model.attention_dropout, 0.2);
  EXPECT_EQ(config.model.init_std, 0.01);

  Config untouched;
  apply_from_hf(&untouched);
  EXPECT_EQ(to_toml(untouched), to_toml(Config{}));
}

}  // namespace
}  // namespace weft
