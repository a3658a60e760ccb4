// The training loop of one run: data, model, optimizer, guard, checkpoints, metrics.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/base/progress.h"
#include "weft/base/run_lock.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/data/sampler.h"
#include "weft/data/tokenizer.h"
#include "weft/nn/decoder.h"
#include "weft/optim/adamw.h"
#include "weft/optim/weight_average.h"
#include "weft/report/run_log.h"
#include "weft/train/batch.h"
#include "weft/train/early_stop.h"
#include "weft/train/evaluation.h"
#include "weft/train/guard.h"

namespace weft {

class Trainer {
 public:
  /// Opens everything, initialises or resumes. `config` is resolved except for a vocab_size taken from the
  /// tokenizer. Throws Error before anything in the run directory is changed where the input is at fault. All
  /// ranks of the mesh make one together; the first of them writes what is one for the run.
  Trainer(Config config, Env& env, MeshGroups& groups = MeshGroups::alone());

  /// Trains to train.steps, to an early stop, or until a rank is asked to stop, then saves. Returns whether
  /// the run is over: false if the same command would go on.
  bool run();

  const Decoder& decoder() const { return *decoder_; }

 private:
  struct StepResult {
    double loss = 0, grad_norm = 0, lr = 0, weight_decay = 0;
    int64_t sequences = 0, targets = 0;
    std::string problem;  // why the update was not applied; empty: it was
  };

  void resume();
  StepResult train_step();
  bool iterate();          // a step and what is due after it; did it evaluate or save?
  bool iterate_or_save();  // an Error must not lose the steps since the last checkpoint
  std::optional<Evaluation> evaluate_if_due();
  void sample_if_due();  // lets the model continue log.sample_prompts
  void warn(const std::string& text);
  void warn_of_changes(const std::string& saved_config);  // keys that differ from the checkpoint's
  void say(const std::string& text);                      // a line that stays, beside the status line
  bool is_first() const { return groups_.rank() == 0; }
  bool must_stop();  // was any rank asked to?
  bool shows_status();
  void report(const StepResult& result, double seconds, const std::optional<Evaluation>& evaluation);
  void handle_bad_step(const StepResult& result);
  void check_room_for_checkpoint();
  void save();
  // A full disk must not end a run that may find room at the next save.
  void or_warn(const std::function<void()>& write);
  void finish();  // plot and report
  // What this rank loads, or what it writes.
  std::vector<StateTensor> state_tensors(bool to_save) const;
  void load(const Checkpoint& checkpoint);  // the tensors
  double baseline();                        // an interpolated bigram's loss on the same sequences

  Config config_;
  Env& env_;
  MeshGroups& groups_;
  std::unique_ptr<RunLock> lock_;  // the first rank's
  BatchOptions batch_options_;
  std::unique_ptr<Tokenizer> tokenizer_;  // none: the data is only numbers
  std::unique_ptr<SampleSource> train_data_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<WeightAverage> average_;  // null: optim.ema_decay is 0
  StepGuard guard_;
  CommTotals comm_;  // of the last step
  EarlyStop early_stop_;
  std::unique_ptr<RunLog> log_;  // the first rank's
  StatusLine status_;
  std::chrono::steady_clock::time_point last_status_{};

  int64_t step_ = 0;     // done, applied or not
  int64_t updates_ = 0;  // applied
  int64_t samples_ = 0;  // seen: the position in the data
  int64_t tokens_ = 0;   // seen
  int64_t saved_step_ = -1;
  double peak_flops_ = 0, flops_per_token_ = 0;
  double mean_sequence_seconds_ = 0;
  std::optional<double> baseline_;
};

}  // namespace weft
