// weft parity: trains every row of a table, each on its own mesh over the first ranks of the job, and
// compares its curve with that of one rank.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/memory.h"
#include "weft/checkpoint/hf_config.h"
#include "weft/comm/dropped_sum.h"
#include "weft/comm/together.h"
#include "weft/commands/command.h"
#include "weft/entry.h"
#include "weft/parallel/tensor_parallel_cost.h"
#include "weft/parity/curve.h"
#include "weft/parity/table.h"
#include "weft/report/metrics.h"
#include "weft/train/batch.h"
#include "weft/train/process.h"
#include "weft/train/trainer.h"

extern char** environ;

namespace weft {
namespace {

// Norm, loss, targets, whether to stop, texts of errors: what a step sends besides its gradients and weights.
constexpr int64_t kControlBytes = 2048;

/// What is printed meanwhile goes into a file.
class PrintsInto {
 public:
  explicit PrintsInto(const std::string& path) {
    std::fflush(stdout);
    stdout_ = dup(1), stderr_ = dup(2);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) fail("cannot write {}", path);
    dup2(file, 1), dup2(file, 2);
    close(file);
  }
  ~PrintsInto() {
    std::fflush(stdout);
    dup2(stdout_, 1), dup2(stderr_, 2);
    close(stdout_), close(stderr_);
  }
  PrintsInto(const PrintsInto&) = delete;

 private:
  int stdout_, stderr_;
};

struct Reference {
  TrainingCurve curve;
  std::map<std::string, at::Tensor> initial;
};

/// For a rank that waits while others train.
CommConfig patient(CommConfig comm) {
  comm.timeout = 1e6;
  return comm;
}

class ParityRun {
 public:
  ParityRun(const ParityOptions& options, World& world)
      : options_(options),
        world_(world),
        table_(read_parity_table(options.table)),
        rows_(options.full ? all_rows(table_) : pairwise_rows(table_)) {
    everyone_ = world.all("world");
    if (options.fresh > 0) thin_out(size_t(options.fresh));
    for (const ParityRow& row : rows_)
      if (row.ranks > world.size() && options.fresh == 0)
        fail("{}: a row needs {} ranks, and the job has {}: start it as `mpirun -np {}`, or without mpirun",
             options.table, row.ranks, world.size(), row.ranks);
  }

  /// What is not as it must be; "" if all is.
  std::string run() {
    say(fmt::format("{}: {} rows{}, bound {:.0e}; runs are in {}", options_.table, rows_.size(),
                    options_.full ? "" : " (each pair of choices meets)", table_.bound, options_.output));
    World::join(patient(CommConfig{}), "");  // the runs are divided unevenly
    make_references();
    return options_.mutations ? mutations_that_pass() : rows_that_fail();
  }

 private:
  bool is_first() const { return world_.rank() == 0; }

  void say(const std::string& line) const {
    if (!is_first()) return;
    std::fputs((line + "\n").c_str(), stdout);
    std::fflush(stdout);
  }

  bool is_within_bounds(const Deviation& deviation) const {
    return std::max(deviation.loss, deviation.grad_norm) <= table_.bound &&
           deviation.weights <= table_.weights_bound;
  }

  /// Keeps `count` rows, evenly spread.
  void thin_out(size_t count) {
    std::vector<ParityRow> kept;
    for (size_t i = 0; i < std::min(count, rows_.size()); ++i)
      kept.push_back(rows_[i * rows_.size() / std::min(count, rows_.size())]);
    rows_ = kept;
  }

  Config config_of(const std::vector<std::string>& variant, const std::vector<std::string>& layout,
                   const std::string& name) const {
    std::vector<std::string> warnings;
    Config config = load_config(table_.base, overrides(variant, layout, name), &warnings);
    apply_from_hf(&config);
    resolve(&config);
    return config;
  }

  std::vector<std::string> overrides(const std::vector<std::string>& variant,
                                     const std::vector<std::string>& layout, const std::string& name) const {
    std::vector<std::string> all = variant;
    all.insert(all.end(), layout.begin(), layout.end());
    all.push_back(fmt::format("log.run_dir={}/{}", options_.output, name));
    return all;
  }

  /// The one-rank runs that rows are compared with, one of each variant, divided among the ranks.
  void make_references() {
    std::map<std::vector<std::string>, std::string> names;
    for (const ParityRow& row : rows_)
      names.emplace(row.variant, fmt::format("reference-{}", names.size() + 1));
    int64_t next = 0;
    together(*everyone_, [&] {
      for (const auto& [variant, name] : names)
        if (next++ % world_.size() == world_.rank())
          train(config_of(variant, {}, name), MeshGroups::alone(), nullptr);
    });
    if (!is_first()) return;
    for (const auto& [variant, name] : names) {
      const Config config = config_of(variant, {}, name);
      references_[variant] = {read_curve(config, Env::system()), initial_weights(config)};
    }
  }

  /// `problems`: gets what this rank finds wrong with bytes held and sent.
  void train(const Config& config, MeshGroups& groups, std::vector<std::string>* problems) const {
    Env::system().create_dirs(config.log.run_dir);
    const PrintsInto file(fmt::format("{}/output-{:04}.log", config.log.run_dir, world_.rank()));
    Trainer trainer(config, Env::system(), groups);
    if (problems) check_held(config, groups, trainer.decoder(), problems);
    trainer.run();
    if (problems && is_first()) check_sent(config, groups, trainer.decoder(), problems);
  }

  static void check_held(const Config& config, MeshGroups& groups, const Decoder& decoder,
                         std::vector<std::string>* problems) {
    const HeldBytes expected = held_bytes(config, groups.mesh(), decoder.units(), decoder.tied_units());
    const auto check = [&](const char* what, MemoryKind kind, int64_t bytes, bool at_most) {
      const int64_t found = counted_bytes(kind);
      if (at_most ? found > bytes : found != bytes)
        problems->push_back(fmt::format("rank {} holds {} bytes of {}, expected {}{}", groups.rank(), found,
                                        what, at_most ? "at most " : "", bytes));
    };
    check("params", MemoryKind::params, expected.params, false);
    check("gradients", MemoryKind::gradients, expected.gradients, false);
    check("optimizer state", MemoryKind::optimizer, expected.optimizer, false);
    check("gathered params", MemoryKind::gathered, expected.gathered, true);
    check("gradients being reduced", MemoryKind::reduced, expected.reduced, true);
  }

  /// Every group that the row claims to use must have carried what the formula says, in every step.
  static void check_sent(const Config& config, MeshGroups& groups, const Decoder& decoder,
                         std::vector<std::string>* problems) {
    if (config.comm.check) return;  // what is compared first is sent later, perhaps in the next step
    const std::vector<int64_t> tokens = micro_batch_tokens(
        config.train.global_batch, {.seq_len = config.train.seq_len,
                                    .micro_batch = config.train.micro_batch,
                                    .data_rank = groups.mesh().coordinate(groups.rank(), kDataAxes),
                                    .data_ranks = groups.mesh().size(kDataAxes)});
    SentBytes sent = sent_bytes(config, groups.mesh(), groups.rank(), decoder.units(), decoder.tied_units(),
                                int64_t(tokens.size()));
    // Another architecture's layers enter and leave the tensor-parallel regions as they like.
    const bool knows_layers = config.model.architecture == "decoder";
    if (knows_layers)
      sent.merge(tensor_parallel_bytes(config, groups.mesh(), groups.rank(), decoder.units(), tokens));
    MetricsReader reader(Env::system(), config.log.run_dir);
    reader.poll();
    std::map<std::string, int64_t> expected_bytes;  // by metric; what no formula speaks of: only control
    const std::string prefix = "comm_bytes/";
    for (const auto& [key, values] : reader.metrics().columns)
      if (key.starts_with(prefix) && (knows_layers || key.find("tp/") == key.npos)) expected_bytes[key] = 0;
    for (const auto& [place, bytes] : sent)
      expected_bytes[fmt::format("{}{}/{}", prefix, place.first, place.second)] = bytes;
    for (const auto& [key, expected] : expected_bytes) {
      const auto column = reader.metrics().columns.find(key);
      for (size_t step = 0; step < reader.metrics().step.size(); ++step) {
        const double found = column == reader.metrics().columns.end() ? 0 : column->second[step];
        if (found >= double(expected) && found <= double(expected + kControlBytes)) continue;
        problems->push_back(fmt::format("step {}: {} = {}, expected {}", step + 1, key, found, expected));
        break;
      }
    }
  }

  /// What became of a row. The deviation is known to the first rank.
  struct Outcome {
    Deviation deviation;
    std::vector<std::string> problems;  // with bytes held and sent
    std::string error;                  // it could not be trained
  };

  /// Trains a row, here or in a job of its own.
  Outcome run_row(const ParityRow& row, const std::string& name) {
    Outcome outcome;
    const Config config = config_of(row.variant, row.layout, name);
    if (options_.fresh > 0) {
      start_afresh(row, name, config);
    } else {
      std::vector<std::string> problems;
      std::string error;
      try {
        // The row's comm keys hold for those who wait, too.
        World::join(world_.rank() < row.ranks ? config.comm : patient(config.comm), "");
        if (world_.rank() < row.ranks) {
          MeshGroups groups(Mesh(config.parallel, row.ranks), world_);
          train(config, groups, &problems);
        }
      } catch (const CommError&) {
        throw;
      } catch (const Error& thrown) {
        error = thrown.what();
      }
      for (const std::string& text : all_gather(*everyone_, fmt::format("{}", fmt::join(problems, "\n"))))
        if (!text.empty()) outcome.problems.push_back(text);
      for (const std::string& text : all_gather(*everyone_, error))
        if (outcome.error.empty()) outcome.error = text;
    }
    if (!is_first() || !outcome.error.empty()) return outcome;
    const Reference& reference = references_.at(row.variant);
    outcome.deviation =
        compare(reference.curve, read_curve(config, Env::system()), reference.initial, config);
    return outcome;
  }

  Outcome run_without(std::string_view sum, ParityRow row, const std::string& key_value,
                      const std::string& name) {
    row.layout.push_back(key_value);
    dropped_sum() = sum;
    Outcome outcome = run_row(row, name);
    dropped_sum().clear();
    return outcome;
  }

  /// `weft train` as a user would start it.
  void start_afresh(const ParityRow& row, const std::string& name, const Config& config) const {
    std::vector<std::string> words = {options_.executable, "train", table_.base, "--ranks",
                                      fmt::format("{}", row.ranks)};
    for (const std::string& text : overrides(row.variant, row.layout, name)) {
      words.push_back("--set");
      words.push_back(text);
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    Env::system().create_dirs(config.log.run_dir);
    const PrintsInto file(config.log.run_dir + "/output.log");
    pid_t child = 0;
    int status = 0;
    if (posix_spawn(&child, options_.executable.c_str(), nullptr, nullptr, arguments.data(), environ) != 0)
      fail("cannot start {}", options_.executable);
    waitpid(child, &status, 0);
    if (status != 0)
      fail("`{}` ended with status {}: see {}/output.log", fmt::join(words, " "),
           WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), config.log.run_dir);
  }

  std::string rows_that_fail() {
    say(fmt::format("\n{:>4}  {:>5}  {:>8}  {:>9}  {:>8}  {}", "row", "ranks", "loss", "grad norm", "weights",
                    "choices (all else as in the base config)"));
    double worst = 0;
    size_t failed = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const ParityRow& row = rows_[i];
      const auto [deviation, problems, error] = run_row(row, fmt::format("row-{}", i + 1));
      if (!is_first()) continue;
      worst = std::max(worst, deviation.worst());
      const bool good = error.empty() && problems.empty() && is_within_bounds(deviation);
      failed += good ? 0 : 1;
      say(fmt::format("{:>4}  {:>5}  {:8.1e}  {:9.1e}  {:8.1e}  {}{}", i + 1, row.ranks, deviation.loss,
                      deviation.grad_norm, deviation.weights, row.label, good ? "" : "   FAILED"));
      if (deviation.weights > table_.weights_bound) say("      worst tensor: " + deviation.tensor);
      if (!error.empty()) say("      " + error);
      for (const std::string& problem : problems) say("      " + problem);
    }
    if (failed > 0)
      return fmt::format("{} of {} rows do not agree with one rank's curve", failed, rows_.size());
    say(fmt::format("\n{} rows agree with one rank's curve, the worst within {:.1e}", rows_.size(), worst));
    return {};
  }

  /// Leaves out one sum after the other: each time some row must notice, by its curve.
  std::string mutations_that_pass() {
    size_t missed = 0;
    for (const std::string_view sum : kSums) {
      bool noticed = false;
      for (size_t i = 0; i < rows_.size() && !noticed; ++i) {
        const std::string name = fmt::format("{} {}", sum, i + 1);
        const Deviation deviation = run_without(sum, rows_[i], "parallel.check_replicas=0", name).deviation;
        // The first rank knows.
        noticed = all_reduce(*everyone_, {double(!is_within_bounds(deviation))}, ReduceOp::max).front() > 0;
        if (!noticed) continue;
        say(fmt::format(
            "without the sum of {}: row {} is red: loss {:.1e}, grad norm {:.1e}, weights {:.1e} ({})", sum,
            i + 1, deviation.loss, deviation.grad_norm, deviation.weights, rows_[i].label));
        if (sum != kSumOfReplicas) continue;
        const std::string error =
            run_without(sum, rows_[i], "parallel.check_replicas=1", name + " checked").error;
        say(error.empty() ? "  parallel.check_replicas DOES NOT NOTICE"
                          : "  parallel.check_replicas notices: " + error.substr(0, error.find('\n')));
        missed += error.empty() ? 1 : 0;
      }
      if (!noticed) say(fmt::format("without the sum of {}: NO ROW NOTICES", sum));
      missed += noticed ? 0 : 1;
    }
    return missed == 0 ? "" : fmt::format("{} sums can be left out unnoticed", missed);
  }

  ParityOptions options_;
  World& world_;
  ParityTable table_;
  std::vector<ParityRow> rows_;
  std::shared_ptr<Group> everyone_;
  std::map<std::vector<std::string>, Reference> references_;  // the first rank's
};

}  // namespace
}  // namespace weft

int weft_parity(const weft::ParityOptions& options) {
  return weft::guarded([&] {
    weft::set_up_process(1);
    weft::World& world = weft::World::join(weft::CommConfig{}, options.output);
    const std::string problem = weft::ParityRun(options, world).run();
    world.leave();
    if (!problem.empty()) weft::fail("{}: {}", options.table, problem);
    return 0;
  });
}
