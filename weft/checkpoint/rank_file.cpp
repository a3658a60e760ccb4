#include "weft/checkpoint/rank_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/checkpoint/tensor_io.h"

namespace weft {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFile::Part, box, whole)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFile, file, parts)

RankFile write_rank_file(Env& env, const std::string& dir, int64_t rank,
                         const std::vector<StateTensor>& tensors) {
  RankFile result;
  std::vector<TensorToWrite> to_write;
  std::map<std::string, TensorBox> boxes;
  for (const StateTensor& tensor : tensors) {
    const std::vector<int64_t>& shape = tensor.param->shape();
    const std::string& name = tensor.param->name();
    for (const auto& [first, box] : tensor.param->boxes(tensor.begin, tensor.begin + tensor.data.numel())) {
      const at::Tensor part = tensor.data.narrow(0, first - tensor.begin, box.numel()).view(box.shape());
      const TensorBox entry{box, tensor.kind, name};
      to_write.push_back(tensor_to_write(name_in_file(entry, shape), part));
      boxes[to_write.back().name] = entry;
      result.parts.push_back({entry, {safetensors_dtype(part.scalar_type()), shape}});
    }
  }
  result.file.name = rank_file_name(rank);
  const std::string path = dir + "/" + result.file.name;
  result.file.checksum = write_safetensors(env, path, to_write, {{kBoxesKey, boxes_text(boxes)}});
  result.file.bytes = env.map(path)->bytes().size();
  verify(env, dir, result.file);
  return result;
}

std::string to_text(const RankFile& file) { return nlohmann::json(file).dump(); }
RankFile parse_rank_file(const std::string& text) { return nlohmann::json::parse(text).get<RankFile>(); }

namespace {

/// Throws Error unless the boxes tile a tensor of this shape.
void check_tiling(std::vector<TensorBox> boxes, const std::vector<int64_t>& shape) {
  const std::string name = qualified_name(boxes.front().kind, boxes.front().name);
  const auto first_row = [](const TensorBox& box) { return box.begin.empty() ? 0 : box.begin[0]; };
  std::ranges::sort(boxes, {}, first_row);
  int64_t covered = 0;
  std::vector<const TensorBox*> open;  // those that may reach into the rows of the ones to come
  for (const TensorBox& box : boxes) {
    std::erase_if(
        open, [&](const TensorBox* other) { return !other->end.empty() && other->end[0] <= first_row(box); });
    for (const TensorBox* other : open)
      if (const auto common = intersection(*other, box))
        fail("{}: elements from [{}] to [{}] are in more than one of the ranks' files", name,
             fmt::join(common->begin, ", "), fmt::join(common->end, ", "));
    open.push_back(&box);
    covered += box.numel();
  }
  const int64_t numel = whole_box(shape).numel();
  if (covered != numel)
    fail("{}: {} of {} elements are in none of the ranks' files", name, numel - covered, numel);
}

}  // namespace

void enter(const std::vector<RankFile>& files, Checkpoint* checkpoint) {
  std::map<std::pair<std::string, std::string>, std::vector<TensorBox>> boxes;
  for (const RankFile& file : files) {
    checkpoint->files.push_back(file.file);
    for (const auto& [box, whole] : file.parts) {
      const auto [known, is_new] = checkpoint->tensors[box.kind].try_emplace(box.name, whole);
      if (known->second != whole)
        fail("{}: {} [{}] in {}, but {} [{}] in the files before it", qualified_name(box.kind, box.name),
             whole.dtype, fmt::join(whole.shape, ", "), file.file.name, known->second.dtype,
             fmt::join(known->second.shape, ", "));
      boxes[{box.kind, box.name}].push_back(box);
    }
  }
  for (const auto& [tensor, parts] : boxes)
    check_tiling(parts, checkpoint->tensors[tensor.first][tensor.second].shape);
}

void verify(Env& env, const std::string& dir, const CheckpointFile& expected) {
  const std::string path = dir + "/" + expected.name;
  const auto file = env.map(path);
  if (file->bytes().size() != expected.bytes)
    fail("{}: {} bytes, expected {}: the file is damaged", path, file->bytes().size(), expected.bytes);
  const std::string found = checksum(file->bytes());
  if (found != expected.checksum)
    fail("{}: checksum {}, expected {}: the file is damaged", path, found, expected.checksum);
}

}  // namespace weft
