// Runs the fuzzers' targets on their seed corpora, so that what a fuzzer once found stays mended. A seed must
// be accepted, unless its name begins with "refused".
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/env.h"
#include "weft/base/error.h"

#include "fuzz/targets.h"

namespace weft {
namespace {

struct Seed {
  fuzz::Target target;
  std::string path;
  std::string name() const { return std::filesystem::path(path).stem().string(); }
};

void PrintTo(const Seed& seed, std::ostream* out) { *out << seed.path; }

std::vector<Seed> seeds() {
  std::vector<Seed> found;
  for (const fuzz::Target& target : fuzz::kTargets) {
    const std::string corpus = std::string(WEFT_FUZZ_CORPUS "/") + target.name;
    const std::vector<std::string> names = Env::system().list(corpus);
    if (names.empty()) found.push_back({target, corpus + "/absent"});
    for (const std::string& name : names) found.push_back({target, corpus + "/" + name});
  }
  return found;
}

class FuzzReplay : public testing::TestWithParam<Seed> {};

TEST_P(FuzzReplay, Seed) {
  const std::string input = Env::system().read(GetParam().path);
  std::string refusal;
  try {
    GetParam().target.run(input);
  } catch (const Error& error) {
    refusal = error.what();
  }
  EXPECT_EQ(!refusal.empty(), GetParam().name().starts_with("refused")) << refusal;
}

INSTANTIATE_TEST_SUITE_P(Corpus, FuzzReplay, testing::ValuesIn(seeds()), [](const auto& test) {
  std::string name = test.param.target.name + ("_" + test.param.name());
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

}  // namespace
}  // namespace weft
