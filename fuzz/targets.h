// What is fuzzed: one function per kind of file that weft reads. Each returns when weft accepts `input`,
// which it then uses as weft would, and throws weft::Error when weft refuses it. Anything else is a bug:
// another exception, a crash, a sanitizer's report, seconds of work or gigabytes of memory.
#pragma once

#include <string_view>

namespace weft::fuzz {

void checkpoint_boxes(std::string_view input);  // a rank file's boxes: JSON
void checkpoint_index(std::string_view input);  // index.json without its checksum
void config(std::string_view input);            // TOML; what follows a "\n--set " is an override
void hf_config(std::string_view input);         // config.json
void indexed_dataset(std::string_view input);   // u16 n, n bytes of .bin, .idx
void recording(std::string_view input);         // rank-00000.ring
void run_record(std::string_view input);        // four files of a run, see run_record_fuzzer.cpp
void safetensors(std::string_view input);       // see safetensors_input.h
void step_log(std::string_view input);          // metrics.jsonl
void token_tensor(std::string_view input);      // as for safetensors; rows of 4 tokens below 100
void tokenizer(std::string_view input);         // tokenizer.json

struct Target {
  const char* name;
  void (*run)(std::string_view input);
};

inline constexpr Target kTargets[] = {
    {"checkpoint_boxes", checkpoint_boxes},
    {"checkpoint_index", checkpoint_index},
    {"config", config},
    {"hf_config", hf_config},
    {"indexed_dataset", indexed_dataset},
    {"recording", recording},
    {"run_record", run_record},
    {"safetensors", safetensors},
    {"step_log", step_log},
    {"token_tensor", token_tensor},
    {"tokenizer", tokenizer},
};

}  // namespace weft::fuzz
