// Filling tensors from a checkpoint: its tensors lie in any number of files, in boxes that together tile
// them.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/safetensors.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/tensor_io.h"

namespace weft {
namespace {

/// A box, and the tensor of a rank file that holds it.
struct Piece {
  Box box;
  const SafetensorsFile* file;
  std::string name;  // in the file
};

using Pieces = std::map<std::pair<std::string, std::string>, std::vector<Piece>>;  // by kind and name

std::string describe(const GlobalTensor& tensor) {
  return fmt::format("{} [{}]", tensor.dtype, fmt::join(tensor.shape, ", "));
}

/// Compares the checkpoint's tensors of the kinds that are asked for with the model's.
void check_fit(const Checkpoint& checkpoint, const std::vector<StateTensor>& into) {
  std::vector<std::string> problems;
  std::set<std::string> kinds, names;
  for (const StateTensor& tensor : into) {
    kinds.insert(tensor.kind), names.insert(tensor.param->name());
    const std::string name = qualified_name(tensor.kind, tensor.param->name());
    const GlobalTensor* found = checkpoint.find(tensor.kind, tensor.param->name());
    if (!found) {
      problems.push_back(name + ": not in the checkpoint");
      continue;
    }
    const std::string saved = describe(*found);
    const std::string wanted =
        describe({safetensors_dtype(tensor.data.scalar_type()), tensor.param->shape()});
    if (saved != wanted)
      problems.push_back(fmt::format("{}: {} in the checkpoint, {} in the model", name, saved, wanted));
  }
  for (const auto& [kind, tensors] : checkpoint.tensors)
    for (const auto& [name, tensor] : tensors)
      if (kinds.contains(kind) && !names.contains(name))
        problems.push_back(qualified_name(kind, name) + ": in the checkpoint, but not in the model");
  if (problems.empty()) return;
  fail(
      "{} does not fit the model:\n  {}\nContinue with the [model], [optim] and precision.compute it was "
      "saved with, or "
      "start afresh in another log.run_dir.",
      checkpoint.dir, fmt::join(problems, "\n  "));
}

/// Throws Error unless the box lies inside the tensor and the file holds as much as it says.
void check_piece(const Piece& piece, const GlobalTensor& whole) {
  const TensorInfo& info = piece.file->info(piece.name);
  const Box& box = piece.box;
  const size_t dims = whole.shape.size();
  bool good = info.dtype == whole.dtype && info.shape.size() == dims && box.begin.size() == dims &&
              box.end.size() == dims;
  for (size_t dim = 0; good && dim < dims; ++dim)
    good = 0 <= box.begin[dim] && box.end[dim] <= whole.shape[dim] &&
           box.end[dim] - box.begin[dim] == info.shape[dim];
  if (!good)
    fail("{}: tensor {}, {}, is no piece of {}, {}", piece.file->path(), piece.name,
         describe({info.dtype, info.shape}), qualified_name(box.kind, box.name), describe(whole));
}

/// All pieces in the files that belong to the tensors of `checkpoint`.
Pieces collect(const Checkpoint& checkpoint, const std::vector<SafetensorsFile>& files) {
  Pieces pieces;
  for (const SafetensorsFile& file : files) {
    const auto& metadata = file.header().metadata;
    if (!metadata.count(kBoxesKey)) fail("{}: no \"{}\" in the metadata", file.path(), kBoxesKey);
    for (const auto& [name, box] : parse_boxes(metadata.at(kBoxesKey), file.path())) {
      const auto kind = checkpoint.tensors.find(box.kind);
      if (kind == checkpoint.tensors.end() || !kind->second.count(box.name))
        fail("{}: tensor {} is not in the index", file.path(), name);
      const Piece piece{box, &file, name};
      check_piece(piece, kind->second.at(box.name));
      pieces[{box.kind, box.name}].push_back(piece);
    }
  }
  return pieces;
}

bool overlap(const Box& a, const Box& b) {
  for (size_t dim = 0; dim < a.begin.size(); ++dim)
    if (std::max(a.begin[dim], b.begin[dim]) >= std::min(a.end[dim], b.end[dim])) return false;
  return true;
}

/// Boxes inside a tensor tile it if no two overlap and they have as many elements together.
void check_tiling(const std::vector<Piece>& pieces, const std::string& name, int64_t numel) {
  int64_t covered = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    int64_t volume = 1;
    for (const int64_t size : pieces[i].file->info(pieces[i].name).shape) volume *= size;
    covered += volume;
    for (size_t j = 0; j < i; ++j)
      if (overlap(pieces[j].box, pieces[i].box))
        fail("{}: tensor {} overlaps tensor {} of {}", pieces[i].file->path(), pieces[i].name, pieces[j].name,
             pieces[j].file->path());
  }
  if (covered != numel)
    fail("{}: only {} of its {} elements are in the files of the checkpoint", name, covered, numel);
}

void copy_piece(const Piece& piece, at::Tensor whole) {
  for (size_t dim = 0; dim < piece.box.begin.size(); ++dim)
    whole = whole.narrow(int64_t(dim), piece.box.begin[dim], piece.box.end[dim] - piece.box.begin[dim]);
  whole.copy_(read_tensor(*piece.file, piece.name));
}

}  // namespace

void load_checkpoint(Env& env, const Checkpoint& checkpoint, const std::vector<StateTensor>& into) {
  check_fit(checkpoint, into);
  std::vector<SafetensorsFile> files;
  for (const CheckpointFile& file : checkpoint.files)
    files.emplace_back(env, checkpoint.dir + "/" + file.name);
  Pieces pieces = collect(checkpoint, files);
  for (const StateTensor& tensor : into) {
    const auto& found = pieces[{tensor.kind, tensor.param->name()}];
    check_tiling(found, checkpoint.dir + ": " + qualified_name(tensor.kind, tensor.param->name()),
                 tensor.param->numel());
    for (const Piece& piece : found) copy_piece(piece, tensor.data.view(tensor.param->shape()));
  }
}

void load_weights(Env& env, const Checkpoint& checkpoint, const std::vector<Param*>& params,
                  const char* kind) {
  std::vector<StateTensor> into;
  for (const Param* param : params) into.push_back({kind, param, param->weight()});
  load_checkpoint(env, checkpoint, into);
}

}  // namespace weft
