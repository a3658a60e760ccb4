#include "weft/parity/table.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>

#include "tests/base/error_of.h"
#include "tests/base/memory_env.h"

namespace weft {
namespace {

using testing::HasSubstr;

ParityTable read(const std::string& text) {
  MemoryEnv env({{"dir/table.toml", text}});
  return read_parity_table("dir/table.toml", env);
}

const char* const kTable =
    "base = 'base.toml'\n"
    "bound = 1e-6\n"
    "[variant]\n"
    "model = ['', 'a.b=1 a.c=2']\n"
    "[layout]\n"
    "mesh = ['ranks=1', 'ranks=4 p.r=2', 'ranks=3']\n"
    "zero = ['p.z=0', 'p.z=1', 'p.z=2', 'p.z=3']\n"
    "on = ['x=0', 'x=1']\n";

TEST(ParityTable, ReadsFactorsAndCrossesThem) {
  const ParityTable table = read(kTable);
  EXPECT_EQ(table.base, "dir/base.toml");
  EXPECT_EQ(table.bound, 1e-6);
  EXPECT_EQ(table.weights_bound, 1e-6);
  ASSERT_EQ(table.factors.size(), 4u);
  const std::vector<ParityRow> rows = all_rows(table);
  EXPECT_EQ(rows.size(), 2u * 3 * 4 * 2);
  std::set<std::vector<std::string>> seen;
  for (const ParityRow& row : rows) {
    EXPECT_TRUE(row.variant.empty() || row.variant == (std::vector<std::string>{"a.b=1", "a.c=2"}));
    EXPECT_EQ(std::ranges::count(row.layout, "p.r=2"), row.ranks == 4);
    std::vector<std::string> whole = row.layout;
    whole.push_back(std::to_string(row.ranks));
    whole.insert(whole.end(), row.variant.begin(), row.variant.end());
    seen.insert(whole);
  }
  EXPECT_EQ(seen.size(), rows.size());
}

TEST(ParityTable, EachPairOfChoicesMeetsInFewRows) {
  const ParityTable table = read(kTable);
  const std::vector<ParityRow> rows = pairwise_rows(table);
  EXPECT_GE(rows.size(), 12u) << "mesh x zero alone";
  EXPECT_LE(rows.size(), 14u);
  const auto has = [](const ParityRow& row, const std::string& word) {
    if (word.starts_with("ranks=")) return row.ranks == std::stoll(word.substr(6));
    if (word == "plain") return row.variant.empty();
    return std::ranges::count(row.layout, word) + std::ranges::count(row.variant, word) > 0;
  };
  const std::vector<std::vector<std::string>> factors = {{"plain", "a.b=1"},
                                                         {"ranks=1", "ranks=4", "ranks=3"},
                                                         {"p.z=0", "p.z=1", "p.z=2", "p.z=3"},
                                                         {"x=0", "x=1"}};
  for (size_t f = 0; f < factors.size(); ++f)
    for (size_t g = 0; g < f; ++g)
      for (const std::string& a : factors[f])
        for (const std::string& b : factors[g])
          EXPECT_TRUE(
              std::ranges::any_of(rows, [&](const ParityRow& row) { return has(row, a) && has(row, b); }))
              << a << " and " << b;
}

TEST(ParityTable, OneFactorIsEachOfItsChoices) {
  EXPECT_EQ(pairwise_rows(read("base = 'b'\n[layout]\nmesh = ['ranks=1', 'ranks=2']\n")).size(), 2u);
}

TEST(ParityTable, TellsWhatIsWrong) {
  const auto error = [](const std::string& text) { return error_of([&] { read(text); }); };
  EXPECT_THAT(error("[layout]\na = ['x=1']\n"), HasSubstr("dir/table.toml: base is missing"));
  EXPECT_THAT(error("base = 'b'\n"), HasSubstr("no factors"));
  EXPECT_THAT(error("base = 'b'\nwrong = 1\n"), HasSubstr("dir/table.toml:2: wrong is none of"));
  EXPECT_THAT(error("base = 'b'\n[layout]\na = []\n"), HasSubstr(":3: a must be a list of choices"));
  EXPECT_THAT(error("base = 'b'\n[layout]\na = [1]\n"), HasSubstr(":3: a choice of a is not a text"));
  EXPECT_THAT(error("base = 'b'\n[layout]\na = ['zero']\n"), HasSubstr("\"zero\" in a choice of a"));
  EXPECT_THAT(error("base = 'b'\n[layout]\na = ['ranks=x']\n"), HasSubstr("ranks=x: expected a number"));
  EXPECT_THAT(error("base = 'b'\n[variant]\na = ['ranks=2']\n"), HasSubstr("belongs to [layout]"));
  EXPECT_THAT(error("base = 'b'\nbound = -1\n[layout]\na = ['x=1']\n"), HasSubstr("bounds must be above 0"));
  EXPECT_THAT(error("base = \n"), HasSubstr("dir/table.toml:1: "));
}

}  // namespace
}  // namespace weft
