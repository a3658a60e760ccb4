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
#include "weft/param/param_unit.h"

namespace weft {
namespace {

/// A box, and the tensor of a rank file that holds it.
struct Piece {
  TensorBox box;
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
  const TensorBox& box = piece.box;
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

/// Copies from the pieces of the whole tensor what lies in this rank's part of it. They tile the part if no
/// two overlap and they have as many elements of it together.
void fill(const StateTensor& tensor, const std::vector<Piece>& pieces, const std::string& dir) {
  const int64_t end = tensor.begin + tensor.data.numel();
  std::vector<std::pair<Box, at::Tensor>> places;
  int64_t filled = 0, wanted = 0;
  for (const auto& [first, box] : tensor.param->boxes(tensor.begin, end)) {
    places.emplace_back(box, tensor.data.narrow(0, first - tensor.begin, box.numel()).view(box.shape()));
    wanted += box.numel();
  }
  std::vector<const Piece*> used;
  for (const Piece& piece : pieces) {
    const int64_t before = filled;
    for (const auto& [box, place] : places) {
      const auto common = intersection(box, piece.box);
      if (!common) continue;
      narrowed(place, box, *common).copy_(narrowed(read_tensor(*piece.file, piece.name), piece.box, *common));
      filled += common->numel();
    }
    if (filled == before) continue;
    for (const Piece* other : used)
      if (intersection(other->box, piece.box))
        fail("{}: tensor {} overlaps tensor {} of {}", piece.file->path(), piece.name, other->name,
             other->file->path());
    used.push_back(&piece);
  }
  if (filled != wanted)
    fail("{}: {}: only {} of {} elements that this rank needs are in the files of the checkpoint", dir,
         qualified_name(tensor.kind, tensor.param->name()), filled, wanted);
}

}  // namespace

void load_checkpoint(Env& env, const Checkpoint& checkpoint, const std::vector<StateTensor>& into) {
  check_fit(checkpoint, into);
  std::vector<SafetensorsFile> files;
  for (const CheckpointFile& file : checkpoint.files)
    files.emplace_back(env, checkpoint.dir + "/" + file.name);
  const Pieces pieces = collect(checkpoint, files);
  for (const StateTensor& tensor : into) {
    const auto found = pieces.find({tensor.kind, tensor.param->name()});
    fill(tensor, found == pieces.end() ? std::vector<Piece>() : found->second, checkpoint.dir);
  }
}

void load_weights(Env& env, const Checkpoint& checkpoint, const std::vector<Param*>& params,
                  const char* kind) {
  std::vector<StateTensor> into;
  for (const Param* param : params) {
    const Shard& shard = param->unit().shard();
    param->unit().for_params_in(
        shard.begin, shard.end(), [&](const Param& other, int64_t begin, int64_t end) {
          if (&other == param)
            into.push_back({kind, param, begin, shard.part_of(shard.master, *param, begin, end)});
        });
  }
  load_checkpoint(env, checkpoint, into);
}

}  // namespace weft
