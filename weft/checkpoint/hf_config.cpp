#include "weft/checkpoint/hf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {
namespace {

using Json = nlohmann::json;

/// What differs between model types in transformers when config.json leaves a key out.
struct ModelType {
  const char* name;
  bool tied;
  int64_t n_kv_heads;  // 0: as many as query heads
  int64_t head_dim;    // 0: hidden_size / num_attention_heads
  double rope_theta;
};

constexpr ModelType kModelTypes[] = {
    {"llama", false, 0, 0, 1e4},        {"mistral", false, 8, 0, 1e4}, {"qwen2", false, 32, 0, 1e4},
    {"qwen3", false, 32, 128, 1e4},     {"smollm3", true, 4, 0, 2e6},  {"gemma2", true, 4, 256, 1e4},
    {"gemma3_text", true, 4, 256, 1e6},
};

std::string shown(const Json& scalar) {
  const std::string text = scalar.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

/// A JSON object of the file, read key by key; null counts as absent.
class Reader {
 public:
  Reader(std::string path, const Json& object) : path_(std::move(path)), object_(object) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const Json& at(const char* key) const { return object_.at(key); }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    std::string value = "missing";
    if (has(key)) {
      value = at(key).is_array() ? "[...]" : at(key).is_object() ? "{...}" : shown(at(key));
    }
    fail("{}: {} {} {}: {}", path_, key, has(key) ? "=" : "is", value, expected);
  }

  int64_t integer(const char* key, std::optional<int64_t> fallback = std::nullopt) const {
    if (!has(key) && fallback) return *fallback;
    const double value = has(key) && at(key).is_number() ? at(key).get<double>() : std::nan("");
    if (!(std::abs(value) <= 9e15 && value == std::floor(value))) refuse(key, "expected an integer");
    return static_cast<int64_t>(value);
  }

  double number(const char* key, std::optional<double> fallback = std::nullopt) const {
    if (!has(key) && fallback) return *fallback;
    if (!has(key) || !at(key).is_number()) refuse(key, "expected a number");
    return at(key).get<double>();
  }

  bool flag(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_boolean()) refuse(key, "expected true or false");
    return at(key).get<bool>();
  }

  std::string text(const char* key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!at(key).is_string()) refuse(key, "expected text");
    return at(key).get<std::string>();
  }

  /// The object under `key`, whose own keys are reported as "file: key".
  Reader object(const char* key) const {
    if (!at(key).is_object()) refuse(key, "expected an object");
    return {path_ + ": " + key, at(key)};
  }

  const Json::array_t& list(const char* key, int64_t at_least) const {
    if (!at(key).is_array() || static_cast<int64_t>(at(key).size()) < at_least) {
      refuse(key, fmt::format("expected a list of {}, one item a layer", at_least));
    }
    return at(key).get_ref<const Json::array_t&>();
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const Json& object_;
};

const ModelType& model_type(const Reader& file) {
  const std::string name = file.text("model_type", "");
  std::string supported;
  for (const auto& type : kModelTypes) {
    if (name == type.name) return type;
    supported += (supported.empty() ? "" : ", ") + std::string(type.name);
  }
  file.refuse("model_type", "the supported ones are " + supported);
}

/// Keys that change what the model computes in ways that Weft does not.
void refuse_unsupported(const Reader& file) {
  if (file.has("quantization_config")) {
    file.refuse("quantization_config", "quantized weights are not supported; use the unquantized model");
  }
  for (const char* key : {"use_bidirectional_attention", "is_encoder_decoder", "add_cross_attention"}) {
    if (file.has(key) && file.at(key) != false) {
      file.refuse(key, "only causal decoders are supported, where this is false");
    }
  }
  if (file.number("partial_rotary_factor", 1) != 1) {
    file.refuse("partial_rotary_factor", "only 1 is supported");
  }
}

/// How mscale keys of DeepSeek's YaRN turn into a factor.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void read_yarn(const Reader& rope, ModelConfig* model) {
  model->rope_beta_fast = rope.number("beta_fast", 32);
  model->rope_beta_slow = rope.number("beta_slow", 1);
  model->rope_truncate = rope.flag("truncate", true);
  const double mscale = rope.number("mscale", 0), mscale_all_dim = rope.number("mscale_all_dim", 0);
  double attention_factor = yarn_mscale(model->rope_factor, 1);
  if (mscale != 0 && mscale_all_dim != 0) {
    attention_factor =
        yarn_mscale(model->rope_factor, mscale) / yarn_mscale(model->rope_factor, mscale_all_dim);
  }
  model->rope_attention_factor = rope.number("attention_factor", attention_factor);
}

/// One set of RoPE parameters: {rope_type or type, rope_theta, factor, ...}.
void read_rope(const Reader& file, const Reader& rope, double default_theta, ModelConfig* model) {
  model->rope_theta = rope.number("rope_theta", file.number("rope_theta", default_theta));
  if (rope.number("partial_rotary_factor", 1) != 1) {
    rope.refuse("partial_rotary_factor", "only 1 is supported");
  }
  if (rope.has("full_attention")) {
    rope.refuse("full_attention", "RoPE per layer type is supported for gemma3_text only");
  }
  const char* const type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text(type_key, "default");
  if (type == "default") return;
  if (type != "linear" && type != "llama3" && type != "yarn") {
    rope.refuse(type_key, "the supported ones are default, linear, llama3, yarn");
  }
  model->rope_scaling = type;
  if (type == "linear") {
    model->rope_factor = rope.number("factor");
    return;
  }
  const int64_t longest = file.integer("max_position_embeddings", 0);
  model->rope_original_seq_len = rope.integer("original_max_position_embeddings",
                                              file.integer("original_max_position_embeddings", longest));
  if (model->rope_original_seq_len <= 0)
    rope.refuse("original_max_position_embeddings", "expected 1 or more");
  if (type == "llama3") {
    model->rope_factor = rope.number("factor");
    model->rope_low_freq_factor = rope.number("low_freq_factor");
    model->rope_high_freq_factor = rope.number("high_freq_factor");
  } else {
    // Some models state the factor only as the ratio of the two lengths.
    std::optional<double> ratio;
    if (longest > 0) ratio = static_cast<double>(longest) / static_cast<double>(model->rope_original_seq_len);
    model->rope_factor = rope.number("factor", ratio);
    read_yarn(rope, model);
  }
}

/// The file's RoPE parameters under either name. As in transformers 5, rope_scaling wins if it is there.
Reader rope_object(const Reader& file) {
  static const Json none = Json::object();
  if (file.has("rope_scaling") && !file.at("rope_scaling").empty()) return file.object("rope_scaling");
  if (file.has("rope_parameters")) return file.object("rope_parameters");
  return {file.path(), none};
}

/// Gemma 3: sliding layers have a base of their own and are never scaled.
void read_gemma3_rope(const Reader& file, double default_theta, ModelConfig* model) {
  model->rope_theta_sliding = file.number("rope_local_base_freq", 1e4);
  const Reader rope = rope_object(file);
  const bool per_type = rope.has("full_attention") || rope.has("sliding_attention");
  if (!per_type) {
    read_rope(file, rope, default_theta, model);
    return;
  }
  if (rope.has("full_attention")) {
    read_rope(file, rope.object("full_attention"), default_theta, model);
  } else {
    model->rope_theta = file.number("rope_theta", default_theta);
  }
  if (rope.has("sliding_attention")) {
    const Reader sliding = rope.object("sliding_attention");
    if (sliding.text("rope_type", "default") != "default") {
      sliding.refuse("rope_type", "only default is supported in sliding layers");
    }
    model->rope_theta_sliding = sliding.number("rope_theta", model->rope_theta_sliding);
  }
}

/// `layer_types` if the file has it, else what `slides` says of each layer.
template <class Slides>
void read_layer_types(const Reader& file, ModelConfig* model, Slides slides) {
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

void read_mistral(const Reader& file, bool window_is_null, ModelConfig* model) {
  // An absent key means 4096 in transformers; null means no window.
  model->sliding_window = window_is_null ? 0 : file.integer("sliding_window", 4096);
  read_layer_types(file, model, [&](int64_t) { return !window_is_null; });
}

void read_qwen(const Reader& file, ModelConfig* model) {
  const bool slides = file.flag("use_sliding_window", false);
  model->sliding_window = slides ? file.integer("sliding_window", 4096) : 0;
  const int64_t first = file.integer("max_window_layers", 28);
  read_layer_types(file, model, [&](int64_t layer) { return slides && layer >= first; });
}

void read_smollm3(const Reader& file, ModelConfig* model) {
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

void read_gemma(const Reader& file, bool gemma3, ModelConfig* model) {
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
double soft_cap(const Reader& file, const Json& json, const char* key, double fallback) {
  return json.contains(key) ? file.number(key, 0) : fallback;
}

std::string activation(const Reader& file, bool gemma) {
  const char* const key = gemma ? "hidden_activation" : "hidden_act";
  const std::string name = file.text(key, gemma ? "gelu_pytorch_tanh" : "silu");
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_pytorch_tanh") return "gelu_tanh";
  file.refuse(key, "the supported ones are silu, gelu_pytorch_tanh");
}

/// A list that says the same of every layer needs to say it once.
template <class Item>
void shorten(std::vector<Item>* list) {
  if (std::equal(list->begin() + 1, list->end(), list->begin())) list->resize(1);
}

ModelConfig read_model(const Reader& file, const Json& json) {
  const ModelType& type = model_type(file);
  const std::string name = type.name;
  const bool gemma = name.starts_with("gemma");
  refuse_unsupported(file);

  ModelConfig model;
  model.n_layers = file.integer("num_hidden_layers");
  model.dim = file.integer("hidden_size");
  model.n_heads = file.integer("num_attention_heads");
  model.ffn_dim = file.integer("intermediate_size");
  model.vocab_size = file.integer("vocab_size");
  if (model.n_layers < 1 || model.n_layers > 4096) file.refuse("num_hidden_layers", "expected 1 to 4096");
  if (model.vocab_size < 1) file.refuse("vocab_size", "expected 1 or more");
  if (model.ffn_dim < 1) file.refuse("intermediate_size", "expected 1 or more");
  model.n_kv_heads =
      json.contains("num_key_value_heads") ? file.integer("num_key_value_heads", 0) : type.n_kv_heads;
  model.head_dim = json.contains("head_dim") ? file.integer("head_dim", 0) : type.head_dim;
  model.tie_embeddings = file.flag("tie_word_embeddings", type.tied);
  model.norm_eps = file.number("rms_norm_eps", 1e-6);
  model.activation = activation(file, gemma);
  model.init_std = file.number("initializer_range", 0.02);
  model.qkv_bias = name == "qwen2" || (name != "mistral" && file.flag("attention_bias", false));
  model.o_bias = name != "qwen2" && model.qkv_bias;

  if (name == "llama") model.mlp_bias = file.flag("mlp_bias", false);
  if (name == "mistral")
    read_mistral(file, json.contains("sliding_window") && !file.has("sliding_window"), &model);
  if (name == "qwen2" || name == "qwen3") read_qwen(file, &model);
  if (name == "qwen3") model.qk_norm = "head";
  if (name == "smollm3") read_smollm3(file, &model);
  if (gemma) {
    read_gemma(file, name == "gemma3_text", &model);
    const bool capped = name == "gemma2";
    model.attn_softcap = soft_cap(file, json, "attn_logit_softcapping", capped ? 50 : 0);
    model.final_softcap = soft_cap(file, json, "final_logit_softcapping", capped ? 30 : 0);
  }
  if (name == "gemma3_text") {
    read_gemma3_rope(file, type.rope_theta, &model);
  } else {
    read_rope(file, rope_object(file), type.rope_theta, &model);
  }
  shorten(&model.layer_types);
  shorten(&model.rope_layers);
  return model;
}

}  // namespace

ModelConfig model_from_hf(Env& env, const std::string& dir) {
  const std::string path = dir + "/config.json";
  Json json;
  try {
    json = Json::parse(env.read(path));
  } catch (const Json::parse_error& error) {
    fail("{}: not valid JSON at byte {}", path, error.byte);
  }
  if (!json.is_object()) fail("{}: expected a JSON object", path);
  ModelConfig model = read_model(Reader(path, json), json);
  const auto problems = shape_problems(model);
  if (!problems.empty()) fail("{}: an impossible model:\n  {}", path, fmt::join(problems, "\n  "));
  resolve(&model);
  return model;
}

void apply_from_hf(Config* config) {
  ModelConfig& model = config->model;
  if (model.from_hf.empty()) return;
  ModelConfig shape = model_from_hf(Env::system(), model.from_hf);
  shape.from_hf = model.from_hf;
  shape.init_std = model.init_std;
  shape.dropout = model.dropout;
  shape.attention_dropout = model.attention_dropout;
  model = std::move(shape);
}

}  // namespace weft
