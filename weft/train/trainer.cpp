#include "weft/train/trainer.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include <unistd.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "weft/base/batch_ramp.h"
#include "weft/base/error.h"
#include "weft/base/trace.h"
#include "weft/checkpoint/hf_weights.h"
#include "weft/comm/dropped_sum.h"
#include "weft/comm/together.h"
#include "weft/data/bigram.h"
#include "weft/ops/cross_entropy.h"
#include "weft/optim/schedule.h"
#include "weft/optim/update_rule.h"
#include "weft/parallel/partial_gradients.h"
#include "weft/report/loss_plot.h"
#include "weft/report/profile.h"
#include "weft/report/report.h"
#include "weft/report/trace_file.h"
#include "weft/train/flops.h"
#include "weft/train/generate_text.h"
#include "weft/train/process.h"

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

// ", 1.2k of them trainable", if some are frozen.
std::string trainable_part(const Decoder& decoder) {
  int64_t trainable = 0;
  for (const Param* param : decoder.params()) trainable += param->trainable() ? param->global_numel() : 0;
  if (trainable == decoder.numel()) return {};
  return fmt::format(", {} of them trainable", short_count(double(trainable)));
}

}  // namespace

Trainer::Trainer(Config config, Env& env, MeshGroups& groups)
    : config_(std::move(config)),
      env_(env),
      groups_(groups),
      guard_(config_.train),
      early_stop_(config_.train) {
  if (!config_.data.tokenizer.empty())
    tokenizer_ = std::make_unique<Tokenizer>(Tokenizer::load(config_.data.tokenizer, env_));
  settle_vocabulary(&config_, tokenizer_.get());
  train_data_ = open_train(config_);
  std::vector<ValidationSource> valid_data = open_valid(config_);
  Group& data_group = groups_.get(kDataAxes);
  batch_options_ = {.seq_len = config_.train.seq_len,
                    .micro_batch = config_.train.micro_batch,
                    .data_rank = data_group.rank(),
                    .data_ranks = data_group.size()};
  if (config_.data.format == "mock") batch_options_.separator = config_.data.document_mask ? 0 : -1;
  if (config_.data.document_mask && config_.data.format == "indexed") {
    batch_options_.separator = tokenizer_ ? tokenizer_->eos_id().value_or(-1) : -1;
    if (batch_options_.separator < 0)
      warn(
          "data.document_mask has no effect: without a data.tokenizer that has <|endoftext|>, documents "
          "cannot be told apart");
  }

  evaluator_ = std::make_unique<Evaluator>(config_, std::move(valid_data), batch_options_, groups_);
  decoder_ =
      std::make_unique<Decoder>(config_.model, dtypes_of(config_.precision), config_.parallel, groups_);
  if (config_.memory.recompute == "block") decoder_->recompute_blocks();
  set_update_rules(config_.optim, decoder_->params());
  optimizer_ = std::make_unique<AdamW>(config_.optim, decoder_->units());
  if (config_.optim.ema_decay > 0)
    average_ = std::make_unique<WeightAverage>(config_.optim.ema_decay, decoder_->units());

  on_first(groups_.all(), [&] {
    env_.create_dirs(config_.log.run_dir);
    lock_ = std::make_unique<RunLock>(config_.log.run_dir);
  });
  check_room_for_checkpoint();
  resume();
  on_first(groups_.all(), [&] {
    write_file_atomically(env_, config_.log.run_dir + "/config.toml", to_toml(config_));
    if (tokenizer_)
      write_file_atomically(env_, config_.log.run_dir + "/tokenizer.json", env_.read(config_.data.tokenizer));
    log_ = std::make_unique<RunLog>(env_, config_, step_, [this](const std::string& text) { warn(text); });
  });
  flops_per_token_ = model_flops_per_token(*decoder_, config_.train.seq_len);
  peak_flops_ = all_reduce(groups_.all(), {gemm_peak(env_, dtypes_of(config_.precision).compute)}).front();
  say(fmt::format(
      "{} parameters{}, {} layers, vocabulary {}; {} training sequences of {} tokens{}; {}{} threads, GEMM "
      "peak {}FLOP/s",
      short_count(double(decoder_->numel())), trainable_part(*decoder_), config_.model.n_layers,
      config_.model.vocab_size, train_data_->size(), config_.train.seq_len,
      evaluator_->has_data() ? fmt::format(", {} for validation", evaluator_->available()) : std::string(),
      groups_.all().size() > 1 ? fmt::format("{} ranks, each ", groups_.all().size()) : std::string(),
      at::get_num_threads(), short_count(peak_flops_)));
}

void Trainer::say(const std::string& text) {
  if (!is_first()) return;
  status_.finish();
  std::fputs((text + "\n").c_str(), stdout);  // not fmt::print, which throws when nobody reads any more
  std::fflush(stdout);
}

void Trainer::warn(const std::string& text) {
  if (!is_first()) return;
  status_.finish();
  std::fputs(("weft: warning: " + text + "\n").c_str(), stderr);
}

void Trainer::check_room_for_checkpoint() {
  double own = 0;
  for (const StateTensor& tensor : state_tensors(/*to_save=*/true)) own += double(tensor.data.nbytes());
  const double all = all_reduce(groups_.all(), {own}).front();
  together(groups_.all(), [&] {
    const auto check = [&](const char* what, double needed, int64_t room, const char* limit) {
      if (double(room) < needed)
        fail(
            "{}: {} takes {}B and only {}B can be written there ({}): free some, or choose another "
            "log.run_dir",
            config_.log.run_dir, what, short_count(needed), short_count(double(room)), limit);
    };
    check("a checkpoint", all, free_bytes(config_.log.run_dir), "free space");
    check("a file of a checkpoint", own, file_size_limit(), "the process's file size limit, ulimit -f");
  });
}

std::vector<StateTensor> Trainer::state_tensors(bool to_save) const {
  std::vector<StateTensor> tensors;
  for (const auto& unit : decoder_->units()) {
    const Shard& shard = unit->shard();
    const auto [first, last] =
        to_save ? decoder_->data_parallel().saved_range(*unit) : std::pair(shard.begin, shard.end());
    unit->for_params_in(first, last, [&](const Param& param, int64_t begin, int64_t end) {
      if (to_save && !param.is_first_copy()) return;
      const auto enter = [&](const char* kind, const at::Tensor& flat) {
        tensors.push_back({kind, &param, begin, shard.part_of(flat, param, begin, end)});
      };
      enter(kWeight, shard.master);
      if (average_) enter(kAverage, average_->of(*unit));
      if (!param.trainable()) return;
      enter("exp_avg", optimizer_->exp_avg(*unit));
      enter("exp_avg_sq", optimizer_->exp_avg_sq(*unit));
    });
  }
  return tensors;
}

void Trainer::load(const Checkpoint& checkpoint) {
  // The checkpoint may have been made with another optim.freeze or ema_decay: what it lacks starts afresh.
  std::vector<StateTensor> tensors = state_tensors(/*to_save=*/false);
  bool no_moments = false, no_average = false;
  std::erase_if(tensors, [&](const StateTensor& tensor) {
    if (tensor.kind == kWeight || checkpoint.find(tensor.kind, tensor.param->name())) return false;
    (tensor.kind == kAverage ? no_average : no_moments) = true;
    return true;
  });
  together(groups_.all(), [&] { load_checkpoint(env_, checkpoint, tensors); });
  decoder_->data_parallel().publish();
  if (no_moments)
    warn(fmt::format("{} has no optimizer state of some parameters: theirs starts at zero", checkpoint.dir));
  if (!no_average) return;
  warn(fmt::format("{} has no average of the weights: it starts from them", checkpoint.dir));
  average_->start();
}

void Trainer::resume() {
  std::optional<Checkpoint> checkpoint;
  if (!config_.checkpoint.resume && !env_.list(checkpoint_root(config_)).empty())
    fail(
        "{} holds checkpoints of an earlier run, and checkpoint.resume is false: choose another log.run_dir, "
        "or remove them",
        checkpoint_root(config_));
  if (config_.checkpoint.resume)
    checkpoint = find_checkpoint(
        env_, checkpoint_root(config_), [&](const std::string& warning) { warn(warning); }, groups_.all());
  if (!checkpoint) {
    if (config_.model.from_hf.empty()) {
      decoder_->initialise(uint64_t(config_.train.seed));
    } else {
      together(groups_.all(), [&] {
        load_hf_weights(env_, config_.model.from_hf, HfNames(read_hf_model(env_, config_.model.from_hf)),
                        decoder_->params());
      });
      decoder_->data_parallel().publish();
    }
    if (average_) average_->start();
    return;
  }
  load(*checkpoint);
  step_ = saved_step_ = checkpoint->step;
  updates_ = checkpoint->state.at("updates").get<int64_t>();
  tokens_ = checkpoint->state.at("tokens").get<int64_t>();
  samples_ = checkpoint->state.at("samples").get<int64_t>();
  guard_.restore(checkpoint->state.at("guard"));
  if (checkpoint->state.contains("early_stop")) early_stop_.restore(checkpoint->state.at("early_stop"));
  warn_of_changes(checkpoint->state.at("config").get<std::string>());
  say(fmt::format("resuming after step {} from {}", step_, checkpoint->dir));
}

void Trainer::warn_of_changes(const std::string& saved_config) {
  const auto saved = toml_values(saved_config);
  const std::map<std::string, std::string> before(saved.begin(), saved.end());
  for (const auto& [key, value] : toml_values(to_toml(config_)))
    if (const auto old = before.find(key);
        old != before.end() && old->second != value && key != "log.profile")
      warn(fmt::format("the checkpoint was made with {} = {}; the run goes on with {}", key, old->second,
                       value));
}

void Trainer::save() {
  const Span span(SpanLevel::phase, "checkpoint", SpanKind::checkpoint);
  const nlohmann::json state = {{"updates", updates_},
                                {"samples", samples_},
                                {"tokens", tokens_},
                                {"guard", guard_.state()},
                                {"early_stop", early_stop_.state()},
                                {"config", to_toml(config_)}};
  save_checkpoint(env_, checkpoint_root(config_), step_, state, state_tensors(/*to_save=*/true),
                  config_.checkpoint.keep_last, groups_.all());
  saved_step_ = step_;
}

void Trainer::or_warn(const std::function<void()>& write) {
  try {
    write();
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    warn(error.what());
  }
}

Trainer::StepResult Trainer::train_step() {
  StepResult result;
  result.sequences = global_batch_at(config_.train, samples_);
  Group& data_group = groups_.get(kDataAxes);
  std::vector<MicroBatch> batches;
  together(groups_.all(),
           [&] { batches = make_micro_batches(*train_data_, samples_, result.sequences, batch_options_); });
  const auto sum = [&](double value, const char* name) {
    return dropped(name) ? value : all_reduce(data_group, {value}).front();
  };
  result.targets = int64_t(sum(double(count_targets(batches)), "targets over data ranks"));
  result.lr = learning_rate(config_.optim, updates_ + 1);
  result.weight_decay = weight_decay(config_.optim, config_.train.steps, updates_ + 1);
  if (result.targets == 0) {
    result.problem = "the batch has no targets";
    return result;
  }
  DataParallel& data_parallel = decoder_->data_parallel();
  data_parallel.zero_grad();
  const CrossEntropyOptions loss{.z_loss = config_.train.z_loss, .chunk = config_.memory.loss_chunk};
  for (const MicroBatch& batch : batches)
    result.loss +=
        decoder_->forward_backward(batch, 1.0 / double(result.targets), loss, uint64_t(config_.train.seed),
                                   step_ + 1, &batch == &batches.back());
  data_parallel.finish_reductions();
  sum_partial_gradients(decoder_->units(), groups_);
  result.loss = sum(result.loss, "loss over data ranks");
  result.grad_norm = std::sqrt(data_parallel.sum_over_shards(gradient_square_sum(decoder_->units())));
  result.problem = guard_.check(result.loss, result.grad_norm);
  if (!result.problem.empty()) return result;
  optimizer_->step({.t = updates_ + 1,
                    .lr = result.lr,
                    .weight_decay = result.weight_decay,
                    .gradient_scale = clip_coefficient(result.grad_norm, config_.optim.clip_norm)});
  if (average_) average_->update();
  data_parallel.publish();
  guard_.applied(result.grad_norm);
  ++updates_;
  return result;
}

double Trainer::baseline() {
  if (!baseline_)
    baseline_ =
        bigram_loss(*train_data_, config_.train.seq_len, evaluator_->windows(), config_.model.vocab_size)
            .nats;
  return *baseline_;
}

void Trainer::handle_bad_step(const StepResult& result) {
  const std::string what = fmt::format("step {}: {}", step_ + 1, result.problem);
  if (result.targets > 0) {
    if (config_.train.on_bad_step == "stop")
      fail("{}; stopped before the update (train.on_bad_step = \"stop\")", what);
    if (guard_.consecutive_bad() >= config_.train.max_skips)
      fail(
          "{}; {} steps in a row could not be applied (train.max_skips = {}): lower optim.lr, or look at the "
          "data",
          what, guard_.consecutive_bad() + 1, config_.train.max_skips);
    guard_.skipped();
  }
  say(fmt::format("{}: the update is skipped", what));
}

void Trainer::report(const StepResult& result, double seconds, const std::optional<Evaluation>& evaluation) {
  if (!is_first()) return;
  const Span span(SpanLevel::phase, "log");
  const int64_t step_tokens = result.sequences * config_.train.seq_len;
  const double rate = double(step_tokens) / seconds, mfu = rate * flops_per_token_ / peak_flops_;
  nlohmann::ordered_json line = {{"step", step_},
                                 {"loss", result.loss},
                                 {"grad_norm", result.grad_norm},
                                 {"lr", result.lr},
                                 {"global_batch", result.sequences},
                                 {"tokens", tokens_},
                                 {"targets", result.targets},
                                 {"tokens_per_s", rate},
                                 {"step_s", seconds},
                                 {"tflops", rate * flops_per_token_ / 1e12},
                                 {"mfu", mfu},
                                 {"rss_mb", double(resident_bytes()) / 1e6}};
  if (!result.problem.empty()) line["skipped"] = result.problem;
  double comm_seconds = 0;
  for (const auto& [place, total] : comm_) {
    line[fmt::format("comm_bytes/{}/{}", place.first, place.second)] = total.bytes;
    comm_seconds += total.seconds;
  }
  if (groups_.all().size() > 1) line["comm_s"] = comm_seconds;
  if (config_.optim.weight_decay_schedule != "constant") line["weight_decay"] = result.weight_decay;
  if (evaluation) {
    line["valid_loss"] = evaluation->loss;
    if (baseline_) line["baseline"] = *baseline_;
    for (const auto& [name, loss] : evaluation->sources) line["valid_loss/" + name] = loss;
    if (evaluation->ema_loss) line["valid_loss_ema"] = *evaluation->ema_loss;
    if (early_stop_.due()) line["early_stop"] = early_stop_.reason();
  }
  log_->metrics(line);

  const double each = seconds / double(result.sequences);
  mean_sequence_seconds_ = mean_sequence_seconds_ == 0 ? each : 0.9 * mean_sequence_seconds_ + 0.1 * each;
  if (!shows_status()) return;
  const uint64_t end = samples_after(config_.train, samples_, config_.train.steps - step_);
  // A narrow terminal cuts the end off.
  status_.update(fmt::format(
      "step {}/{}  loss {:.4f}  ETA {}  {} tok/s  {:.0f} MB  MFU {:.0f}%  lr {:.2e}  grad norm {:.3g}", step_,
      config_.train.steps, result.loss,
      short_duration(mean_sequence_seconds_ * double(end - uint64_t(samples_))), short_count(rate),
      line["rss_mb"].get<double>(), 100 * mfu, result.lr, result.grad_norm));
}

bool Trainer::must_stop() {
  return all_reduce(groups_.all(), {double(stop_requested())}, ReduceOp::max).front() > 0;
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

std::optional<Evaluation> Trainer::evaluate_if_due() {
  const int64_t eval_every = config_.train.eval_every;
  const bool regular = eval_every > 0 && step_ % eval_every == 0;
  if (!evaluator_->has_data() || !(regular || step_ == config_.train.steps)) return std::nullopt;
  const Span span(SpanLevel::phase, "evaluation", SpanKind::evaluation);
  const Evaluation evaluation = evaluator_->evaluate(*decoder_, average_.get());
  if (regular)
    early_stop_.enter(step_, evaluation.loss);  // the last step's, if it is extra, depends on train.steps
  std::string text = fmt::format("step {}  {}", step_, to_string(evaluation));
  if (config_.log.bigram_baseline && is_first())
    text += fmt::format("  (interpolated bigram {:.4f}: {:+.4f})", baseline(), evaluation.loss - baseline());
  say(text);
  return evaluation;
}

void Trainer::sample_if_due() {
  const int64_t every = config_.log.sample_every;
  const bool last = step_ == config_.train.steps || early_stop_.due();
  if (!tokenizer_ || !(last || (every > 0 && step_ % every == 0))) return;
  const Span span(SpanLevel::phase, "sampling", SpanKind::sampling);
  // The same draws at every step: texts differ only by what the model has learnt.
  const SamplingOptions options{.temperature = 0.7, .top_p = 0.9, .seed = uint64_t(config_.train.seed)};
  const bool opens_documents = batch_options_.separator >= 0;
  for (size_t i = 0; i < config_.log.sample_prompts.size(); ++i) {
    const std::string& prompt = config_.log.sample_prompts[i];
    const auto sample = [&] {
      const std::vector<int64_t> tokens = prompt_tokens(*tokenizer_, prompt, opens_documents);
      std::string text;
      generate_text(*decoder_, *tokenizer_, tokens, config_.log.sample_tokens, options,
                    [&](const std::string& piece) { text += piece; });
      if (log_) log_->sample(step_, i, prompt, text);
      say(fmt::format("step {}  sample: {}", step_, one_line(prompt + text, 160)));
    };
    try {
      sample();
    } catch (const CommError&) {  // the ranks are out of step
      throw;
    } catch (const Error& error) {
      warn(
          fmt::format("no sample after \"{}\" (log.sample_prompts): {}", one_line(prompt, 40), error.what()));
    }
  }
}

bool Trainer::iterate_or_save() {
  try {
    return iterate();
  } catch (const Error& error) {
    // The update comes last in a step, so the weights are those of a whole step: they are worth keeping. But
    // there is no checkpoint without the other ranks.
    const bool all_fail = groups_.all().size() == 1 || dynamic_cast<const JointError*>(&error);
    if (all_fail && step_ > saved_step_) or_warn([&] { save(); });
    throw;
  }
}

bool Trainer::iterate() {
  const Span span(SpanLevel::phase, "step", {.index = step_ + 1});
  const auto begin = std::chrono::steady_clock::now();
  const CommTotals before = World::totals();
  const StepResult result = train_step();
  comm_ = World::totals() - before;
  if (!result.problem.empty()) together(groups_.all(), [&] { handle_bad_step(result); });
  ++step_;
  samples_ += result.sequences;
  tokens_ += result.sequences * config_.train.seq_len;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::optional<Evaluation> evaluation;
  try {
    evaluation = evaluate_if_due();
  } catch (const Error&) {
    report(result, seconds, {});  // the step is done
    throw;
  }
  report(result, seconds, evaluation);
  sample_if_due();
  if (const int64_t every = config_.parallel.check_replicas; every > 0 && step_ % every == 0)
    together(groups_.all(), [&] { decoder_->data_parallel().check_replicas(); });
  const int64_t save_every = config_.checkpoint.save_every;
  if (save_every > 0 && step_ % save_every == 0) or_warn([&] { save(); });
  return evaluation || step_ == saved_step_;
}

bool Trainer::run() {
  if (step_ >= config_.train.steps)
    say(fmt::format("step {} of {} is done already", step_, config_.train.steps));
  Trace::global().restart();
  Config profiled = config_;
  if (!is_first()) profiled.log.profile.clear();
  Profile profile(env_, profiled, step_, peak_flops_, [this](const std::string& text) { say(text); });
  const int64_t first = step_;
  const auto write_op_times = [&] {
    if (!is_first()) return;
    const std::string text = op_times_json(step_ - first, Trace::global().totals());
    or_warn([&] { write_file_atomically(env_, config_.log.run_dir + "/op_times.json", text); });
  };
  while (step_ < config_.train.steps && !early_stop_.due() && !must_stop()) {
    profile.before_step(step_ + 1);
    const bool evaluated_or_saved = iterate_or_save();
    or_warn([&] { profile.after_step(step_); });
    if (evaluated_or_saved) write_op_times();
  }
  or_warn([&] { profile.finish(step_); });
  const bool done = step_ >= config_.train.steps;
  if (step_ > saved_step_ && (!done || config_.checkpoint.save_final)) save();
  if (step_ > first) write_op_times();
  status_.finish();
  if (!done && early_stop_.due())
    say(fmt::format("stopped early after step {}: {} (train.early_stop_patience)", step_,
                    early_stop_.reason()));
  else if (!done)
    say(fmt::format("stopped after step {}, saved in {}: the same command continues", step_,
                    checkpoint_root(config_)));
  finish();
  return done || early_stop_.due();
}

void Trainer::finish() {
  if (!is_first() || !config_.log.plot || step_ == 0) return;
  or_warn([&] {
    const std::string& dir = config_.log.run_dir;
    write_report(env_, {dir}, dir + "/report.html");
    MetricsReader metrics(env_, dir);
    metrics.poll();
    const Plot plot = loss_plot("Loss of " + dir, metrics.metrics());
    say(fmt::format("\n{}\nall of it as a page: {}/report.html", terminal_plot(plot, 76, 16, isatty(1) != 0),
                    dir));
  });
}

}  // namespace weft
