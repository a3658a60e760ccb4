#include "weft/base/nearest.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("dmi", "dim"), 1u);  // a swap of neighbours is one edit
}

TEST(Nearest, SuggestsOnlyWhatIsClose) {
  const std::vector<std::string> keys = {"n_layers", "dim", "n_heads", "n_kv_heads", "head_dim"};
  EXPECT_EQ(nearest("n_layer", keys), "n_layers");
  EXPECT_EQ(nearest("dmi", keys), "dim");
  EXPECT_EQ(nearest("n_kv_head", keys), "n_kv_heads");
  EXPECT_EQ(nearest("tokenizer", keys), "");
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(nearest("dim", {}), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), keys), "");
}

}  // namespace
}  // namespace weft
