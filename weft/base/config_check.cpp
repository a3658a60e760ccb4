// What is wrong with a config as a whole, beyond the range of each key.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/ranges.h>

#include "weft/base/batch_ramp.h"
#include "weft/base/config_schema.h"
#include "weft/base/error.h"
#include "weft/base/name_pattern.h"
#include "weft/base/step_range.h"

namespace weft {
namespace {

bool contains_zero(const std::vector<double>& numbers) {
  return std::find(numbers.begin(), numbers.end(), 0.0) != numbers.end();
}

/// Up to eight divisors d of n that satisfy `fits`, those nearest to `wanted`, as "1, 2 or 4".
template <class Fits>
std::string divisors_near(int64_t n, int64_t wanted, Fits fits) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    if (fits(d)) divisors.push_back(d);
    if (d != n / d && fits(n / d)) divisors.push_back(n / d);
  }
  const auto distance = [&](int64_t d) { return std::abs(d - wanted); };
  std::sort(divisors.begin(), divisors.end(),
            [&](int64_t a, int64_t b) { return std::pair(distance(a), a) < std::pair(distance(b), b); });
  divisors.resize(std::min<size_t>(divisors.size(), 8));
  std::sort(divisors.begin(), divisors.end());
  std::string text;
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (i > 0) text += i + 1 == divisors.size() ? " or " : ", ";
    text += fmt::format("{}", divisors[i]);
  }
  return text;
}

void check_heads(const ModelConfig& model, std::vector<Problem>* problems) {
  const int64_t heads = model.n_heads;
  const bool pairs = model.position == "rope" && model.rope_dim == 0;
  if (model.head_dim == 0) {
    const auto fits = [&](int64_t d) { return !pairs || model.dim / d % 2 == 0; };
    if (model.dim % heads != 0 || !fits(heads)) {
      const std::string fitting = divisors_near(model.dim, heads, fits);
      problems->push_back({{"model.n_heads", "model.dim", "model.head_dim"},
                           fmt::format("dim = {} must split into heads{}: {}", model.dim,
                                       pairs ? " of an even width (RoPE turns pairs)" : "",
                                       fitting.empty() ? "make dim even" : fitting + " heads would work")});
    }
  } else if (pairs && model.head_dim % 2 != 0) {
    problems->push_back({{"model.head_dim"},
                         fmt::format("must be even, because RoPE turns pairs: {} or {} would work",
                                     model.head_dim - 1, model.head_dim + 1)});
  }
  if (model.n_kv_heads > 0 && heads % model.n_kv_heads != 0) {
    problems->push_back({{"model.n_kv_heads", "model.n_heads"},
                         fmt::format("must divide n_heads = {}: {} would work", heads,
                                     divisors_near(heads, model.n_kv_heads, [](int64_t) { return true; }))});
  }
  if (model.head_dim > 0 && heads * model.head_dim > (1 << 22)) {
    problems->push_back(
        {{"model.head_dim", "model.n_heads"},
         fmt::format("n_heads * head_dim = {}: at most {}", heads * model.head_dim, 1 << 22)});
  }
}

/// Can each of `tp` ranks have as many heads and MLP features?
bool divides_among(const ModelConfig& model, int64_t tp) {
  const int64_t kv = model.n_kv_heads;
  return model.n_heads % tp == 0 && (kv % tp == 0 || tp % kv == 0) && model.ffn_dim % tp == 0;
}

void check_longrope(const ModelConfig& model, int64_t frequencies, std::vector<Problem>* problems) {
  for (const auto& [key, factors] : {std::pair{"model.rope_short_factors", &model.rope_short_factors},
                                     std::pair{"model.rope_long_factors", &model.rope_long_factors}}) {
    if (static_cast<int64_t>(factors->size()) != frequencies) {
      problems->push_back({{key, "model.rope_scaling"},
                           fmt::format("rope_scaling = \"longrope\" needs {} factors, one for each pair of "
                                       "dims that turns, not {}",
                                       frequencies, factors->size())});
    } else if (contains_zero(*factors)) {
      problems->push_back({{key}, "each factor must be above 0"});
    }
  }
  if (model.rope_attention_factor == 0 && model.rope_original_seq_len == 1) {
    problems->push_back({{"model.rope_original_seq_len"}, "must be above 1 with \"longrope\""});
  }
}

void check_rope(const ModelConfig& model, std::vector<Problem>* problems) {
  if (model.rope_theta_sliding > 0 && model.rope_theta_sliding <= 1) {
    problems->push_back({{"model.rope_theta_sliding"}, "expected 0 (as the other layers) or more than 1"});
  }
  const int64_t head_dim = model.head_dim > 0 ? model.head_dim : model.dim / model.n_heads;
  if (model.rope_dim % 2 != 0 || model.rope_dim > head_dim) {
    problems->push_back({{"model.rope_dim", "model.head_dim"},
                         fmt::format("must be even and at most the width of a head, {}", head_dim)});
  }
  const int64_t rope_dim = model.rope_dim > 0 ? model.rope_dim : head_dim;
  if (model.rope_scaling == "longrope") check_longrope(model, rope_dim / 2, problems);
  if (model.rope_scaling == "dynamic" && rope_dim <= 2) {
    problems->push_back({{"model.rope_dim", "model.rope_scaling"},
                         "rope_scaling = \"dynamic\" needs more than two dims that turn"});
  }
  if (model.rope_scaling != "none" && model.rope_scaling != "linear" && model.rope_original_seq_len == 0) {
    problems->push_back(
        {{"model.rope_original_seq_len", "model.rope_scaling"},
         fmt::format("rope_scaling = \"{}\" needs the context that the model was first trained "
                     "with, in tokens",
                     model.rope_scaling)});
  }
  if (model.rope_scaling == "llama3" && model.rope_high_freq_factor <= model.rope_low_freq_factor) {
    problems->push_back({{"model.rope_high_freq_factor", "model.rope_low_freq_factor"},
                         fmt::format("must be above rope_low_freq_factor = {}", model.rope_low_freq_factor)});
  }
  if (model.rope_scaling == "yarn" && model.rope_beta_fast <= model.rope_beta_slow) {
    problems->push_back({{"model.rope_beta_fast", "model.rope_beta_slow"},
                         fmt::format("must be above rope_beta_slow = {}", model.rope_beta_slow)});
  }
}

void check_batch_ramp(const TrainConfig& train, std::vector<Problem>* problems) {
  if (train.batch_ramp_start == 0) return;
  const int64_t growth = train.global_batch - train.batch_ramp_start;
  if (growth < 0) {
    problems->push_back({{"train.batch_ramp_start", "train.global_batch"},
                         fmt::format("must be at most global_batch = {}", train.global_batch)});
  } else if (train.batch_ramp_increment == 0 || growth % train.batch_ramp_increment != 0) {
    problems->push_back(
        {{"train.batch_ramp_increment", "train.batch_ramp_start", "train.global_batch"},
         fmt::format("must divide global_batch - batch_ramp_start = {}: {} would work", growth,
                     divisors_near(std::max<int64_t>(growth, 1), train.batch_ramp_increment,
                                   [](int64_t) { return true; }))});
  }
  if (train.batch_ramp_samples == 0) {
    problems->push_back({{"train.batch_ramp_samples", "train.batch_ramp_start"},
                         "a ramp needs the number of sequences over which the batch grows"});
  }
}

void check_batch_size(const TrainConfig& train, std::vector<Problem>* problems) {
  const size_t before = problems->size();
  check_batch_ramp(train, problems);
  if (problems->size() > before) return;  // the batch of a step has no meaning
  const double tokens =
      static_cast<double>(samples_after(train, 0, train.steps)) * static_cast<double>(train.seq_len);
  if (tokens > 1e18) {
    problems->push_back(
        {{"train.steps", "train.global_batch", "train.seq_len"},
         fmt::format("steps * global_batch * seq_len = {:.3g} tokens: at most 1e18", tokens)});
  }
}

void check_schedule(const Config& config, std::vector<Problem>* problems) {
  const OptimConfig& optim = config.optim;
  if (optim.schedule == "constant") return;
  const int64_t end = optim.decay_steps > 0 ? optim.decay_steps : config.train.steps;
  const char* const end_name = optim.decay_steps > 0 ? "decay_steps" : "train.steps";
  if (optim.warmup_steps > end) {
    problems->push_back(
        {{"optim.warmup_steps", "optim.decay_steps", "train.steps"},
         fmt::format("the warm-up must end before the schedule does: at most {} = {}", end_name, end)});
  } else if (optim.schedule == "wsd" && optim.wsd_steps > end - optim.warmup_steps) {
    problems->push_back(
        {{"optim.wsd_steps", "optim.warmup_steps", "optim.decay_steps", "train.steps"},
         fmt::format("the final decay must fit after the warm-up: at most {}", end - optim.warmup_steps)});
  }
}

/// What `parse` says against a text; "" if nothing.
template <class Parse>
std::string complaint(const Parse& parse, const std::string& text) {
  try {
    parse(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void check_param_rules(const OptimConfig& optim, std::vector<Problem>* problems) {
  const auto pattern = [](const std::string& text) { NamePattern{text}; };
  const auto check_list = [&](const char* key, const std::vector<std::string>& texts, const auto& parse) {
    for (const std::string& text : texts) {
      const std::string wrong = complaint(parse, text);
      if (!wrong.empty()) problems->push_back({{key}, fmt::format("\"{}\": {}", text, wrong)});
    }
  };
  check_list("optim.lr_multipliers", optim.lr_multipliers, parse_lr_multiplier);
  check_list("optim.freeze", optim.freeze, pattern);
  if (optim.decay != "regex") return;
  if (optim.decay_regex.empty()) {
    problems->push_back({{"optim.decay_regex", "optim.decay"},
                         "decay = \"regex\" needs a regular expression, such as \"proj\""});
  } else if (const std::string wrong = complaint(pattern, optim.decay_regex); !wrong.empty()) {
    problems->push_back({{"optim.decay_regex"}, wrong});
  }
}

void check_profile(const Config& config, std::vector<Problem>* problems) {
  constexpr int64_t kMostSteps = 100;  // a trace that a browser can show
  const std::string& text = config.log.profile;
  if (text.empty() || text == "auto") return;
  const std::optional<StepRange> steps = parse_step_range(text);
  if (!steps) {
    problems->push_back({{"log.profile"}, "expected steps, such as \"10-12\" or \"10\", or \"auto\""});
  } else if (steps->first < 1 || steps->first > steps->last) {
    problems->push_back({{"log.profile"}, "expected a first step of at least 1, and a last step from it on"});
  } else if (steps->last > config.train.steps) {
    problems->push_back({{"log.profile", "train.steps"},
                         fmt::format("the last step is train.steps = {}", config.train.steps)});
  } else if (steps->last - steps->first >= kMostSteps) {
    problems->push_back(
        {{"log.profile"}, fmt::format("at most {} steps: a longer trace is too big to open", kMostSteps)});
  }
}

}  // namespace

std::vector<Problem> model_problems(const ModelConfig& model) {
  std::vector<Problem> problems;
  check_heads(model, &problems);
  if (has_sliding(model) && model.sliding_window == 0) {
    problems.push_back({{"model.sliding_window", "model.layer_types"},
                        "layer_types contains \"sliding\", so this must be 1 or more"});
  }
  if (model.position == "rope") check_rope(model, &problems);
  if (model.block != "sequential" && model.norm_placement != "pre") {
    problems.push_back({{"model.norm_placement", "model.block"},
                        fmt::format("block = \"{}\" goes with norm_placement = \"pre\"", model.block)});
  }
  return problems;
}

std::vector<Problem> config_problems(const Config& config) {
  std::vector<Problem> problems;
  const TrainConfig& train = config.train;
  if (train.spike_factor > 0 && train.spike_factor <= 1) {
    problems.push_back(
        {{"train.spike_factor"}, "expected 0 (off) or more than 1: ordinary steps would be spikes"});
  }
  check_batch_size(train, &problems);
  check_schedule(config, &problems);
  check_param_rules(config.optim, &problems);
  if (config.data.format == "tensor" && config.data.train.size() > 1) {
    problems.push_back({{"data.train"}, "format = \"tensor\" reads one safetensors file"});
  }
  if (config.data.format == "mock" && config.log.bigram_baseline) {
    problems.push_back({{"log.bigram_baseline", "data.format"}, "\"mock\" data has nothing for it to learn"});
  }
  std::set<std::filesystem::path> valid;
  for (const std::string& path : config.data.valid) {
    if (!valid.insert(std::filesystem::path(path).lexically_normal()).second) {
      problems.push_back({{"data.valid"}, fmt::format("\"{}\" is listed more than once", path)});
    }
  }
  check_profile(config, &problems);
  if (config.parallel.dp_shard == 0) {
    problems.push_back({{"parallel.dp_shard"}, "expected a number of ranks, or -1 for all that are left"});
  }
  if (config.parallel.gradient_sync == "each" && config.parallel.zero < 2) {
    problems.push_back({{"parallel.gradient_sync", "parallel.zero"},
                        "zero = 0 and 1 keep whole gradients, so reducing them once a step, \"last\", is all "
                        "there is"});
  }
  if (config.log.run_dir.empty()) problems.push_back({{"log.run_dir"}, "expected a directory"});
  return problems;
}

void check_tensor_parallel(const ModelConfig& model, int64_t tp) {
  if (divides_among(model, tp)) return;
  std::vector<int64_t> fitting;
  for (int64_t size = 1; size <= model.n_heads; ++size)
    if (divides_among(model, size)) fitting.push_back(size);
  fail(
      "parallel.tp = {} does not divide the model: it must divide n_heads = {} and ffn_dim = {}, and divide, "
      "or "
      "be a multiple of, n_kv_heads = {}: {} would work",
      tp, model.n_heads, model.ffn_dim, model.n_kv_heads, fmt::join(fitting, ", "));
}

std::vector<std::string> shape_problems(const ModelConfig& model) {
  Config config;
  config.model = model;
  std::vector<std::string> texts;
  const auto report = [&](const std::string& name, const std::string& text) {
    const Key& key = *find_key(name);
    texts.push_back(fmt::format("{} = {}: {}", key.short_name(), toml_text(key.member(config)), text));
  };
  for (const auto& key : config_keys()) {
    if (key.section() != "model") continue;
    if (const std::string text = violation(key, key.member(config)); !text.empty()) report(key.name, text);
  }
  if (!texts.empty()) return texts;
  for (const auto& problem : model_problems(model)) report(problem.keys.front(), problem.text);
  return texts;
}

void check_for_training(const Config& config) {
  std::vector<std::string> problems;
  if (config.data.train.empty() && config.data.format != "mock") {
    problems.push_back("data.train is empty: name what to train on (`weft data build` makes it from text)");
  }
  if (config.data.format == "indexed" && config.model.vocab_size == 0 && config.data.tokenizer.empty() &&
      config.model.from_hf.empty()) {
    problems.push_back(
        "model.vocab_size is 0 and there is no data.tokenizer to take it from: set one of them");
  }
  if (config.data.format != "indexed" && config.model.vocab_size == 0 && config.model.from_hf.empty()) {
    problems.push_back(
        fmt::format("model.vocab_size is 0: data.format = \"{}\" needs it", config.data.format));
  }
  if (config.model.position == "learned" && config.model.max_positions < config.train.seq_len) {
    problems.push_back(
        fmt::format("train.seq_len = {}, but the model has learned positions for {} tokens only "
                    "(model.max_positions): make train.seq_len smaller",
                    config.train.seq_len, config.model.max_positions));
  }
  if (problems.empty()) return;
  fail("this config cannot train:\n  {}", fmt::join(problems, "\n  "));
}

}  // namespace weft
