// The door between the thin executable and libweft: the executable parses the command line and the config,
// sets the environment that libraries read while they load, then loads libweft and calls one of these by
// name. Each returns the process's exit status and prints its own errors; none throws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/config.h"

namespace weft {

struct GenerateOptions {
  std::string model;  // run directory, checkpoint directory or HuggingFace folder
  std::string prompt;
  std::string tokenizer;  // empty: the model's own
  bool ema = false;       // the moving average of a run's weights
  int64_t max_tokens = 200;
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: off
  double top_p = 1.0;
  uint64_t seed = 0;
  int64_t threads = 0;
  ParallelConfig parallel;  // how ranks divide the model
  CommConfig comm;
};

struct ExportOptions {
  std::string model;   // run directory, checkpoint directory or HuggingFace folder
  std::string output;  // safetensors
  bool ema = false;    // the moving average of a run's weights
  std::string dtype;   // fp32 | fp64 | bf16 | fp16; empty: as the model has it
};

struct LogitsOptions {
  std::string hf_dir;
  std::string input;   // safetensors with input_ids [batch, seq]
  std::string output;  // safetensors
  bool grad = false;
  std::string dtype = "fp32";  // fp32 | fp64
  int64_t threads = 0;
  ParallelConfig parallel;  // how ranks divide the model
  CommConfig comm;
};

struct ParityOptions {
  std::string table;                   // TOML
  std::string output = "runs/parity";  // directory of the rows' runs
  bool full = false;                   // every combination of choices, not only every pair
  bool mutations = false;              // drop one sum after the other: each must turn a row red
  int64_t fresh = 0;       // so many rows, each started as `weft train` by itself; 0: all, within one job
  std::string executable;  // weft's
};

struct BenchCommOptions {
  std::vector<std::string> operations;  // empty: all
  int64_t min_bytes = 8, max_bytes = 64 << 20;
  int64_t factor = 8;  // from one size to the next
};

}  // namespace weft

extern "C" {
int weft_train(const weft::Config& config);
int weft_generate(const weft::GenerateOptions& options);
int weft_export(const weft::ExportOptions& options);
int weft_logits(const weft::LogitsOptions& options);
int weft_parity(const weft::ParityOptions& options);
int weft_bench_comm(const weft::BenchCommOptions& options);
int weft_info();
}
