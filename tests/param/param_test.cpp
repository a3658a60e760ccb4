// Where a param's pieces lie over tensor-parallel ranks.
#include "weft/param/param.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "weft/param/param_unit.h"

namespace weft {
namespace {

using testing::ElementsAre;

/// How often each element of the global tensor is in a piece, over `ranks`; first_only: of first copies
/// alone.
at::Tensor cover(const ParamSpec& spec, int64_t ranks, bool first_only) {
  at::Tensor count = at::zeros(spec.shape, at::kLong);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    ParamUnit unit("unit", at::kDouble, {rank, ranks, false});
    const Param& param = unit.add(spec);
    if (first_only && !param.is_first_copy()) continue;
    narrowed(count, whole_box(spec.shape), param.piece()).add_(1);
  }
  return count;
}

TEST(Param, FirstCopiesOfPiecesTileTheTensor) {
  for (const int64_t ranks : {1, 2, 3, 4, 6, 8}) {
    for (const int64_t rows : {1, 2, 5, 12, 211}) {
      SCOPED_TRACE(testing::Message() << rows << " rows on " << ranks << " ranks");
      const ParamSpec split{.name = "w", .shape = {rows, 3}, .placement = Placement::shard(0)};
      EXPECT_TRUE((cover(split, ranks, false) == 1).all().item<bool>());
      EXPECT_TRUE((cover(split, ranks, true) == 1).all().item<bool>());
      const ParamSpec replicated{.name = "w", .shape = {rows, 3}};
      EXPECT_TRUE((cover(replicated, ranks, false) == ranks).all().item<bool>());
      EXPECT_TRUE((cover(replicated, ranks, true) == 1).all().item<bool>());
    }
    const ParamSpec columns{.name = "w", .shape = {3, 24}, .placement = Placement::shard(1)};
    EXPECT_TRUE((cover(columns, ranks, true) == 1).all().item<bool>());
    for (const int64_t copies : {1, 2, 4})
      if (ranks % copies == 0) {
        const ParamSpec heads{.name = "k", .shape = {24, 3}, .placement = Placement::shard(0, copies)};
        EXPECT_TRUE((cover(heads, ranks, false) == copies).all().item<bool>());
        EXPECT_TRUE((cover(heads, ranks, true) == 1).all().item<bool>());
      }
  }
}

TEST(Param, RowsOfPaddingBelongToNoBox) {
  ParamUnit unit("unit", at::kDouble, {2, 3, false});
  const Param& param = unit.add({.name = "w", .shape = {7, 4}, .placement = Placement::shard(0)});
  EXPECT_THAT(param.local_shape(), ElementsAre(3, 4));
  EXPECT_EQ(param.numel(), 12);
  EXPECT_EQ(param.global_numel(), 28);
  EXPECT_EQ(param.piece(), (Box{{6, 0}, {7, 4}}));
  const auto boxes = param.boxes(0, param.numel());
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(boxes[0].first, 0);
  EXPECT_EQ(boxes[0].second, (Box{{6, 0}, {7, 4}}));
  EXPECT_TRUE(param.boxes(4, 12).empty());
}

// Whatever range of the piece a shard of the unit has, its boxes are that range's elements of the tensor.
TEST(Param, BoxesOfARangeAreItsElements) {
  const ParamSpec specs[] = {{.name = "a", .shape = {5, 4}, .placement = Placement::shard(0)},
                             {.name = "b", .shape = {3, 4}, .placement = Placement::shard(1)},
                             {.name = "c", .shape = {7}, .placement = Placement::shard(0)},
                             {.name = "d", .shape = {3, 4}}};
  for (const ParamSpec& spec : specs) {
    const Box whole = whole_box(spec.shape);
    const at::Tensor global = at::arange(1, 1 + whole.numel(), at::kLong).view(spec.shape);
    for (int64_t rank = 0; rank < 2; ++rank) {
      ParamUnit unit("unit", at::kDouble, {rank, 2, false});
      const Param& param = unit.add(spec);
      at::Tensor piece = at::zeros(param.local_shape(), at::kLong);
      // Behind the piece's elements lies padding, if any.
      const Box elements = whole_box(param.piece().shape());
      narrowed(piece, whole_box(param.local_shape()), elements).copy_(narrowed(global, whole, param.piece()));
      for (int64_t begin = 0; begin <= param.numel(); ++begin)
        for (int64_t end = begin; end <= param.numel(); ++end) {
          at::Tensor found = at::zeros({param.numel()}, at::kLong);
          for (const auto& [first, box] : param.boxes(begin, end))
            found.narrow(0, first, box.numel()).copy_(narrowed(global, whole, box).reshape({-1}));
          at::Tensor expected = at::zeros_like(found);
          expected.slice(0, begin, end).copy_(piece.view({-1}).slice(0, begin, end));
          ASSERT_TRUE(at::equal(found, expected)) << spec.name << " " << begin << " to " << end;
        }
    }
  }
}

// Side by side, so that one GEMM serves q, k and v.
TEST(Param, FusedWeightsOfARankArePiecesSideBySide) {
  ParamUnit unit("unit", at::kDouble, {1, 4, false});
  Param& q = unit.add({.name = "q", .shape = {8, 3}, .init = {1, 0}, .placement = Placement::shard(0)});
  Param& k = unit.add({.name = "k", .shape = {2, 3}, .init = {1, 0}, .placement = Placement::shard(0, 2)});
  unit.allocate();
  unit.initialise(7);
  const at::Tensor fused = fused_weight({&q, &k});
  EXPECT_THAT(fused.sizes().vec(), ElementsAre(3, 3));
  ParamUnit all("unit", at::kDouble);
  const Param& whole_q = all.add({.name = "q", .shape = {8, 3}, .init = {1, 0}});
  const Param& whole_k = all.add({.name = "k", .shape = {2, 3}, .init = {1, 0}});
  all.allocate();
  all.initialise(7);
  EXPECT_TRUE(at::equal(fused.narrow(0, 0, 2), whole_q.weight().narrow(0, 2, 2)));
  EXPECT_TRUE(at::equal(fused.narrow(0, 2, 1), whole_k.weight().narrow(0, 0, 1)));  // the second copy
}

}  // namespace
}  // namespace weft
