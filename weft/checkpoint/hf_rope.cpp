#include "weft/checkpoint/hf_rope.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace weft {
namespace {

/// How mscale keys of DeepSeek's YaRN turn into a factor.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void read_yarn(const HfReader& rope, ModelConfig* model) {
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

std::vector<double> factors(const HfReader& rope, const char* key) {
  if (!rope.has(key)) rope.refuse(key, "expected a list of numbers");
  std::vector<double> numbers;
  for (const Json& item : rope.list(key, 0)) {
    if (!item.is_number()) rope.refuse(key, "expected a list of numbers");
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

/// Which of ours a type is. Phi-3's first releases say "su" for longrope, or "yarn" though they mean it.
std::string scaling_of(const HfReader& rope, const char* type_key, bool phi3) {
  const std::string type = rope.text(type_key, "default");
  if (type == "su" || (phi3 && type == "yarn")) return "longrope";
  for (const char* known : {"default", "linear", "dynamic", "llama3", "yarn", "longrope"}) {
    if (type == known) return type;
  }
  rope.refuse(type_key, "the supported ones are default, linear, dynamic, llama3, yarn, longrope");
}

/// One set of RoPE parameters: {rope_type or type, rope_theta, factor, ...}.
void read_parameters(const HfReader& file, const HfReader& rope, double default_theta, ModelConfig* model) {
  model->rope_theta = rope.number("rope_theta", file.number("rope_theta", default_theta));
  // Only Phi-3's code turns a part of each head; the other families ignore the factor or fail over it.
  const bool phi3 = file.text("model_type", "") == "phi3";
  const double part = rope.number("partial_rotary_factor", file.number("partial_rotary_factor", 1));
  const HfReader& where = rope.has("partial_rotary_factor") ? rope : file;
  if (part != 1 && !phi3) where.refuse("partial_rotary_factor", "only 1 is supported");
  if (!(part > 0 && part <= 1)) where.refuse("partial_rotary_factor", "expected a number in (0, 1]");
  if (part != 1)
    model->rope_dim = static_cast<int64_t>(static_cast<double>(model->dim / model->n_heads) * part);
  if (rope.has("full_attention")) {
    rope.refuse("full_attention", "RoPE per layer type is supported for gemma3_text only");
  }
  const char* const type_key = rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling_of(rope, type_key, phi3);
  if (type == "default") return;
  model->rope_scaling = type;
  const int64_t longest = file.integer("max_position_embeddings", phi3 ? 4096 : 0);
  if (type == "linear" || type == "dynamic") model->rope_factor = rope.number("factor");
  if (type == "linear") return;
  model->rope_original_seq_len = longest;
  if (type == "dynamic") {
    if (longest <= 0) file.refuse("max_position_embeddings", "expected 1 or more");
    return;
  }
  // As in transformers, the file's own key wins over that of the RoPE parameters.
  model->rope_original_seq_len =
      file.integer("original_max_position_embeddings",
                   rope.integer("original_max_position_embeddings", phi3 ? 4096 : longest));
  if (model->rope_original_seq_len <= 0)
    rope.refuse("original_max_position_embeddings", "expected 1 or more");
  if (type == "llama3") {
    model->rope_factor = rope.number("factor");
    model->rope_low_freq_factor = rope.number("low_freq_factor");
    model->rope_high_freq_factor = rope.number("high_freq_factor");
    return;
  }
  // Some models state the factor only as the ratio of the two lengths.
  std::optional<double> ratio;
  if (longest > 0) ratio = static_cast<double>(longest) / static_cast<double>(model->rope_original_seq_len);
  model->rope_factor = rope.number("factor", ratio);
  if (type == "yarn") {
    read_yarn(rope, model);
  } else {
    model->rope_factor = std::max(1.0, model->rope_factor);
    model->rope_short_factors = factors(rope, "short_factor");
    model->rope_long_factors = factors(rope, "long_factor");
    model->rope_attention_factor = rope.number("attention_factor", 0);
  }
}

/// The file's RoPE parameters under either name. As in transformers 5, rope_scaling wins if it is there.
HfReader rope_object(const HfReader& file) {
  static const Json none = Json::object();
  if (file.has("rope_scaling") && !file.at("rope_scaling").empty()) return file.object("rope_scaling");
  if (file.has("rope_parameters")) return file.object("rope_parameters");
  return {file.path(), none};
}

}  // namespace

void read_rope(const HfReader& file, double default_theta, ModelConfig* model) {
  read_parameters(file, rope_object(file), default_theta, model);
}

void read_gemma3_rope(const HfReader& file, double default_theta, ModelConfig* model) {
  model->rope_theta_sliding = file.number("rope_local_base_freq", 1e4);
  const HfReader rope = rope_object(file);
  const bool per_type = rope.has("full_attention") || rope.has("sliding_attention");
  if (!per_type) {
    read_parameters(file, rope, default_theta, model);
    return;
  }
  if (rope.has("full_attention")) {
    read_parameters(file, rope.object("full_attention"), default_theta, model);
  } else {
    model->rope_theta = file.number("rope_theta", default_theta);
  }
  if (rope.has("sliding_attention")) {
    const HfReader sliding = rope.object("sliding_attention");
    if (sliding.text("rope_type", "default") != "default") {
      sliding.refuse("rope_type", "only default is supported in sliding layers");
    }
    model->rope_theta_sliding = sliding.number("rope_theta", model->rope_theta_sliding);
  }
}

}  // namespace weft
