#include "weft/base/config.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <variant>

#include "weft/base/config_schema.h"
#include "weft/base/error.h"

namespace weft {

namespace {

// By which cos and sin are multiplied when the context is stretched: the papers' temperature of the softmax.
double attention_factor(const ModelConfig& model) {
  const double log_factor = std::log(model.rope_factor);
  if (model.rope_scaling == "yarn") return 0.1 * log_factor + 1;
  return std::sqrt(1 + log_factor / std::log(static_cast<double>(model.rope_original_seq_len)));  // longrope
}

}  // namespace

void resolve(ModelConfig* model) {
  if (model->n_kv_heads == 0) model->n_kv_heads = model->n_heads;
  if (model->head_dim == 0) model->head_dim = model->dim / model->n_heads;
  if (model->ffn_dim == 0)
    model->ffn_dim = model->mlp == "plain" ? 4 * model->dim : (8 * model->dim + 191) / 192 * 64;
  if (model->rope_dim == 0) model->rope_dim = model->head_dim;
  if (model->attn_scale == 0) model->attn_scale = 1 / std::sqrt(static_cast<double>(model->head_dim));
  const bool stretched = model->rope_scaling == "yarn" || model->rope_scaling == "longrope";
  if (stretched && model->rope_attention_factor == 0) model->rope_attention_factor = attention_factor(*model);
}

void resolve(Config* config) {
  resolve(&config->model);
  if (config->model.position == "learned" && config->model.max_positions == 0)
    config->model.max_positions = config->train.seq_len;
  ParallelConfig& parallel = config->parallel;
  if (parallel.gradient_sync.empty()) parallel.gradient_sync = parallel.zero >= 2 ? "each" : "last";
  PrecisionConfig& precision = config->precision;
  if (precision.params.empty()) precision.params = precision.compute;
  if (precision.gradients.empty()) precision.gradients = precision.compute;
  if (precision.reduce.empty()) precision.reduce = precision.gradients;
  OptimConfig& optim = config->optim;
  if (optim.schedule == "constant") return;
  if (optim.decay_steps == 0) optim.decay_steps = config->train.steps;
  if (optim.schedule == "wsd" && optim.wsd_steps == 0) {
    const int64_t room = optim.decay_steps - optim.warmup_steps;
    optim.wsd_steps = std::min(room, std::max<int64_t>(1, optim.decay_steps / 5));
  }
}

bool is_sliding(const ModelConfig& model, int64_t layer) {
  return model.layer_types[static_cast<size_t>(layer) % model.layer_types.size()] == "sliding";
}

bool has_sliding(const ModelConfig& model) { return std::ranges::count(model.layer_types, "sliding") > 0; }

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string text, section;
  for (const auto& key : config_keys()) {
    if (key.section() != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", key.section());
      section = key.section();
    }
    text += fmt::format("{} = {}\n", key.short_name(), toml_text(key.member(copy)));
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> toml_values(const std::string& toml) {
  std::vector<std::pair<std::string, std::string>> values;
  std::istringstream lines(toml);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1) + ".";
    if (equals != std::string::npos)
      values.emplace_back(section + line.substr(0, equals), line.substr(equals + 3));
  }
  return values;
}

std::vector<std::string> chosen_keys(const Config& config) {
  Config given = config, defaults;
  std::vector<std::string> chosen;
  for (const auto& key : config_keys()) {
    Config without = config;
    const auto reset = [&](auto* member) { *member = *std::get<decltype(member)>(key.member(defaults)); };
    std::visit(reset, key.member(without));
    resolve(&without);
    if (toml_text(key.member(without)) != toml_text(key.member(given))) chosen.push_back(key.name);
  }
  return chosen;
}

}  // namespace weft
