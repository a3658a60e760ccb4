#include "weft/base/distinct_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using testing::ElementsAre;

TEST(DistinctNames, AreAsShortAsTheyCanBe) {
  EXPECT_THAT(distinct_names({"data/books"}), ElementsAre("books"));
  EXPECT_THAT(distinct_names({"books/valid", "web/valid", "code/test"}),
              ElementsAre("books/valid", "web/valid", "test"));
  EXPECT_THAT(distinct_names({"a/x/v", "b/x/v"}), ElementsAre("a/x/v", "b/x/v"));
  EXPECT_THAT(distinct_names({"v", "web/v"}), ElementsAre("v", "web/v"));
  EXPECT_THAT(distinct_names({"same/v", "same/v"}), ElementsAre("v", "v"));
}

}  // namespace
}  // namespace weft
