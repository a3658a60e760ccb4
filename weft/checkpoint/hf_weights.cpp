#include "weft/checkpoint/hf_weights.h"

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/safetensors.h"
#include "weft/checkpoint/tensor_io.h"
#include "weft/param/param_unit.h"

namespace weft {
namespace {

const std::set<std::string> kFloatDtypes = {"F64", "F32", "F16", "BF16"};

/// The shards that model.safetensors.index.json lists.
std::set<std::string> shard_names(Env& env, const std::string& index) {
  std::set<std::string> names;
  try {
    const auto json = nlohmann::json::parse(env.read(index));
    for (const auto& [tensor, file] : json.at("weight_map").items()) names.insert(file.get<std::string>());
  } catch (const nlohmann::json::exception& error) {
    fail("{}: a JSON object with a \"weight_map\" from tensors to files was expected: {}", index,
         error.what());
  }
  for (const std::string& name : names)
    if (name.find('/') != std::string::npos) fail("{}: \"{}\" is not a file name", index, name);
  return names;
}

std::vector<SafetensorsFile> open_files(Env& env, const std::string& dir) {
  const std::string single = dir + "/model.safetensors", index = single + ".index.json";
  std::vector<SafetensorsFile> files;
  if (env.exists(single))
    files.emplace_back(env, single);
  else if (env.exists(index))
    for (const std::string& name : shard_names(env, index)) files.emplace_back(env, dir + "/" + name);
  else
    fail(
        "{}: neither model.safetensors nor model.safetensors.index.json is there (weights in .bin files must "
        "be "
        "converted to safetensors first)",
        dir);
  return files;
}

/// Which file holds each tensor.
std::map<std::string, const SafetensorsFile*> locate(const std::vector<SafetensorsFile>& files) {
  std::map<std::string, const SafetensorsFile*> where;
  for (const SafetensorsFile& file : files)
    for (const auto& [name, info] : file.header().tensors) {
      const auto [other, is_new] = where.emplace(name, &file);
      if (!is_new) fail("{}: tensor {} is in {} too", file.path(), name, other->second->path());
    }
  return where;
}

/// The whole tensor of which a param is a part, as the file stores it.
std::vector<int64_t> shape_in_file(const HfPlace& place, const Param& param) {
  std::vector<int64_t> shape = param.shape();
  shape[0] = place.groups * place.group_rows;
  if (place.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// The param's rows of the whole tensor [rows, ...] (not transposed), as a view [groups, rows of the group,
/// ...].
at::Tensor rows_of(const at::Tensor& whole, const HfPlace& place, const Param& param) {
  return whole.unflatten(0, {place.groups, place.group_rows})
      .narrow(1, place.begin, param.shape()[0] / place.groups);
}

HfPlace place_of(const HfNames& names, const Param& param) {
  return names.place(param.name(), param.shape()[0]);
}

/// The name under which the files hold a tensor: some leave the type's prefix out.
std::string name_in_files(const std::string& name,
                          const std::map<std::string, const SafetensorsFile*>& where) {
  static const std::string prefix = "transformer.";
  if (where.count(name) || !name.starts_with(prefix)) return name;
  const std::string bare = name.substr(prefix.size());
  return where.count(bare) ? bare : name;
}

/// What is wrong with a tensor of the file, or "".
std::string mismatch(const std::string& name, const TensorInfo& info, const std::vector<int64_t>& shape) {
  if (info.shape != shape)
    return fmt::format("{}: [{}] in the file, [{}] in the model", name, fmt::join(info.shape, ", "),
                       fmt::join(shape, ", "));
  if (!kFloatDtypes.count(info.dtype))
    return fmt::format("{}: {} in the file, only {} can be read", name, info.dtype,
                       fmt::join(kFloatDtypes, ", "));
  return "";
}

/// Tensors that some files hold though nothing is lost without them. Only called for names that are no
/// param's.
bool is_redundant(const std::string& name) {
  // The last two are GPT-2's causal mask.
  for (const char* ending : {"rotary_emb.inv_freq", "rotary.inv_freq", ".attn.bias", ".attn.masked_bias"})
    if (name.ends_with(ending)) return true;
  return name == "lm_head.weight";
}

}  // namespace

void load_hf_weights(Env& env, const std::string& dir, const HfNames& names,
                     const std::vector<Param*>& params) {
  const std::vector<SafetensorsFile> files = open_files(env, dir);
  const auto where = locate(files);
  std::vector<std::string> problems;
  std::set<std::string> expected;
  for (const Param* param : params) {
    const HfPlace place = place_of(names, *param);
    const std::string name = name_in_files(place.name, where);
    if (!expected.insert(name).second) continue;  // several params share it
    const auto file = where.find(name);
    const std::string problem = file == where.end()
                                    ? name + ": not in the file"
                                    : mismatch(name, file->second->info(name), shape_in_file(place, *param));
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const auto& [name, file] : where)
    if (!expected.count(name) && !is_redundant(name))
      problems.push_back(name + ": in the file, but not in the model");
  if (!problems.empty())
    fail("the weights in {} do not fit the model:\n  {}\nDoes config.json in the same folder describe them?",
         dir, fmt::join(problems, "\n  "));
  for (const Param* param : params) {
    const HfPlace place = place_of(names, *param);
    const std::string name = name_in_files(place.name, where);
    const at::Tensor stored = read_tensor(*where.at(name), name);
    const at::Tensor rows = rows_of(place.transposed ? stored.t() : stored, place, *param);
    param->unit().set_master(*param, rows);
  }
}

std::vector<std::pair<std::string, at::Tensor>> hf_tensors(
    const HfNames& names, const std::vector<Param*>& params,
    const std::function<at::Tensor(const Param&)>& tensor_of) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::map<std::string, at::Tensor> wholes;  // as the params are, not transposed
  for (const Param* param : params) {
    const HfPlace place = place_of(names, *param);
    std::vector<int64_t> shape = shape_in_file(place, *param);
    if (place.transposed) std::swap(shape[0], shape[1]);
    const at::Tensor part = tensor_of(*param);
    const auto [whole, is_new] = wholes.try_emplace(place.name);
    if (is_new) {
      whole->second = at::empty(shape, part.options());
      tensors.emplace_back(place.name, place.transposed ? whole->second.t() : whole->second);
    }
    at::Tensor rows = rows_of(whole->second, place, *param);
    rows.copy_(part.reshape(rows.sizes()));
  }
  for (auto& [name, tensor] : tensors) tensor = tensor.contiguous();
  return tensors;
}

}  // namespace weft
