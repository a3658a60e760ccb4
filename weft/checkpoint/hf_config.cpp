#include "weft/checkpoint/hf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "weft/base/config_schema.h"
#include "weft/base/json.h"
#include "weft/checkpoint/hf_rope.h"

namespace weft {
namespace {

/// The keys under which a model type writes its sizes; nullptr: the type has no such key.
struct Spelling {
  const char* layers = "num_hidden_layers";
  const char* dim = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* ffn = "intermediate_size";
  const char* norm_eps = "rms_norm_eps";
  const char* activation = "hidden_act";
  bool ffn_is_four_dim = false;  // if the file does not say
};

constexpr Spelling kLlama = {};
constexpr Spelling kGemma = {.activation = "hidden_activation"};
constexpr Spelling kStarcoder2 = {.norm_eps = "norm_epsilon"};
constexpr Spelling kGpt2 = {
    "n_layer", "n_embd", "n_head", "n_inner", "layer_norm_epsilon", "activation_function", true};
constexpr Spelling kBloom = {"n_layer", "n_embed", "n_head", nullptr, "layer_norm_epsilon", nullptr, true};
constexpr Spelling kFalcon = {"n_layer",    "n_embed", "n_head", "ffn_hidden_size", "layer_norm_epsilon",
                              "activation", true};

/// What differs between model types in transformers when config.json leaves a key out.
struct ModelType {
  const char* name;
  Spelling keys;
  bool tied;
  int64_t n_kv_heads;  // 0: as many as query heads
  int64_t head_dim;    // 0: hidden_size / num_attention_heads
  double rope_theta;   // 0: the type has no RoPE
  double norm_eps;
  const char* activation;
};

constexpr ModelType kModelTypes[] = {
    {"llama", kLlama, false, 0, 0, 1e4, 1e-6, "silu"},
    {"mistral", kLlama, false, 8, 0, 1e4, 1e-6, "silu"},
    {"qwen2", kLlama, false, 32, 0, 1e4, 1e-6, "silu"},
    {"qwen3", kLlama, false, 32, 128, 1e4, 1e-6, "silu"},
    {"smollm3", kLlama, true, 4, 0, 2e6, 1e-6, "silu"},
    {"gemma2", kGemma, true, 4, 256, 1e4, 1e-6, "gelu_pytorch_tanh"},
    {"gemma3_text", kGemma, true, 4, 256, 1e6, 1e-6, "gelu_pytorch_tanh"},
    {"olmo2", kLlama, false, 0, 0, 1e4, 1e-5, "silu"},
    {"phi3", kLlama, false, 0, 0, 1e4, 1e-5, "silu"},
    {"granite", kLlama, false, 0, 0, 1e4, 1e-6, "silu"},
    {"starcoder2", kStarcoder2, true, 2, 0, 1e4, 1e-5, "gelu_pytorch_tanh"},
    {"gpt2", kGpt2, true, 0, 0, 0, 1e-5, "gelu_new"},
    {"bloom", kBloom, true, 0, 0, 0, 1e-5, "gelu_new"},
    {"falcon", kFalcon, true, 0, 0, 1e4, 1e-5, "gelu"},
};

const ModelType& model_type(const HfReader& file) {
  const std::string name = file.text("model_type", "");
  std::string supported;
  for (const auto& type : kModelTypes) {
    if (name == type.name) return type;
    supported += (supported.empty() ? "" : ", ") + std::string(type.name);
  }
  file.refuse("model_type", "the supported ones are " + supported);
}

/// Keys that change what the model computes in ways that Weft does not.
void refuse_unsupported(const HfReader& file) {
  if (file.has("quantization_config")) {
    file.refuse("quantization_config", "quantized weights are not supported; use the unquantized model");
  }
  for (const char* key : {"use_bidirectional_attention", "is_encoder_decoder", "add_cross_attention"}) {
    if (file.has(key) && file.at(key) != false) {
      file.refuse(key, "only causal decoders are supported, where this is false");
    }
  }
}

/// `layer_types` if the file has it, else what `slides` says of each layer.
template <class Slides>
void read_layer_types(const HfReader& file, ModelConfig* model, Slides slides) {
  model->layer_types.clear();
  if (!file.has("layer_types")) {
    for (int64_t layer = 0; layer < model->n_layers; ++layer) {
      model->layer_types.push_back(slides(layer) ? "sliding" : "full");
    }
    return;
  }
  const auto& types = file.list("layer_types", model->n_layers);
  for (int64_t layer = 0; layer < model->n_layers; ++layer) {
    const Json& type = types[static_cast<size_t>(layer)];
    if (type != "full_attention" && type != "sliding_attention") {
      file.refuse("layer_types", "the supported ones are full_attention, sliding_attention");
    }
    model->layer_types.push_back(type == "sliding_attention" ? "sliding" : "full");
  }
}

void read_mistral(const HfReader& file, ModelConfig* model) {
  const bool window_is_null = file.contains("sliding_window") && !file.has("sliding_window");
  // An absent key means 4096 in transformers; null means no window.
  model->sliding_window = window_is_null ? 0 : file.integer("sliding_window", 4096);
  read_layer_types(file, model, [&](int64_t) { return !window_is_null; });
}

void read_qwen(const HfReader& file, ModelConfig* model) {
  const bool slides = file.flag("use_sliding_window", false);
  model->sliding_window = slides ? file.integer("sliding_window", 4096) : 0;
  const int64_t first = file.integer("max_window_layers", 28);
  read_layer_types(file, model, [&](int64_t layer) { return slides && layer >= first; });
}

void read_smollm3(const HfReader& file, ModelConfig* model) {
  model->mlp_bias = file.flag("mlp_bias", false);
  model->rope_layers.clear();
  const int64_t interval = file.integer("no_rope_layer_interval", 4);
  if (interval < 1) file.refuse("no_rope_layer_interval", "expected 1 or more");
  for (int64_t layer = 0; layer < model->n_layers; ++layer) {
    bool rotates = (layer + 1) % interval != 0;
    if (file.has("no_rope_layers")) {  // despite its name, 1 stands for a layer with RoPE
      const Json& item = file.list("no_rope_layers", model->n_layers)[static_cast<size_t>(layer)];
      if (item != 0 && item != 1) file.refuse("no_rope_layers", "expected a list of 0 and 1");
      rotates = item == 1;
    }
    model->rope_layers.push_back(rotates);
  }
  const bool slides = file.flag("use_sliding_window", false) && file.has("sliding_window");
  model->sliding_window = slides ? file.integer("sliding_window") : 0;
  read_layer_types(file, model,
                   [&](int64_t layer) { return slides && !model->rope_layers[static_cast<size_t>(layer)]; });
  if (!slides) model->layer_types.assign(model->layer_types.size(), "full");
}

void read_gemma(const HfReader& file, bool gemma3, ModelConfig* model) {
  model->norm_unit_offset = true;
  model->norm_placement = "sandwich";
  model->qk_norm = gemma3 ? "head" : "none";
  model->embedding_multiplier = std::sqrt(static_cast<double>(model->dim));
  const double scalar = file.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) file.refuse("query_pre_attn_scalar", "expected a number above 0");
  model->attn_scale = 1 / std::sqrt(scalar);
  model->sliding_window = file.integer("sliding_window", 4096);
  int64_t pattern = 2;  // Gemma 2 alternates, Gemma 3 has one full layer in six
  if (gemma3) pattern = file.integer("sliding_window_pattern", file.integer("_sliding_window_pattern", 6));
  if (pattern < 1) file.refuse("sliding_window_pattern", "expected 1 or more");
  read_layer_types(file, model, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

/// A soft-cap that is absent takes the model type's default; null switches it off.
double soft_cap(const HfReader& file, const char* key, double fallback) {
  return file.contains(key) ? file.number(key, 0) : fallback;
}

std::string activation(const HfReader& file, const ModelType& type) {
  const char* const key = type.keys.activation;
  const std::string name = key == nullptr ? type.activation : file.text(key, type.activation);
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu") return "gelu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return "gelu_tanh";
  file.refuse(key, "the supported ones are silu, gelu, gelu_pytorch_tanh, gelu_new");
}

/// Phi-3 and StarCoder2: every layer slides, or none.
void read_one_window(const HfReader& file, ModelConfig* model) {
  model->sliding_window = file.integer("sliding_window", 0);
  if (model->sliding_window > 0) model->layer_types = {"sliding"};
}

double positive(const HfReader& file, const char* key, double fallback) {
  const double number = file.number(key, fallback);
  if (!(number > 0)) file.refuse(key, "expected a number above 0");
  return number;
}

void read_granite(const HfReader& file, ModelConfig* model) {
  model->mlp_bias = file.flag("mlp_bias", false);
  model->embedding_multiplier = positive(file, "embedding_multiplier", 1);
  model->residual_multiplier = positive(file, "residual_multiplier", 1);
  model->attn_scale = positive(file, "attention_multiplier", 1);
  model->logits_multiplier = 1 / positive(file, "logits_scaling", 1);
}

/// GPT-2 and those after its pattern: LayerNorm, an ungated MLP, a bias everywhere or nowhere.
void read_plain(bool bias, ModelConfig* model) {
  model->norm = "layernorm";
  model->mlp = "plain";
  model->qkv_bias = model->o_bias = model->mlp_bias = bias;
}

void read_gpt2(const HfReader& file, ModelConfig* model) {
  read_plain(true, model);
  model->position = "learned";
  model->max_positions = file.integer(file.either("n_positions", "max_position_embeddings"), 1024);
  if (model->max_positions < 1) file.refuse("n_positions", "expected 1 or more");
  if (!file.flag("scale_attn_weights", true)) model->attn_scale = 1;
  if (file.flag("scale_attn_by_inverse_layer_idx", false)) {
    file.refuse("scale_attn_by_inverse_layer_idx", "only false is supported");
  }
}

void read_bloom(const HfReader& file, ModelConfig* model) {
  read_plain(true, model);
  model->position = "alibi";
  model->embedding_norm = true;
  if (file.flag("apply_residual_connection_post_layernorm", false)) {
    file.refuse("apply_residual_connection_post_layernorm", "only false is supported");
  }
}

void read_falcon(const HfReader& file, ModelConfig* model) {
  read_plain(file.flag("bias", false), model);
  if (file.flag("alibi", false)) file.refuse("alibi", "only false is supported in this model type");
  const bool parallel = file.flag("parallel_attn", true),
             grouped = file.flag("new_decoder_architecture", false);
  const int64_t kv_heads = file.integer("num_kv_heads", model->n_heads);
  if (grouped) {
    if (!parallel) file.refuse("parallel_attn", "must be true where new_decoder_architecture is");
    model->n_kv_heads = kv_heads;
    const int64_t norms = file.integer("num_ln_in_parallel_attn", 2);
    if (norms != 1 && norms != 2) file.refuse("num_ln_in_parallel_attn", "expected 1 or 2");
    model->block = norms == 2 ? "parallel" : "parallel_shared_norm";
    return;
  }
  if (parallel) model->block = "parallel_shared_norm";
  model->n_kv_heads = file.flag("multi_query", true) ? 1 : kv_heads;
  if (model->n_kv_heads != 1 && kv_heads != model->n_heads) {
    file.refuse("num_kv_heads", "must equal num_attention_heads where multi_query is false");
  }
}

/// A list that says the same of every layer needs to say it once.
template <class Item>
void shorten(std::vector<Item>* list) {
  if (std::equal(list->begin() + 1, list->end(), list->begin())) list->resize(1);
}

void read_sizes(const HfReader& file, const ModelType& type, ModelConfig* model) {
  const Spelling& keys = type.keys;
  model->n_layers = file.integer(file.either(keys.layers, kLlama.layers));
  model->dim = file.integer(file.either(keys.dim, kLlama.dim));
  model->n_heads = file.integer(file.either(keys.heads, kLlama.heads));
  model->vocab_size = file.integer("vocab_size");
  if (model->n_layers < 1 || model->n_layers > 4096) file.refuse(keys.layers, "expected 1 to 4096");
  if (model->vocab_size < 1) file.refuse("vocab_size", "expected 1 or more");
  if (model->dim < 1 || model->dim > 1 << 20) file.refuse(keys.dim, "expected 1 to 1048576");
  if (model->n_heads < 1) file.refuse(keys.heads, "expected 1 or more");
  std::optional<int64_t> ffn_default;
  if (keys.ffn_is_four_dim) ffn_default = 4 * model->dim;
  model->ffn_dim = keys.ffn == nullptr ? *ffn_default : file.integer(keys.ffn, ffn_default);
  if (model->ffn_dim < 1) file.refuse(keys.ffn, "expected 1 or more");
  model->n_kv_heads =
      file.contains("num_key_value_heads") ? file.integer("num_key_value_heads", 0) : type.n_kv_heads;
  model->head_dim = file.contains("head_dim") ? file.integer("head_dim", 0) : type.head_dim;
}

void read_family(const HfReader& file, const std::string& name, ModelConfig* model) {
  if (name == "llama") model->mlp_bias = file.flag("mlp_bias", false);
  if (name == "mistral") read_mistral(file, model);
  if (name == "qwen2" || name == "qwen3") read_qwen(file, model);
  if (name == "qwen3") model->qk_norm = "head";
  if (name == "smollm3") read_smollm3(file, model);
  if (name.starts_with("gemma")) {
    read_gemma(file, name == "gemma3_text", model);
    const bool capped = name == "gemma2";
    model->attn_softcap = soft_cap(file, "attn_logit_softcapping", capped ? 50 : 0);
    model->final_softcap = soft_cap(file, "final_logit_softcapping", capped ? 30 : 0);
  }
  if (name == "olmo2") model->norm_placement = "post", model->qk_norm = "all_heads";
  if (name == "phi3") read_one_window(file, model);
  if (name == "granite") read_granite(file, model);
  if (name == "starcoder2") read_plain(file.flag("use_bias", true), model), read_one_window(file, model);
  if (name == "gpt2") read_gpt2(file, model);
  if (name == "bloom") read_bloom(file, model);
  if (name == "falcon") read_falcon(file, model);
}

HfModel read_model(const HfReader& file) {
  const ModelType& type = model_type(file);
  const std::string name = type.name;
  refuse_unsupported(file);

  ModelConfig model;
  read_sizes(file, type, &model);
  model.tie_embeddings = file.flag("tie_word_embeddings", type.tied);
  model.norm_eps = file.number(type.keys.norm_eps, type.norm_eps);
  model.activation = activation(file, type);
  model.init_std = file.number("initializer_range", 0.02);
  model.qkv_bias = name == "qwen2" || (name != "mistral" && file.flag("attention_bias", false));
  model.o_bias = name != "qwen2" && model.qkv_bias;
  read_family(file, name, &model);
  if (name == "gemma3_text") {
    read_gemma3_rope(file, type.rope_theta, &model);
  } else if (type.rope_theta != 0) {
    read_rope(file, type.rope_theta, &model);
  }
  shorten(&model.layer_types);
  shorten(&model.rope_layers);
  return {name, model};
}

}  // namespace

HfModel read_hf_model(Env& env, const std::string& dir) {
  const std::string path = dir + "/config.json";
  const Json json = parse_json(env.read(path), path);
  if (!json.is_object()) fail("{}: expected a JSON object", path);
  HfModel model = read_model(HfReader(path, json));
  const auto problems = shape_problems(model.config);
  if (!problems.empty()) fail("{}: an impossible model:\n  {}", path, fmt::join(problems, "\n  "));
  resolve(&model.config);
  return model;
}

void apply_from_hf(Config* config, Env& env) {
  if (config->model.from_hf.empty()) return;
  Config from_folder;
  from_folder.model = read_hf_model(env, config->model.from_hf).config;
  for (const Key& key : config_keys())
    if (key.section() == "model" && !is_shape_key(key))
      std::visit([&](auto* to) { *to = *std::get<decltype(to)>(key.member(*config)); },
                 key.member(from_folder));
  config->model = std::move(from_folder.model);
}

}  // namespace weft
