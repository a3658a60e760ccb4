#include "weft/comm/agreement.h"

#include <filesystem>
#include <map>

#include <dlfcn.h>
#include <xxhash.h>

#include <fmt/format.h>

namespace weft {
namespace {

/// A file that runs here, and the hash of what is in it.
struct Program {
  std::string path, hash;
};

/// The executable, and this library.
std::vector<Program> programs() {
  Dl_info library{};
  dladdr(reinterpret_cast<const void*>(&check_agreement), &library);
  std::vector<Program> found;
  for (const std::string path : {"/proc/self/exe", library.dli_fname}) {
    const auto file = Env::system().map(path);
    const uint64_t hash = XXH3_64bits(file->bytes().data(), file->bytes().size());
    found.push_back({std::filesystem::canonical(path).string(), fmt::format("{:016x}", hash)});
  }
  return found;
}

/// Lines of "section.key is A there and B here".
std::string differences(const std::string& config, const std::string& first) {
  const auto values = toml_values(config), firsts = toml_values(first);
  const std::map<std::string, std::string> theirs(values.begin(), values.end());
  std::string text;
  for (const auto& [key, value] : firsts)
    if (const auto other = theirs.find(key); other == theirs.end() || other->second != value)
      text += fmt::format("\n  {} is {} there, and {} on the first", key,
                          other == theirs.end() ? "missing" : other->second, value);
  return text;
}

}  // namespace

void check_agreement(Group& group, const Config& config) {
  if (group.size() == 1) return;
  const auto& ranks = group.ranks();
  for (const Program& program : programs()) {
    const auto hashes = all_gather(group, program.hash), paths = all_gather(group, program.path);
    for (size_t rank = 1; rank < hashes.size(); ++rank)
      if (hashes[rank] != hashes[0])
        fail(
            "rank {} runs another build of Weft than rank {}: install the same one everywhere\n"
            "  rank {}: {} (hash {})\n  rank {}: {} (hash {})",
            ranks[rank], ranks[0], ranks[0], paths[0], hashes[0], ranks[rank], paths[rank], hashes[rank]);
  }
  const std::string own = to_toml(config);
  const auto hashes = all_gather(group, fmt::format("{:016x}", XXH3_64bits(own.data(), own.size())));
  for (size_t rank = 1; rank < hashes.size(); ++rank) {
    if (hashes[rank] == hashes[0]) continue;
    const auto texts = all_gather(group, own);  // only now: it is long, and ranks may be many
    fail("rank {} has another config than rank {}: start all ranks with the same one{}", ranks[rank],
         ranks[0], differences(texts[rank], texts[0]));
  }
}

}  // namespace weft
