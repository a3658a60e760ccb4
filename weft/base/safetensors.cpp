#include "weft/base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <xxhash.h>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/nearest.h"

namespace weft {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian and read in place");

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr int kMaxDepth = 3;                  // {"name": {"shape": [..]}}
constexpr const char* kMetadata = "__metadata__";

const std::map<std::string, size_t>& dtype_sizes() {
  static const std::map<std::string, size_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8}};
  return sizes;
}

/// Bytes that `shape` takes, or nothing if 64 bits cannot count them.
std::optional<uint64_t> byte_size(const std::vector<int64_t>& shape, size_t element) {
  uint64_t bytes = element;
  for (const int64_t dim : shape)
    if (__builtin_mul_overflow(bytes, uint64_t(dim), &bytes)) return std::nullopt;
  return bytes;
}

/// The JSON text of the header, after checking that the file holds as much as it claims.
std::string_view header_text(std::span<const std::byte> file, const std::string& where) {
  uint64_t length = 0;
  if (file.size() < sizeof(length))
    fail("{}: {} bytes are too few for a safetensors file; is it truncated?", where, file.size());
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > kMaxHeader)
    fail("{}: not a safetensors file: the header would be {} bytes long, at most {} are allowed", where,
         length, kMaxHeader);
  if (length > file.size() - sizeof(length))
    fail("{}: the header should be {} bytes long, but the file ends after {}; is it truncated?", where,
         length, file.size() - sizeof(length));
  return {reinterpret_cast<const char*>(file.data()) + sizeof(length), size_t(length)};
}

/// Parses the header's JSON, refusing what a generic parser lets pass: repeated names, deep nesting.
json parse_header_json(std::string_view text, const std::string& where) {
  std::set<std::string> names;
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) fail("{}: damaged header: nested too deeply", where);
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second)
      fail("{}: damaged header: tensor {} occurs twice", where, value.dump());
    return true;
  };
  json header;
  try {
    header = json::parse(text, check);
  } catch (const json::exception& error) {
    fail("{}: damaged header: {}", where, std::string(error.what()).substr(0, 300));
  }
  if (!header.is_object()) fail("{}: damaged header: a JSON object was expected", where);
  return header;
}

uint64_t to_unsigned(const json& value, uint64_t max, const char* what, const std::string& where) {
  const bool negative = value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() < 0;
  if (!value.is_number_integer() || negative || value.get<uint64_t>() > max)
    fail("{}: {} must hold whole numbers from 0 to {}, found {}", where, what, max,
         value.dump().substr(0, 40));
  return value.get<uint64_t>();
}

const json& member(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) fail("{}: \"{}\" is missing", where, key);
  return *found;
}

/// `where` names file and tensor; `data_size` is the size of the data section.
TensorInfo parse_tensor(const json& object, uint64_t data_size, const std::string& where) {
  if (!object.is_object()) fail("{}: a JSON object was expected", where);
  const json& dtype = member(object, "dtype", where);
  const json& shape = member(object, "shape", where);
  const json& offsets = member(object, "data_offsets", where);
  if (!dtype.is_string() || !dtype_sizes().count(dtype.get<std::string>()))
    fail("{}: unknown dtype {}", where, dtype.dump().substr(0, 40));
  if (!shape.is_array()) fail("{}: \"shape\" must be an array", where);
  if (!offsets.is_array() || offsets.size() != 2) fail("{}: \"data_offsets\" must be two numbers", where);

  TensorInfo info;
  info.dtype = dtype.get<std::string>();
  for (const json& dim : shape)
    info.shape.push_back(int64_t(to_unsigned(dim, std::numeric_limits<int64_t>::max(), "\"shape\"", where)));
  info.begin = to_unsigned(offsets[0], std::numeric_limits<uint64_t>::max(), "\"data_offsets\"", where);
  info.end = to_unsigned(offsets[1], std::numeric_limits<uint64_t>::max(), "\"data_offsets\"", where);
  if (info.begin > info.end || info.end > data_size)
    fail("{}: occupies bytes {} to {} of the data, but the file has {}; is it truncated?", where, info.begin,
         info.end, data_size);
  const auto expected = byte_size(info.shape, dtype_size(info.dtype));
  if (!expected) fail("{}: impossibly large shape [{}]", where, fmt::join(info.shape, ", "));
  if (*expected != info.end - info.begin)
    fail("{}: {} of shape [{}] takes {} bytes, but {} are given", where, info.dtype,
         fmt::join(info.shape, ", "), *expected, info.end - info.begin);
  return info;
}

/// The tensors must tile the data section: no overlap, no hole, nothing left over.
void check_tiling(const SafetensorsHeader& header, uint64_t data_size, const std::string& where) {
  std::vector<std::pair<std::string, TensorInfo>> order(header.tensors.begin(), header.tensors.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
  });
  uint64_t covered = 0;
  for (const auto& [name, info] : order) {
    if (info.begin < covered)
      fail("{}: tensor {} begins at byte {} of the data, inside the tensor before it, which ends at {}",
           where, name, info.begin, covered);
    if (info.begin > covered)
      fail("{}: bytes {} to {} of the data, before tensor {}, belong to no tensor", where, covered,
           info.begin, name);
    covered = info.end;
  }
  if (covered != data_size)
    fail("{}: the tensors take {} bytes, but the file holds {} after its header", where, covered, data_size);
}

/// The 8 length bytes and the JSON, padded with spaces so that the data begins at a multiple of 8.
std::string header_bytes(const std::vector<TensorToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header[kMetadata] = metadata;
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    const auto expected = byte_size(tensor.shape, dtype_size(tensor.dtype));
    WEFT_ASSERT(expected == tensor.data.size(), "{}: {} bytes for {} of shape [{}]", tensor.name,
                tensor.data.size(), tensor.dtype, fmt::join(tensor.shape, ", "));
    WEFT_ASSERT(!header.contains(tensor.name), "tensor {} given twice", tensor.name);
    const uint64_t end = offset + tensor.data.size();
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  WEFT_ASSERT(length <= kMaxHeader, "a header of {} bytes", length);
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace

size_t dtype_size(const std::string& dtype) {
  const auto found = dtype_sizes().find(dtype);
  if (found == dtype_sizes().end()) fail("unknown dtype \"{}\"", dtype);
  return found->second;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text = header_text(file, where);
  SafetensorsHeader header;
  header.data_offset = sizeof(uint64_t) + text.size();
  const uint64_t data_size = file.size() - header.data_offset;
  const json parsed = parse_header_json(text, where);
  for (const auto& [name, value] : parsed.items()) {
    if (name != kMetadata) {
      header.tensors[name] = parse_tensor(value, data_size, where + ": tensor " + name);
      continue;
    }
    if (!value.is_object()) fail("{}: \"{}\" must be a JSON object", where, kMetadata);
    for (const auto& [key, entry] : value.items()) {
      if (!entry.is_string()) fail("{}: \"{}\": the value of \"{}\" must be a string", where, kMetadata, key);
      header.metadata[key] = entry.get<std::string>();
    }
  }
  check_tiling(header, data_size, where);
  return header;
}

SafetensorsFile::SafetensorsFile(Env& env, const std::string& path)
    : path_(path), file_(env.map(path)), header_(parse_safetensors(file_->bytes(), path)) {}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = header_.tensors.find(name);
  if (found != header_.tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [other, info] : header_.tensors) names.push_back(other);
  const std::string close = nearest(name, names);
  fail("{}: there is no tensor {}{}", path_, name, close.empty() ? "" : "; did you mean " + close + "?");
}

std::span<const std::byte> SafetensorsFile::data(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  return file_->bytes().subspan(header_.data_offset + tensor.begin, tensor.end - tensor.begin);
}

std::string write_safetensors(Env& env, const std::string& path, const std::vector<TensorToWrite>& tensors,
                              std::map<std::string, std::string> metadata) {
  metadata["format"] = "pt";  // HuggingFace readers refuse files without it
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(hash.get());
  const auto file = env.create(path);
  const auto append = [&](std::span<const std::byte> bytes) {
    XXH3_64bits_update(hash.get(), bytes.data(), bytes.size());
    file->append(bytes);
  };
  const std::string header = header_bytes(tensors, metadata);
  append(std::as_bytes(std::span(header)));
  for (const TensorToWrite& tensor : tensors) append(tensor.data);
  file->sync();
  file->close();
  return fmt::format("{:016x}", XXH3_64bits_digest(hash.get()));
}

}  // namespace weft
