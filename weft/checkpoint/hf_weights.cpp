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

/// What is wrong with a tensor of the file, or "".
std::string mismatch(const TensorInfo& info, const Param& param) {
  if (info.shape != param.shape())
    return fmt::format("{}: [{}] in the file, [{}] in the model", param.name(), fmt::join(info.shape, ", "),
                       fmt::join(param.shape(), ", "));
  if (!kFloatDtypes.count(info.dtype))
    return fmt::format("{}: {} in the file, only {} can be read", param.name(), info.dtype,
                       fmt::join(kFloatDtypes, ", "));
  return "";
}

/// Tensors that some files hold though nothing is lost without them. Only called for names that are no
/// param's.
bool is_redundant(const std::string& name) {
  return name == "lm_head.weight" || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

void load_hf_weights(Env& env, const std::string& dir, const std::vector<Param*>& params) {
  const std::vector<SafetensorsFile> files = open_files(env, dir);
  const auto where = locate(files);
  std::vector<std::string> problems;
  std::set<std::string> expected;
  for (const Param* param : params) {
    expected.insert(param->name());
    const auto file = where.find(param->name());
    const std::string problem = file == where.end() ? param->name() + ": not in the file"
                                                    : mismatch(file->second->info(param->name()), *param);
    if (!problem.empty()) problems.push_back(problem);
  }
  for (const auto& [name, file] : where)
    if (!expected.count(name) && !is_redundant(name))
      problems.push_back(name + ": in the file, but not in the model");
  if (!problems.empty())
    fail("the weights in {} do not fit the model:\n  {}\nDoes config.json in the same folder describe them?",
         dir, fmt::join(problems, "\n  "));
  for (const Param* param : params)
    param->weight().copy_(read_tensor(*where.at(param->name()), param->name()));
}

}  // namespace weft
