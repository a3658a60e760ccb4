#include "weft/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/error_of.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Ranks = std::vector<int64_t>;

Mesh mesh(int64_t dp_replicate, int64_t dp_shard, int64_t ranks, int64_t tp = 1) {
  ParallelConfig parallel;
  parallel.dp_replicate = dp_replicate, parallel.dp_shard = dp_shard, parallel.tp = tp;
  return Mesh(parallel, ranks);
}

std::string error_of_mesh(int64_t dp_replicate, int64_t dp_shard, int64_t ranks, int64_t tp = 1) {
  return error_of([&] { mesh(dp_replicate, dp_shard, ranks, tp); });
}

TEST(Mesh, LaysRanksOutRowMajor) {
  const Mesh m = mesh(2, 3, 6);
  EXPECT_EQ(m.size(Axis::dp_replicate), 2);
  EXPECT_EQ(m.size(Axis::dp_shard), 3);
  EXPECT_EQ(m.size(Axis::tp), 1);
  EXPECT_EQ(m.size(kDataAxes), 6);
  for (int64_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(m.coordinate(rank, Axis::pp), 0);
    EXPECT_EQ(m.coordinate(rank, Axis::dp_replicate), rank / 3);
    EXPECT_EQ(m.coordinate(rank, Axis::dp_shard), rank % 3);
    EXPECT_EQ(m.coordinate(rank, kDataAxes), rank);
  }
}

TEST(Mesh, GroupsDifferOnTheirAxesOnly) {
  const Mesh m = mesh(2, 3, 6);
  EXPECT_EQ(m.group(4, {Axis::dp_shard}), (Ranks{3, 4, 5}));
  EXPECT_EQ(m.group(4, {Axis::dp_replicate}), (Ranks{1, 4}));
  EXPECT_EQ(m.group(4, kDataAxes), (Ranks{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(m.group(4, {Axis::tp}), (Ranks{4}));
  EXPECT_EQ(m.group(4, {}), (Ranks{4}));
  EXPECT_THAT(m.groups({Axis::dp_shard}), ElementsAre(Ranks{0, 1, 2}, Ranks{3, 4, 5}));
  EXPECT_THAT(m.groups({Axis::dp_replicate}), ElementsAre(Ranks{0, 3}, Ranks{1, 4}, Ranks{2, 5}));
}

TEST(Mesh, NeighboursAlongTpAreNeighbouringRanks) {
  const Mesh m = mesh(1, -1, 12, 3);
  EXPECT_EQ(m.size(Axis::dp_shard), 4);
  EXPECT_EQ(m.group(7, {Axis::tp}), (Ranks{6, 7, 8}));
  EXPECT_EQ(m.group(7, {Axis::dp_shard}), (Ranks{1, 4, 7, 10}));
}

TEST(Mesh, EachSetOfAxesDividesTheRanks) {
  for (const auto& [replicate, shard] : {std::pair{1, 1}, {1, 7}, {7, 1}, {4, 6}, {5, 13}}) {
    const Mesh m = mesh(replicate, shard, replicate * shard);
    for (const Axes& axes : {Axes{}, Axes{Axis::dp_shard}, Axes{Axis::dp_replicate}, kDataAxes}) {
      std::vector<int64_t> seen;
      for (const Ranks& group : m.groups(axes)) {
        EXPECT_EQ(int64_t(group.size()), m.size(axes));
        for (size_t i = 0; i < group.size(); ++i) {
          EXPECT_EQ(m.coordinate(group[i], axes), int64_t(i)) << "the order of the coordinates";
          EXPECT_EQ(m.group(group[i], axes), group);
        }
        seen.insert(seen.end(), group.begin(), group.end());
      }
      std::ranges::sort(seen);
      for (int64_t rank = 0; rank < m.ranks(); ++rank) ASSERT_EQ(seen.at(size_t(rank)), rank);
    }
  }
}

TEST(Mesh, MinusOneIsWhatIsLeft) {
  EXPECT_EQ(mesh(1, -1, 7).size(Axis::dp_shard), 7);
  EXPECT_EQ(mesh(3, -1, 12).size(Axis::dp_shard), 4);
  EXPECT_EQ(mesh(12, -1, 12).size(Axis::dp_shard), 1);
  EXPECT_EQ(mesh(1, -1, 1).size(Axis::dp_shard), 1);
}

TEST(Mesh, TellsOfEverySizeThatDoesNotFitWithThoseThatDo) {
  EXPECT_THAT(error_of_mesh(5, 7, 12),
              AllOf(HasSubstr("the mesh does not fit 12 ranks"), HasSubstr("parallel.dp_replicate = 5"),
                    HasSubstr("parallel.dp_shard = 7 does not divide 12 ranks: "
                              "1, 2, 3, 4, 6, 12 would")));
  EXPECT_THAT(error_of_mesh(2, 1, 7), AllOf(HasSubstr("parallel.dp_replicate = 2"), HasSubstr("1, 7 would"),
                                            Not(HasSubstr("dp_shard = 1 does"))));
  EXPECT_THAT(error_of_mesh(13, -1, 12), HasSubstr("parallel.dp_replicate = 13"));
  // Each divides, and their product is too little, or too much.
  EXPECT_THAT(
      error_of_mesh(2, 3, 12),
      HasSubstr("parallel.dp_shard x dp_replicate x tp = 3 x 2 x 1 = 6, and there are 12 ranks: it would "
                "fit with dp_shard = 6 (or -1), or dp_replicate = 4, or tp = 2"));
  EXPECT_THAT(error_of_mesh(4, 6, 12),
              HasSubstr("6 x 4 x 1 = 24, and there are 12 ranks: it would fit with dp_shard = 3 (or -1), or "
                        "dp_replicate = 2"));
  EXPECT_THAT(error_of_mesh(2, -1, 6, 2),
              HasSubstr("parallel.dp_replicate x tp = 2 x 2 = 4, and there are 6"));
}

TEST(DescribeMesh, ShowsWhoIsWhere) {
  EXPECT_EQ(describe(mesh(2, 3, 6)),
            "6 ranks: dp_replicate 2 x dp_shard 3\n"
            "\n"
            "       rank  dp_replicate      dp_shard\n"
            "          0             0             0\n"
            "          1             0             1\n"
            "          2             0             2\n"
            "          3             1             0\n"
            "          4             1             1\n"
            "          5             1             2\n"
            "\n"
            "  groups                    many x size  ranks\n"
            "  dp_replicate                 3 x 2     {0, 3}  {1, 4}  {2, 5}\n"
            "  dp_shard                     2 x 3     {0-2}  {3-5}\n"
            "  dp_replicate x dp_shard      1 x 6     {0-5}\n");
  EXPECT_THAT(describe(mesh(1, -1, 1)), HasSubstr("1 rank: dp_shard 1\n"));
}

TEST(DescribeMesh, FoldsManyRanks) {
  const std::string wide = describe(mesh(4, 256, 1024));
  EXPECT_THAT(wide, HasSubstr("    256-511             1         0-255\n"));
  EXPECT_THAT(wide, HasSubstr("  dp_replicate               256 x 4     {0, 256, 512, 768}  "
                              "{1, 257, 513, 769}  {2, 258, 514, 770}  …  {255, 511, 767, 1023}\n"));
  EXPECT_THAT(wide, HasSubstr("{0-255}  {256-511}  {512-767}  {768-1023}"));
  const std::string tall = describe(mesh(512, 2, 1024));
  EXPECT_LT(std::ranges::count(tall, '\n'), 50);
  EXPECT_THAT(tall, HasSubstr("  1022-1023           511           0-1\n"));
  EXPECT_THAT(tall, HasSubstr("{0, 2, 4, … 1022}"));
  EXPECT_THAT(describe(mesh(1024, 1, 1024)), HasSubstr("     0-1023        0-1023\n"));
}

}  // namespace
}  // namespace weft
