// Where each parameter lies in the files of a HuggingFace model: one table per model type. Parameters are
// named as Llama's are; other types spell them differently, fuse several into one tensor, or store it
// transposed. No torch here.
#pragma once

#include <cstdint>
#include <string>

#include "weft/checkpoint/hf_config.h"

namespace weft {

struct NameTable;

/// A parameter as part of a file's tensor, whose rows fall into `groups` equal groups of `group_rows`; the
/// parameter is the rows from `begin` on of each group, of which it has rows(parameter) / groups.
struct HfPlace {
  std::string name;
  int64_t groups = 1;
  int64_t group_rows = 0;
  int64_t begin = 0;
  bool transposed = false;  // a matrix is stored [in, out]
};

class HfNames {
 public:
  explicit HfNames(const HfModel& model);

  /// The place of parameter `name`, which has `rows` rows (a vector: elements).
  HfPlace place(const std::string& name, int64_t rows) const;

 private:
  const NameTable* table_;
  ModelConfig model_;
};

}  // namespace weft
