#include "weft/nn/architecture.h"

#include <filesystem>
#include <map>

#include <dlfcn.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/nn/layers.h"

namespace weft {
namespace {

// By name; of several under one name none is used.
std::map<std::string, std::vector<ArchitectureBuilder>>& builders() {
  static std::map<std::string, std::vector<ArchitectureBuilder>> all = {
      {"decoder", {stack_of<DecoderLayer>}}};
  return all;
}

void load_plugin(const std::string& path) {
  // As a path, else the loader would search the system's directories.
  const std::string absolute = std::filesystem::absolute(path).string();
  if (!std::filesystem::exists(absolute))
    fail("model.plugins: there is no {} (paths count from where weft is started)", absolute);
  if (!dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL))
    fail("model.plugins: cannot load {}: {}\nBuild it against this version of Weft.", path, dlerror());
}

}  // namespace

bool register_architecture(const std::string& name, ArchitectureBuilder build) {
  builders()[name].push_back(std::move(build));
  return true;
}

Architecture build_architecture(const ModelConfig& model, const NewUnit& new_unit) {
  for (const std::string& path : model.plugins) load_plugin(path);
  const auto found = builders().find(model.architecture);
  if (found == builders().end()) {
    std::vector<std::string> known;
    for (const auto& [name, of_that_name] : builders()) known.push_back(name);
    fail(
        "model.architecture = \"{}\" is not known: there is \"{}\"; model.plugins names the libraries that "
        "add others",
        model.architecture, fmt::join(known, "\", \""));
  }
  if (found->second.size() > 1)
    fail("{} architectures are called \"{}\": a library in model.plugins must use another name",
         found->second.size(), model.architecture);
  Architecture all(new_unit);
  found->second.front()(model, all);
  if (all.blocks().empty() || !all.head())
    fail("architecture \"{}\" has {} blocks and {} head: it needs an embedding at least, and a head",
         model.architecture, all.blocks().size(), all.head() ? "a" : "no");
  return all;
}

}  // namespace weft
