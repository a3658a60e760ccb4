// The checkpoint format, without torch: what a checkpoint directory's index.json says and how the tensors in
// its rank files are named. docs/checkpoint-format.md specifies it; saving and loading are in checkpoint.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/boxes.h"
#include "weft/base/error.h"

namespace weft {

inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr const char* kIndexFile = "index.json";
inline constexpr const char* kBoxesKey = "boxes";  // in the metadata of a rank file

/// The kinds of the parameters themselves and of their moving average. Other kinds are the optimizer's, named
/// as it likes ("exp_avg").
inline constexpr const char* kWeight = "weight";
inline constexpr const char* kAverage = "ema";

struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  std::string checksum;
};

/// A whole tensor, whatever pieces it lies in.
struct GlobalTensor {
  std::string dtype;  // as in safetensors
  std::vector<int64_t> shape;
  bool operator==(const GlobalTensor&) const = default;
};

/// One checkpoint as its index tells it.
struct Checkpoint {
  std::string dir;
  int64_t step = 0;
  nlohmann::json state;  // whatever the trainer put there
  std::vector<CheckpointFile> files;
  std::map<std::string, std::map<std::string, GlobalTensor>> tensors;  // by kind, then by name

  const GlobalTensor* find(const std::string& kind, const std::string& name) const;  // nullptr: it has none
};

/// What one tensor of a rank file holds: a box of a global tensor.
struct TensorBox : Box {
  std::string kind, name;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CheckpointFile, name, bytes, checksum)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GlobalTensor, dtype, shape)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TensorBox, kind, name, begin, end)

/// A checkpoint that this weft is too old to read; it is not damaged.
struct NewerFormat : Error {
  using Error::Error;
};

/// "step-00000100", "rank-00000.safetensors".
std::string step_name(int64_t step);
std::string rank_file_name(int64_t rank);

/// XXH3-64 as 16 hex digits.
std::string checksum(std::span<const std::byte> bytes);

/// The text of index.json; its last line holds the checksum of all that comes before.
std::string index_text(const Checkpoint& checkpoint);

/// Reads the text of `dir`/index.json. Throws Error if any byte of it changed since it was written,
/// NewerFormat.
Checkpoint parse_index(const std::string& text, const std::string& dir);

/// A global tensor's name in a rank file: NAME for weights, so that the file reads like a HuggingFace one,
/// else KIND.NAME.
std::string qualified_name(const std::string& kind, const std::string& name);

/// The qualified name, followed by the box ("[0:4,8:16]") unless it is all of `shape`.
std::string name_in_file(const TensorBox& box, const std::vector<int64_t>& shape);

/// The boxes of a rank file by name_in_file, as the text kept in its metadata. Parsing names `path` in
/// errors.
std::string boxes_text(const std::map<std::string, TensorBox>& boxes);
std::map<std::string, TensorBox> parse_boxes(const std::string& text, const std::string& path);

}  // namespace weft
