#include "weft/base/config.h"

#include "fuzz/read_back.h"
#include "fuzz/targets.h"

namespace weft::fuzz {

void config(std::string_view input) {
  constexpr std::string_view kSet = "\n--set ";
  std::vector<std::string> parts;
  for (size_t end = 0; end != std::string_view::npos;
       input.remove_prefix(std::min(input.size(), end + kSet.size()))) {
    end = input.find(kSet);
    parts.emplace_back(input.substr(0, end));
  }
  MemoryEnv env({{"run.toml", parts.front()}});
  parts.erase(parts.begin());
  std::vector<std::string> warnings;
  Config config = load_config("run.toml", parts, &warnings, env);
  check_reads_back(config);
  if (!config.model.from_hf.empty()) return;  // the shape is then the folder's
  resolve(&config);
  check_reads_back(config);
  check_for_training(config);
}

}  // namespace weft::fuzz
