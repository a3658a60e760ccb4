#include "weft/checkpoint/format.h"

#include <xxhash.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/json.h"

namespace weft {

using nlohmann::json;

namespace {

/// Throws Error if a number in `value`, where integers belong, is none: the library would cast it.
void refuse_fractions(const json& value, const std::string& path) {
  if (value.is_number_float()) fail("{}: {} where an integer belongs", path, value.dump());
  if (value.is_structured())
    for (const json& item : value) refuse_fractions(item, path);
}

/// What follows `body` in index.json: every byte of it is fixed by the body, so any change shows.
std::string index_tail(std::string_view body) {
  return fmt::format(",\n\"checksum\": \"{}\"\n}}\n", checksum(std::as_bytes(std::span(body))));
}

}  // namespace

const GlobalTensor* Checkpoint::find(const std::string& kind, const std::string& name) const {
  const auto of_kind = tensors.find(kind);
  if (of_kind == tensors.end()) return nullptr;
  const auto found = of_kind->second.find(name);
  return found == of_kind->second.end() ? nullptr : &found->second;
}

std::string step_name(int64_t step) { return fmt::format("step-{:08d}", step); }
std::string rank_file_name(int64_t rank) { return fmt::format("rank-{:05d}.safetensors", rank); }

std::string checksum(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string index_text(const Checkpoint& checkpoint) {
  const std::string state = checkpoint.state.dump();
  // JSON has no NaN or infinity: the dump would turn them into null.
  WEFT_ASSERT(json::parse(state) == checkpoint.state, "the state does not survive as JSON: {}", state);
  const std::string body =
      fmt::format("{{\n\"version\": {},\n\"step\": {},\n\"files\": {},\n\"tensors\": {},\n\"state\": {}",
                  kCheckpointVersion, checkpoint.step, json(checkpoint.files).dump(),
                  json(checkpoint.tensors).dump(), state);
  return body + index_tail(body);
}

Checkpoint parse_index(const std::string& text, const std::string& dir) {
  const std::string path = dir + "/" + kIndexFile;
  const size_t tail = index_tail("").size();
  if (text.size() < tail)
    fail("{}: {} bytes are too few for an index: the file is damaged", path, text.size());
  const std::string_view body = std::string_view(text).substr(0, text.size() - tail);
  if (!text.ends_with(index_tail(body)))
    fail("{}: its last line does not hold the checksum of the rest: the file is damaged", path);
  Checkpoint checkpoint;
  json index = parse_json(text, path);
  try {
    for (const char* key : {"version", "step", "files", "tensors"}) refuse_fractions(index.at(key), path);
    const int64_t version = index.at("version").get<int64_t>();
    if (version > kCheckpointVersion)
      throw NewerFormat(
          fmt::format("{}: written in version {} of the format, and this weft reads {}: use a newer weft",
                      path, version, kCheckpointVersion));
    checkpoint.dir = dir;
    checkpoint.step = index.at("step").get<int64_t>();
    index.at("files").get_to(checkpoint.files);
    index.at("tensors").get_to(checkpoint.tensors);
    checkpoint.state = std::move(index.at("state"));
  } catch (const json::exception& error) {
    fail("{}: not a checkpoint's index: {}", path, error.what());
  }
  for (const CheckpointFile& file : checkpoint.files)
    if (file.name.find('/') != std::string::npos) fail("{}: \"{}\" is not a file name", path, file.name);
  return checkpoint;
}

std::string qualified_name(const std::string& kind, const std::string& name) {
  return kind == kWeight ? name : kind + "." + name;
}

std::string name_in_file(const TensorBox& box, const std::vector<int64_t>& shape) {
  std::vector<std::string> ranges;
  bool whole = true;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    ranges.push_back(fmt::format("{}:{}", box.begin[dim], box.end[dim]));
    whole = whole && box.begin[dim] == 0 && box.end[dim] == shape[dim];
  }
  const std::string name = qualified_name(box.kind, box.name);
  return whole ? name : fmt::format("{}[{}]", name, fmt::join(ranges, ","));
}

std::string boxes_text(const std::map<std::string, TensorBox>& boxes) { return json(boxes).dump(); }

std::map<std::string, TensorBox> parse_boxes(const std::string& text, const std::string& path) {
  const std::string where = fmt::format("{}: \"{}\" in the metadata", path, kBoxesKey);
  const json boxes = parse_json(text, where);
  refuse_fractions(boxes, where);
  try {
    return boxes.get<std::map<std::string, TensorBox>>();
  } catch (const json::exception& error) {
    fail("{}: {}", where, error.what());
  }
}

}  // namespace weft
