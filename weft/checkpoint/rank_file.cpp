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

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFile::Part, kind, name, whole, begin, end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFile, file, parts)

RankFile write_rank_file(Env& env, const std::string& dir, int64_t rank,
                         const std::vector<StateTensor>& tensors) {
  RankFile result;
  std::vector<TensorToWrite> to_write;
  std::map<std::string, TensorBox> boxes;
  for (const StateTensor& tensor : tensors) {
    if (tensor.data.numel() == 0) continue;
    const std::vector<int64_t>& shape = tensor.param->shape();
    const std::string& name = tensor.param->name();
    const int64_t end = tensor.begin + tensor.data.numel();
    int64_t first = 0;
    for (Box& box : boxes_of_range(shape, tensor.begin, end)) {
      const at::Tensor part = tensor.data.narrow(0, first, box.numel()).view(box.shape());
      first += part.numel();
      const TensorBox entry{std::move(box), tensor.kind, name};
      to_write.push_back(tensor_to_write(name_in_file(entry, shape), part));
      boxes[to_write.back().name] = entry;
    }
    result.parts.push_back(
        {tensor.kind, name, {safetensors_dtype(tensor.data.scalar_type()), shape}, tensor.begin, end});
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

void enter(const std::vector<RankFile>& files, Checkpoint* checkpoint) {
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<int64_t, int64_t>>> ranges;
  for (const RankFile& file : files) {
    checkpoint->files.push_back(file.file);
    for (const RankFile::Part& part : file.parts) {
      const auto [known, is_new] = checkpoint->tensors[part.kind].try_emplace(part.name, part.whole);
      if (known->second != part.whole)
        fail("{}: {} [{}] in {}, but {} [{}] in the files before it", qualified_name(part.kind, part.name),
             part.whole.dtype, fmt::join(part.whole.shape, ", "), file.file.name, known->second.dtype,
             fmt::join(known->second.shape, ", "));
      ranges[{part.kind, part.name}].emplace_back(part.begin, part.end);
    }
  }
  for (auto& [tensor, parts] : ranges) {
    const auto& [kind, name] = tensor;
    const std::vector<int64_t>& shape = checkpoint->tensors[kind][name].shape;
    const int64_t numel = Box{std::vector<int64_t>(shape.size(), 0), shape}.numel();
    parts.emplace_back(numel, numel);
    std::sort(parts.begin(), parts.end());
    int64_t covered = 0;
    for (const auto& [begin, end] : parts) {
      if (begin != covered)
        fail("{}: elements [{}, {}) are in {} of the ranks' files", qualified_name(kind, name),
             std::min(begin, covered), std::max(begin, covered), begin > covered ? "none" : "more than one");
      covered = end;
    }
  }
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
