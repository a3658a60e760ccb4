#include "weft/report/report.h"
#include "weft/report/run_record.h"
#include "weft/report/watch.h"

#include "fuzz/targets.h"
#include "tests/base/memory_env.h"

namespace weft::fuzz {

void run_record(std::string_view input) {
  constexpr std::string_view kCut = "\n---\n";
  MemoryEnv::Files files;
  for (const char* name : {"metrics.jsonl", "config.toml", "samples.jsonl", "op_times.json"}) {
    const size_t end = input.find(kCut);
    if (end > 0 && !input.empty()) files["run/" + std::string(name)] = input.substr(0, end);
    input.remove_prefix(end == std::string_view::npos ? input.size() : end + kCut.size());
  }
  MemoryEnv env(std::move(files));
  report_page(read_runs(env, {"run"}));
  RunWatch watch(env, "run");
  watch.poll();
  watch.line();
  watch.frame({.columns = 80, .rows = 24}, true);
}

}  // namespace weft::fuzz
