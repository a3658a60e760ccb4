// The safetensors format (u64 header length, JSON header, raw row-major little-endian data), without torch.
// Reading validates everything (bounds, overlaps, sizes) before a byte of data is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/env.h"

namespace weft {

struct TensorInfo {
  std::string dtype;           // as in the format: "F64", "F32", "BF16", "I64", …
  std::vector<int64_t> shape;  // empty: a scalar
  uint64_t begin = 0, end = 0;  // bytes, relative to the data section
};

/// Bytes of one element of `dtype`; throws Error for an unknown one.
size_t dtype_size(const std::string& dtype);

struct SafetensorsHeader {
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // of the data section in the file
};

/// Parses and validates the header at the front of `file`. `where` names the file in errors.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where);

/// An opened file: the header and views of the mapped data.
class SafetensorsFile {
 public:
  SafetensorsFile(Env& env, const std::string& path);
  const SafetensorsHeader& header() const { return header_; }
  const std::string& path() const { return path_; }
  bool contains(const std::string& name) const { return header_.tensors.count(name) > 0; }
  /// Throws Error naming the file, and the nearest names, if there is no such tensor.
  const TensorInfo& info(const std::string& name) const;
  std::span<const std::byte> data(const std::string& name) const;

 private:
  std::string path_;
  std::unique_ptr<MappedFile> file_;
  SafetensorsHeader header_;
};

/// One tensor to be written; `data` must stay valid until the write returns.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// Writes the tensors in the order given and syncs. Metadata always gets format = "pt". Returns the
/// XXH3-64 of all bytes written, as 16 hex digits. Not atomic: callers rename.
std::string write_safetensors(Env& env, const std::string& path, const std::vector<TensorToWrite>& tensors,
                              std::map<std::string, std::string> metadata = {});

}  // namespace weft
