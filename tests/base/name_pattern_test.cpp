#include "weft/base/name_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_of.h"

namespace weft {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(NamePattern, FindsAMatchAnywhere) {
  const NamePattern pattern("layers\\.[01]\\.");
  EXPECT_TRUE(pattern.matches("model.layers.1.mlp.up_proj.weight"));
  EXPECT_FALSE(pattern.matches("model.layers.10.mlp.up_proj.weight"));
  EXPECT_THAT(error_of([] { NamePattern("(a"); }), StartsWith("not a regular expression: "));
  EXPECT_THAT(error_of([] { NamePattern(""); }), StartsWith("an empty regular expression"));
  EXPECT_THAT(error_of([] { NamePattern("a{9999999999}"); }), StartsWith("not a regular expression: "));
  EXPECT_THAT(error_of([] { NamePattern(std::string(100'000, '(')); }),
              StartsWith("not a regular expression: "));
}

TEST(NamePattern, GivesUpOnWhatWouldTakeForEver) {
  for (const char* text : {"(.|.)*[A-Z]", "(\\w+\\.?)+[A-Z]"})
    EXPECT_THAT(error_of([&] { NamePattern(text).matches("model.layers.10.mlp.up_proj.weight"); }),
                HasSubstr("backtracks too much on model.layers.10"));
}

TEST(LrMultiplier, IsARegexAndANumber) {
  const LrMultiplier multiplier = parse_lr_multiplier(" a=b|c =  2.5e-1 ");
  EXPECT_EQ(multiplier.pattern.text(), "a=b|c");
  EXPECT_EQ(multiplier.factor, 0.25);
  EXPECT_EQ(parse_lr_multiplier("embed=0").factor, 0);
  const auto problem = [](const std::string& text) { return error_of([&] { parse_lr_multiplier(text); }); };
  EXPECT_EQ(problem("embed"), "expected \"REGEX = NUMBER\"");
  for (const char* number : {"", "fast", "1x", "-1", "nan", "inf", "1e7"})
    EXPECT_EQ(problem(std::string("embed = ") + number),
              std::string("expected \"REGEX = NUMBER\" with a number in [0, 1e+06], not \"") + number + "\"");
  EXPECT_THAT(problem("[ = 1"), HasSubstr("not a regular expression"));
}

}  // namespace
}  // namespace weft
