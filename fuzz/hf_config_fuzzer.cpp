#include "weft/checkpoint/hf_config.h"

#include "fuzz/read_back.h"
#include "fuzz/targets.h"

namespace weft::fuzz {

void hf_config(std::string_view input) {
  MemoryEnv env({{"hf/config.json", std::string(input)}});
  Config config;
  config.model.from_hf = "hf";
  config.train.seq_len = 1;  // suits any model
  apply_from_hf(&config, env);
  config.model.from_hf.clear();  // the shape must stand on its own
  check_reads_back(config);
}

}  // namespace weft::fuzz
