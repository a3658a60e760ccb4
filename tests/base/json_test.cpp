#include "weft/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_of.h"

namespace weft {
namespace {

using testing::HasSubstr;

std::string nested(int depth) { return std::string(size_t(depth), '[') + std::string(size_t(depth), ']'); }

std::string refusal(const std::string& text) {
  return error_of([&] { parse_json(text, "f.json"); });
}

TEST(Json, IsReadWithItsNumbersAndOrder) {
  EXPECT_EQ(parse_json(R"({"a": [1, -2.5e3, null], "b": {}})", "f.json").at("a")[1], -2500.0);
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})", "f.json").dump(), R"({"b":1,"a":2})");
}

TEST(Json, IsRefusedWithItsPlaceIfItIsNone) {
  for (const char* text : {"", "{", "{\"a\": 1}}", "\"\xff\"", "1e400"})
    EXPECT_THAT(refusal(text), HasSubstr("f.json: not valid JSON")) << text;
  EXPECT_THAT(refusal("{\n!"), HasSubstr("line 2"));
}

TEST(Json, IsRefusedIfItNestsTooDeeply) {
  EXPECT_EQ(refusal(nested(kMaxJsonDepth)), "no error");
  EXPECT_EQ(refusal(nested(kMaxJsonDepth + 1)), "f.json: JSON nested more than 100 deep");
  EXPECT_EQ(refusal(nested(1'000'000)), "f.json: JSON nested more than 100 deep");
  EXPECT_EQ(refusal(std::string(1'000'000, '[')), "f.json: JSON nested more than 100 deep");
}

}  // namespace
}  // namespace weft
