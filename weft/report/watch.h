// `weft watch`: a run on the terminal as it goes, from the files it writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/base/config.h"
#include "weft/base/env.h"
#include "weft/base/progress.h"
#include "weft/report/run_record.h"

namespace weft {

enum class RunState {
  kWaiting,   // no step is done yet
  kRunning,   // a process holds the run's lock
  kFinished,  // all steps are done, or the run stopped early
  kStopped,   // before its last step: Ctrl-C, an error, or an early stop
};

/// A look at the run: what follows the file from one frame to the next.
class RunWatch {
 public:
  RunWatch(Env& env, std::string run_dir);

  /// Reads what is new; whether there is anything to show that was not there before.
  bool poll();
  RunState state() const { return state_; }

  /// The whole picture, fit for `size`: state and time left, the plot of the loss, the latest numbers, the
  /// last sampled texts. Each line ends in a newline.
  std::string frame(TerminalSize size, bool colour) const;

  /// The latest numbers as one line, for a pipe.
  std::string line() const;

 private:
  std::string waiting_text() const;
  std::string state_text() const;
  double seconds_left() const;
  int64_t steps() const { return plan_ ? plan_->steps : 0; }  // planned; 0: not known

  Env& env_;
  std::string dir_;
  MetricsReader reader_;
  std::vector<SampledText> samples_;
  std::optional<TrainConfig> plan_;  // none: there is no config, or one of another version
  RunState state_ = RunState::kWaiting;
};

/// Shows the run until Ctrl-C, or until it is finished: on a terminal as frames, elsewhere as lines. With
/// `once`: one frame.
void watch_run(Env& env, const std::string& run_dir, bool once);

}  // namespace weft
