// A training run of the shipped binary on random tokens, and what it leaves behind.
#pragma once

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/philox.h"
#include "weft/base/safetensors.h"

#include "tests/base/temporary_dir.h"
#include "tests/e2e/process.h"

namespace weft {

inline std::vector<nlohmann::json> metrics(const std::string& run_dir) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(Env::system().read(run_dir + "/metrics.jsonl"));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

// What must not depend on when and where a step ran, with every digit.
inline std::vector<std::string> curve(const std::string& run_dir) {
  std::vector<std::string> result;
  for (const auto& line : metrics(run_dir))
    result.push_back(nlohmann::json{line.at("step"), line.at("loss"), line.at("grad_norm"), line.at("lr"),
                                    line.at("tokens"), line.at("global_batch")}
                         .dump());
  return result;
}

class Train : public testing::Test {
 protected:
  Env& env = Env::system();
  TemporaryDir dir;

  // A config of a very small model on random tokens [200, 3, 18], with everything on that could break a
  // resume.
  std::string small_config() {
    std::vector<int64_t> tokens(200 * 3 * 18);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = philox(1, i)[0] % 31;
    write_safetensors(env, dir / "tokens.safetensors",
                      {{"tokens", "I64", {200, 3, 18}, std::as_bytes(std::span(tokens))}});
    std::ofstream(dir / "config.toml") << R"(
[model]
n_layers = 2
dim = 24
n_heads = 3
n_kv_heads = 1
vocab_size = 31
dropout = 0.1
attention_dropout = 0.1
[data]
format = "tensor"
train = [")" << dir / "tokens.safetensors"
                                       << R"("]
[train]
steps = 40
seq_len = 17
micro_batch = 2
global_batch = 3
spike_factor = 50.0
[optim]
warmup_steps = 5
schedule = "wsd"
[checkpoint]
save_every = 1
keep_last = 3
)";
    return dir / "config.toml";
  }

  std::vector<std::string> train(const std::string& config, const std::string& run,
                                 const std::vector<std::string>& sets = {}) {
    std::vector<std::string> arguments = {"train", config, "--set", "log.run_dir=" + (dir / run)};
    for (const auto& set : sets) arguments.insert(arguments.end(), {"--set", set});
    return arguments;
  }

  size_t metrics_so_far(const std::string& run) {
    const std::string path = dir / run + "/metrics.jsonl", text = env.exists(path) ? env.read(path) : "";
    return size_t(std::count(text.begin(), text.end(), '\n'));
  }

  std::string final_weights(const std::string& run, int step) {
    return env.read(dir / run + fmt::format("/checkpoints/step-{:08}/rank-00000.safetensors", step));
  }
};

}  // namespace weft
