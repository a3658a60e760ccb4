#include "weft/train/trainer.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/checkpoint/hf_weights.h"
#include "weft/data/bigram.h"
#include "weft/ops/cross_entropy.h"
#include "weft/optim/schedule.h"
#include "weft/train/flops.h"
#include "weft/train/generate_text.h"
#include "weft/train/process.h"
#include "weft/train/summary.h"

namespace weft {
namespace {

std::string checkpoint_root(const Config& config) { return config.log.run_dir + "/checkpoints"; }

// vocab_size = 0 means the tokenizer's; a smaller one than the tokenizer's cannot embed its tokens.
void settle_vocabulary(Config* config, const Tokenizer* tokenizer) {
  int64_t& vocab = config->model.vocab_size;
  if (vocab == 0 && !tokenizer)
    fail("model.vocab_size is not set and there is no data.tokenizer to take it from: set one of them");
  if (vocab == 0) vocab = tokenizer->vocab_size();
  if (tokenizer && vocab < tokenizer->vocab_size())
    fail("model.vocab_size = {} is smaller than the vocabulary of {} ({}): raise it, or leave it out", vocab,
         config->data.tokenizer, tokenizer->vocab_size());
}

// "section.key" to value, of a config as to_toml writes it.
std::map<std::string, std::string> keys_of(const std::string& toml) {
  std::map<std::string, std::string> keys;
  std::istringstream lines(toml);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (line.starts_with('[')) section = line.substr(1, line.find(']') - 1) + ".";
    if (equals != std::string::npos) keys[section + line.substr(0, equals)] = line.substr(equals + 3);
  }
  return keys;
}

}  // namespace

Trainer::Trainer(Config config, Env& env) : config_(std::move(config)), env_(env), guard_(config_.train) {
  if (!config_.data.tokenizer.empty())
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(config_.data.tokenizer, env_));
  settle_vocabulary(&config_, tokenizer_.get());
  train_data_ = open_train(config_);
  valid_data_ = open_valid(config_);
  batch_options_ = {.seq_len = config_.train.seq_len, .micro_batch = config_.train.micro_batch};
  if (config_.data.document_mask && config_.data.format == "indexed") {
    batch_options_.separator = tokenizer_ ? tokenizer_->eos_id().value_or(-1) : -1;
    if (batch_options_.separator < 0)
      warn(
          "data.document_mask has no effect: without a data.tokenizer that has <|endoftext|>, documents "
          "cannot "
          "be told apart");
  }

  decoder_ = std::make_unique<Decoder>(config_.model, compute_dtype(config_.precision));
  optimizer_ = std::make_unique<AdamW>(config_.optim, decoder_->units());

  env_.create_dirs(config_.log.run_dir);
  lock_ = std::make_unique<RunLock>(config_.log.run_dir);
  check_room_for_checkpoint();
  resume();
  write_file_atomically(env_, config_.log.run_dir + "/config.toml", to_toml(config_));
  if (tokenizer_)
    write_file_atomically(env_, config_.log.run_dir + "/tokenizer.json", env_.read(config_.data.tokenizer));
  log_ = std::make_unique<RunLog>(env_, config_, step_, [this](const std::string& text) { warn(text); });
  flops_per_token_ = model_flops_per_token(*decoder_, config_.train.seq_len);
  peak_flops_ = gemm_peak(env_, decoder_->units().front()->dtype());
  say(fmt::format(
      "{} parameters, {} layers, vocabulary {}; {} training sequences of {} tokens{}; {} threads, GEMM peak "
      "{}FLOP/s",
      short_count(double(decoder_->numel())), config_.model.n_layers, config_.model.vocab_size,
      train_data_->size(), config_.train.seq_len,
      valid_data_ ? fmt::format(", {} for validation", valid_data_->size()) : std::string(),
      at::get_num_threads(), short_count(peak_flops_)));
}

void Trainer::say(const std::string& text) {
  status_.finish();
  std::fputs((text + "\n").c_str(), stdout);  // not fmt::print, which throws when nobody reads any more
  std::fflush(stdout);
}

void Trainer::warn(const std::string& text) {
  status_.finish();
  std::fputs(("weft: warning: " + text + "\n").c_str(), stderr);
}

void Trainer::check_room_for_checkpoint() const {
  const int64_t needed = 3 * decoder_->numel() * decoder_->units().front()->weights().element_size();
  const int64_t room = writable_bytes(config_.log.run_dir);
  if (room < needed)
    fail(
        "{}: a checkpoint takes {}B and only {}B can be written there (free space, or the file size limit): "
        "free some, "
        "or choose another log.run_dir",
        config_.log.run_dir, short_count(double(needed)), short_count(double(room)));
}

std::vector<StateTensor> Trainer::state_tensors() const {
  std::vector<StateTensor> tensors;
  for (const Param* param : decoder_->params()) {
    tensors.push_back({kWeight, param, param->weight()});
    tensors.push_back({"exp_avg", param, optimizer_->exp_avg(*param)});
    tensors.push_back({"exp_avg_sq", param, optimizer_->exp_avg_sq(*param)});
  }
  return tensors;
}

void Trainer::resume() {
  std::optional<Checkpoint> checkpoint;
  if (!config_.checkpoint.resume && !env_.list(checkpoint_root(config_)).empty())
    fail(
        "{} holds checkpoints of an earlier run, and checkpoint.resume is false: choose another log.run_dir, "
        "or remove "
        "them",
        checkpoint_root(config_));
  if (config_.checkpoint.resume)
    checkpoint =
        find_checkpoint(env_, checkpoint_root(config_), [&](const std::string& warning) { warn(warning); });
  if (!checkpoint) {
    if (config_.model.from_hf.empty())
      decoder_->initialise(uint64_t(config_.train.seed));
    else
      load_hf_weights(env_, config_.model.from_hf, decoder_->params());
    return;
  }
  load_checkpoint(env_, *checkpoint, state_tensors());
  step_ = saved_step_ = checkpoint->step;
  updates_ = checkpoint->state.at("updates").get<int64_t>();
  tokens_ = checkpoint->state.at("tokens").get<int64_t>();
  samples_ = checkpoint->state.at("samples").get<int64_t>();
  guard_.restore(checkpoint->state.at("guard"));
  warn_of_changes(checkpoint->state.at("config").get<std::string>());
  say(fmt::format("resuming after step {} from {}", step_, checkpoint->dir));
}

void Trainer::warn_of_changes(const std::string& saved_config) {
  const auto before = keys_of(saved_config), now = keys_of(to_toml(config_));
  for (const auto& [key, value] : now)
    if (const auto old = before.find(key); old != before.end() && old->second != value)
      warn(fmt::format("the checkpoint was made with {} = {}; the run goes on with {}", key, old->second,
                       value));
}

void Trainer::save() {
  const nlohmann::json state = {{"updates", updates_},
                                {"samples", samples_},
                                {"tokens", tokens_},
                                {"guard", guard_.state()},
                                {"config", to_toml(config_)}};
  save_checkpoint(env_, checkpoint_root(config_), step_, state, state_tensors(),
                  config_.checkpoint.keep_last);
  saved_step_ = step_;
}

void Trainer::or_warn(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    warn(error.what());
  }
}

Trainer::StepResult Trainer::train_step() {
  StepResult result;
  const auto batches = make_micro_batches(*train_data_, samples_, config_.train.global_batch, batch_options_);
  result.targets = count_targets(batches);
  result.lr = learning_rate(config_.optim, updates_ + 1);
  if (result.targets == 0) {
    result.problem = "the batch has no targets";
    return result;
  }
  decoder_->zero_grad();
  const CrossEntropyOptions loss{.z_loss = config_.train.z_loss, .chunk = config_.memory.loss_chunk};
  for (const MicroBatch& batch : batches)
    result.loss += decoder_->forward_backward(batch, 1.0 / double(result.targets), loss,
                                              uint64_t(config_.train.seed), step_ + 1);
  result.grad_norm = gradient_norm(decoder_->units());
  result.problem = guard_.check(result.loss, result.grad_norm);
  if (!result.problem.empty()) return result;
  optimizer_->step(updates_ + 1, result.lr, clip_coefficient(result.grad_norm, config_.optim.clip_norm));
  ++updates_;
  return result;
}

int64_t Trainer::eval_sequences() const {
  const int64_t asked = config_.train.eval_sequences;
  return asked > 0 ? std::min(asked, valid_data_->size()) : valid_data_->size();
}

double Trainer::evaluate() {
  const int64_t sequences = eval_sequences();
  double sum = 0;
  int64_t targets = 0;
  for (int64_t done = 0; done < sequences; done += config_.train.micro_batch) {
    const int64_t count = std::min(config_.train.micro_batch, sequences - done);
    const auto batches = make_micro_batches(*valid_data_, done, count, batch_options_);
    for (const MicroBatch& batch : batches) sum += decoder_->loss(batch, 1.0, config_.memory.loss_chunk);
    targets += count_targets(batches);
  }
  return targets > 0 ? sum / double(targets) : 0;
}

double Trainer::baseline() {
  if (!baseline_) {
    std::vector<std::vector<int64_t>> windows;
    for (int64_t i = 0; i < eval_sequences(); ++i) {
      windows.emplace_back(size_t(config_.train.seq_len) + 1);
      valid_data_->read(i, windows.back());
    }
    baseline_ = bigram_loss(*train_data_, config_.train.seq_len, windows, config_.model.vocab_size).nats;
  }
  return *baseline_;
}

void Trainer::handle_bad_step(const StepResult& result) {
  const std::string what = fmt::format("step {}: {}", step_ + 1, result.problem);
  if (result.targets > 0 && config_.train.on_bad_step == "stop")
    fail("{}; stopped before the update (train.on_bad_step = \"stop\")", what);
  if (guard_.consecutive_bad() > config_.train.max_skips)
    fail(
        "{}; {} steps in a row could not be applied (train.max_skips = {}): lower optim.lr, or look at the "
        "data",
        what, guard_.consecutive_bad(), config_.train.max_skips);
  say(fmt::format("{}: the update is skipped", what));
}

void Trainer::report(const StepResult& result, double seconds, double valid_loss) {
  const int64_t step_tokens = config_.train.global_batch * config_.train.seq_len;
  const double rate = double(step_tokens) / seconds, mfu = rate * flops_per_token_ / peak_flops_;
  nlohmann::ordered_json line = {{"step", step_},
                                 {"loss", result.loss},
                                 {"grad_norm", result.grad_norm},
                                 {"lr", result.lr},
                                 {"tokens", tokens_},
                                 {"targets", result.targets},
                                 {"tokens_per_s", rate},
                                 {"step_s", seconds},
                                 {"tflops", rate * flops_per_token_ / 1e12},
                                 {"mfu", mfu},
                                 {"rss_mb", double(resident_bytes()) / 1e6}};
  if (!result.problem.empty()) line["skipped"] = result.problem;
  if (!std::isnan(valid_loss)) line["valid_loss"] = valid_loss;
  if (!std::isnan(valid_loss) && baseline_) line["baseline"] = *baseline_;
  log_->metrics(line);

  mean_step_seconds_ = mean_step_seconds_ == 0 ? seconds : 0.9 * mean_step_seconds_ + 0.1 * seconds;
  if (!shows_status()) return;
  status_.update(
      fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  grad norm {:.3g}  {} tok/s  MFU {:.0f}%  {:.0f} MB  "
                  "ETA {}",
                  step_, config_.train.steps, result.loss, result.lr, result.grad_norm, short_count(rate),
                  100 * mfu, line["rss_mb"].get<double>(),
                  short_duration(mean_step_seconds_ * double(config_.train.steps - step_))));
}

bool Trainer::shows_status() {
  if (step_ == config_.train.steps) return true;
  if (step_ % config_.log.every != 0) return false;
  // In a pipe every update is a line: one in five seconds tells enough, metrics.jsonl has them all.
  const auto now = std::chrono::steady_clock::now();
  if (!status_.on_terminal() && now - last_status_ < std::chrono::seconds(5)) return false;
  last_status_ = now;
  return true;
}

double Trainer::evaluate_if_due() {
  const int64_t eval_every = config_.train.eval_every;
  const bool due = step_ == config_.train.steps || (eval_every > 0 && step_ % eval_every == 0);
  if (!valid_data_ || !due) return std::nan("");
  const double loss = evaluate();
  std::string text = fmt::format("step {}  validation loss {:.4f}", step_, loss);
  if (config_.log.bigram_baseline)
    text += fmt::format("  (interpolated bigram {:.4f}: {:+.4f})", baseline(), loss - baseline());
  say(text);
  return loss;
}

void Trainer::sample_if_due() {
  const int64_t every = config_.log.sample_every;
  if (!tokenizer_ || !(step_ == config_.train.steps || (every > 0 && step_ % every == 0))) return;
  // The same draws at every step: texts differ only by what the model has learnt.
  const SamplingOptions options{.temperature = 0.7, .top_p = 0.9, .seed = uint64_t(config_.train.seed)};
  const bool opens_documents = batch_options_.separator >= 0;
  for (size_t i = 0; i < config_.log.sample_prompts.size(); ++i) {
    const std::string& prompt = config_.log.sample_prompts[i];
    or_warn([&] {
      std::string text;
      generate_text(*decoder_, *tokenizer_, prompt_tokens(*tokenizer_, prompt, opens_documents),
                    config_.log.sample_tokens, options, [&](const std::string& piece) { text += piece; });
      log_->sample(step_, i, prompt, text);
      say(fmt::format("step {}  sample: {}", step_, one_line(prompt + text, 160)));
    });
  }
}

Trainer::StepResult Trainer::train_step_or_save() {
  try {
    const StepResult result = train_step();
    if (!result.problem.empty()) handle_bad_step(result);
    return result;
  } catch (const Error&) {
    // The update comes last in a step, so the weights still are those of the step before: they are worth
    // keeping.
    if (step_ > saved_step_) or_warn([&] { save(); });
    throw;
  }
}

bool Trainer::run() {
  if (step_ >= config_.train.steps)
    say(fmt::format("step {} of {} is done already", step_, config_.train.steps));
  while (step_ < config_.train.steps && !stop_requested()) {
    const auto begin = std::chrono::steady_clock::now();
    const StepResult result = train_step_or_save();
    ++step_;
    samples_ += config_.train.global_batch;
    tokens_ += config_.train.global_batch * config_.train.seq_len;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report(result, seconds, evaluate_if_due());
    sample_if_due();
    const int64_t save_every = config_.checkpoint.save_every;
    if (save_every > 0 && step_ % save_every == 0) or_warn([&] { save(); });
  }
  const bool done = step_ >= config_.train.steps;
  if (step_ > saved_step_ && (!done || config_.checkpoint.save_final)) save();
  status_.finish();
  if (!done)
    say(fmt::format("stopped after step {}, saved in {}: the same command continues", step_,
                    checkpoint_root(config_)));
  finish();
  return done;
}

void Trainer::finish() {
  // A baseline that no evaluation has asked for yet is not worth a pass over the data after Ctrl-C.
  if (config_.log.plot)
    or_warn([&] {
      write_summary(env_, config_, read_step_log(env_, metrics_path(config_.log.run_dir), step_), baseline_);
    });
}

}  // namespace weft
