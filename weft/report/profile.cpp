#include "weft/report/profile.h"

#include <fmt/format.h>

#include "weft/base/trace.h"
#include "weft/report/trace_file.h"

namespace weft {

Profile::Profile(Env& env, const Config& config, int64_t done, double peak_flops,
                 std::function<void(const std::string&)> say)
    : env_(env), run_dir_(config.log.run_dir), peak_flops_(peak_flops), say_(std::move(say)) {
  const std::string& asked = config.log.profile;
  if (asked.empty()) return;
  steps_ = asked == "auto" ? automatic_profile(done, config.train.steps) : parse_step_range(asked);
  if (!steps_ || done < steps_->first) return;
  if (done >= steps_->last) {
    say_(fmt::format("log.profile: this start goes on after step {}, past {}: nothing is traced", done,
                     steps_->text()));
    steps_.reset();
  } else {
    steps_->first = done + 1;
    say_(fmt::format("log.profile: of \"{}\" only {} are left to trace", asked, steps_->text()));
  }
}

void Profile::before_step(int64_t step) {
  if (steps_ && step == steps_->first) Trace::global().keep_events();
}

void Profile::after_step(int64_t step) {
  if (steps_ && step == steps_->last) write(*steps_);
}

void Profile::finish(int64_t last) {
  if (!steps_) return;
  if (last < steps_->first) {
    say_(fmt::format("log.profile: the run ended after step {}, before {}: nothing is traced", last,
                     steps_->text()));
    steps_.reset();
  } else {
    say_(fmt::format("log.profile: the run ended after step {}, within {}", last, steps_->text()));
    write({steps_->first, last});
  }
}

void Profile::write(StepRange traced) {
  steps_.reset();
  const std::vector<SpanEvent> spans = Trace::global().take_events();
  say_(fmt::format("\nwhere the time of {} went:\n{}", traced.text(), top_ops_table(spans, peak_flops_)));
  const std::string path = run_dir_ + "/trace.json";
  write_file_atomically(env_, path, chrome_trace(spans, "weft train " + run_dir_));
  say_(
      fmt::format("the whole trace: {} (open it at https://ui.perfetto.dev or in chrome://tracing)\n", path));
}

}  // namespace weft
