// TensorBoard's event files: records of protocol buffers (Event, of tensorflow's event.proto), encoded here
// by hand. docs/formats.md has the layout and the tags.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/base/env.h"

namespace weft {

using Scalars = std::vector<std::pair<std::string, float>>;  // tag, value

/// One record of an event file each, framed and checksummed; `wall_time` in seconds since 1970.
std::string version_record(double wall_time);
std::string scalars_record(double wall_time, int64_t step, const Scalars& scalars);
std::string text_record(double wall_time, int64_t step, std::string_view tag, std::string_view text);
/// Makes TensorBoard forget what earlier files of the directory say of `step` and later ones.
std::string restart_record(double wall_time, int64_t step);

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);

/// A line of metrics.jsonl under the tags that users of Megatron-LM and of TorchTitan know.
Scalars tensorboard_scalars(const nlohmann::ordered_json& line);

/// Writes into an event file of `dir` that it creates with the first record, and that sorts after those which
/// are there: TensorBoard reads them in order. After a write that failed the next one begins a new file.
class EventFile {
 public:
  EventFile(Env& env, std::string dir) : env_(env), dir_(std::move(dir)) {}

  void scalars(int64_t step, const Scalars& scalars);
  /// `text` appears as it is, in a fixed-width block.
  void text(int64_t step, const std::string& tag, const std::string& text);

 private:
  void append(int64_t step, const std::string& record);

  Env& env_;
  std::string dir_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace weft
