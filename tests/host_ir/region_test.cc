// What region.h proves of slices, selects and reshapes, against the sets of elements they come to.
#include "host_ir/region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "host_ir/host_ops.h"
#include "host_ir/shapes.h"

namespace hir::host {
namespace {

using ir::Expr;

constexpr int64_t kSizes[] = {0, 4, 8};  // Of i0.

// Views of a base [i0, i1, 4] (or its like) with bounds of constants and symbols; i0 is a multiple
// of 4.
class Views {
 public:
  explicit Views(uint64_t seed) : random_(seed), graph_(kHostOps, "p") {
    const Expr* extents[] = {Extent(), Extent(), pool_.Const(random_.Between(1, 4))};
    std::vector<ir::Axis> axes;
    for (const Expr* extent : extents) axes.push_back({ir::AxisKind::kIteration, extent});
    base_ = graph_.AddParam("x", graph_.Tensor(DType::kInt64, axes));
  }

  Region Make() {
    Region region = WholeOf(pool_, *base_);
    for (int64_t steps = random_.Below(5); steps > 0 && !region.axes.empty(); --steps) Step(region);
    return region;
  }

  // The elements of the base at this value of i0.
  static std::vector<int64_t> Elements(const Region& region, int64_t i0) {
    std::vector<int64_t> elements = {ValueAt(region.offset, i0)};
    for (const ViewAxis& axis : region.axes) {
      std::vector<int64_t> wider;
      for (int64_t e : elements) {
        for (int64_t i = 0; i < ValueAt(axis.extent, i0); ++i) wider.push_back(e + i * ValueAt(axis.stride, i0));
      }
      elements = std::move(wider);
    }
    return elements;
  }
  static int64_t ValueAt(const Expr* expr, int64_t i0) {
    return *ir::Evaluate(expr, [i0](std::string_view) { return i0; });
  }

  ir::ExprPool& pool() { return pool_; }
  int num_splits() const { return num_splits_; }

 private:
  const Expr* Extent() {
    if (random_.OneIn(2)) return pool_.Const(random_.Between(1, 8));
    return pool_.Mul(pool_.Const(random_.Between(1, 2)), pool_.Symbol("i0"));
  }

  // A place in [0, extent] at every size: a quarter of a symbolic extent at a time.
  const Expr* Place(const Expr* extent, int64_t quarters) {
    if (extent->IsConst()) return pool_.Const(extent->value * quarters / 4);
    return pool_.FloorDiv(pool_.Mul(extent, pool_.Const(quarters)), pool_.Const(4));
  }

  void Step(Region& region) {
    const int64_t axis = random_.Below(std::ssize(region.axes));
    const Expr* extent = region.axes[static_cast<size_t>(axis)].extent;
    const int64_t kind = random_.Below(8);
    if (kind < 5) {
      const int64_t from = random_.Below(5);
      region = Slice(pool_, region, axis, Place(extent, from), Place(extent, random_.Between(from, 4)));
    } else if (kind == 7) {
      std::vector<int64_t> dims(region.axes.size());
      std::iota(dims.begin(), dims.end(), 0);
      std::swap(dims[static_cast<size_t>(axis)], dims.back());
      region = Permute(region, dims);
    } else if (kind < 6 && extent->IsConst() && extent->value > 0) {
      region = Select(pool_, region, axis, pool_.Const(random_.Below(extent->value)));
    } else if (IsContiguous(pool_, region)) {
      const Expr* count = pool_.Const(1);
      for (const ViewAxis& a : region.axes) count = pool_.Mul(count, a.extent);
      std::vector<const Expr*> extents = {count};
      // As many elements at every size, which the extents do not show.
      if (random_.OneIn(2) && std::ranges::all_of(kSizes, [&](int64_t i0) { return ValueAt(count, i0) % 2 == 0; }))
        extents = {pool_.Const(2), pool_.FloorDiv(count, pool_.Const(2))};
      std::vector<ir::Axis> axes;
      for (const Expr* e : extents) axes.push_back({ir::AxisKind::kIteration, e});
      region = *Reshape(pool_, region, *graph_.Tensor(DType::kInt64, axes), extents);
    } else {
      SplitAxes(region);
    }
  }

  // Some axes in two, where half of one is seen to be half.
  void SplitAxes(Region& region) {
    std::vector<const Expr*> extents;
    std::vector<ir::Axis> axes;
    for (const ViewAxis& a : region.axes) {
      const Expr* const half = pool_.FloorDiv(a.extent, pool_.Const(2));
      const bool halves = random_.OneIn(2) && pool_.Mul(pool_.Const(2), half) == a.extent;
      for (const Expr* e : halves ? std::vector{pool_.Const(2), half} : std::vector{a.extent}) extents.push_back(e);
    }
    for (const Expr* e : extents) axes.push_back({ir::AxisKind::kIteration, e});
    region = *Reshape(pool_, region, *graph_.Tensor(DType::kInt64, axes), extents);
    ++num_splits_;
  }

  base::Prng random_;
  ir::ExprPool pool_;
  ir::Graph graph_;
  ir::Value* base_ = nullptr;
  int num_splits_ = 0;
};

std::set<int64_t> SetOf(const Region& region, int64_t i0) {
  const std::vector<int64_t> elements = Views::Elements(region, i0);
  return {elements.begin(), elements.end()};
}

TEST(Region, ProofsHoldOfElements) {
  int disjoint = 0, same = 0, covered = 0, contiguous = 0, splits = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(base::Cat("seed ", seed));
    Views views(seed);
    const Region a = views.Make(), b = views.Make(), c = views.Make();
    const Region* parts[] = {&b, &c};
    const bool proved_disjoint = ProveDisjoint(views.pool(), a, b);
    const bool proved_same = ProveSame(views.pool(), a, b);
    const bool proved_covered = ProveCovered(views.pool(), a, parts);
    const bool proved_contiguous = IsContiguous(views.pool(), a);
    for (int64_t i0 : kSizes) {
      const std::set<int64_t> x = SetOf(a, i0), y = SetOf(b, i0), z = SetOf(c, i0);
      if (proved_disjoint) {
        for (int64_t e : x) ASSERT_FALSE(y.contains(e));
      }
      if (proved_same) {
        ASSERT_EQ(x, y);
      }
      if (proved_covered) {
        for (int64_t e : x) ASSERT_TRUE(y.contains(e) || z.contains(e));
      }
      const std::vector<int64_t> elements = Views::Elements(a, i0);
      const Interval flat = Flat(views.pool(), a);
      for (size_t i = 0; i < elements.size(); ++i) {
        if (proved_contiguous) {
          ASSERT_EQ(elements[i], elements[0] + static_cast<int64_t>(i));
        }
        ASSERT_GE(elements[i], Views::ValueAt(flat.from, i0));
        ASSERT_LT(elements[i], Views::ValueAt(flat.to, i0));
      }
    }
    disjoint += proved_disjoint;
    same += proved_same;
    covered += proved_covered;
    contiguous += proved_contiguous;
    splits += views.num_splits();
  }
  std::printf("of 4000: %d disjoint, %d the same, %d covered, %d contiguous; %d splits\n", disjoint, same, covered,
              contiguous, splits);
  EXPECT_GT(disjoint, 400);
  EXPECT_GT(same, 50);
  EXPECT_GT(covered, 400);
  EXPECT_GT(contiguous, 1000);
  EXPECT_GT(splits, 100);
}

// [8, i0] as [2, 4, i0] where it is a slice of columns: halves of rows are apart, and the whole when put together.
// Halves of a slice of rows are not told apart from each other by their place in the rows, and cover nothing.
TEST(Region, ASplitOfAxes) {
  ir::ExprPool pool;
  ir::Graph graph(kHostOps, "p");
  const Expr *i0 = pool.Symbol("i0"), *two = pool.Const(2), *four = pool.Const(4), *eight = pool.Const(8);
  const auto type = [&](std::initializer_list<const Expr*> extents) {
    std::vector<ir::Axis> axes;
    for (const Expr* extent : extents) axes.push_back({ir::AxisKind::kIteration, extent});
    return graph.Tensor(DType::kFloat32, axes);
  };
  const auto split = [&](const Region& region, std::initializer_list<const Expr*> to) {
    return Reshape(pool, region, *type(to), std::vector<const Expr*>(to));
  };
  const Region whole = WholeOf(pool, *graph.AddParam("x", type({eight, pool.Mul(two, i0)})));
  const Region columns = Slice(pool, whole, 1, pool.Const(0), i0);
  const auto rows = split(columns, {two, four, i0});
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(ToString(rows->axes[0].stride), "8*i0");
  EXPECT_EQ(ToString(rows->axes[1].stride), "2*i0");
  const Region first = Select(pool, *rows, 0, pool.Const(0)), second = Select(pool, *rows, 0, pool.Const(1));
  EXPECT_TRUE(ProveDisjoint(pool, first, second));
  const Region* const halves[] = {&first, &second};
  EXPECT_TRUE(ProveCovered(pool, *rows, halves));
  EXPECT_FALSE(ProveCovered(pool, *rows, std::span(halves).first(1)));

  const Region part = Slice(pool, columns, 0, pool.Const(1), pool.Const(5));
  const auto of_part = split(part, {two, two, i0});
  ASSERT_TRUE(of_part.has_value());
  EXPECT_TRUE(ProveSame(pool, part, *of_part));
  const Region upper = Select(pool, *of_part, 0, pool.Const(0)), lower = Select(pool, *of_part, 0, pool.Const(1));
  EXPECT_FALSE(ProveSame(pool, upper, lower));
  EXPECT_FALSE(ProveSame(pool, upper, part));
  const Region* const parts[] = {&upper};
  EXPECT_FALSE(ProveCovered(pool, part, parts));

  // Whether 2 * (i0 / 2) is i0 is known when sizes bind; of two such axes it would not be said of each.
  EXPECT_TRUE(split(columns, {four, two, pool.FloorDiv(i0, two), two}).has_value());
  EXPECT_FALSE(split(columns, {two, two, pool.FloorDiv(i0, two), two}).has_value());
  EXPECT_FALSE(split(columns, {pool.Mul(eight, i0)}).has_value());
  EXPECT_FALSE(split(columns, {i0, eight}).has_value());
}

// [i0, 64] as [2, i0/2, 64]: all of it is all of the base, and so are its halves together, and not one of them.
TEST(Region, AReshapeTakesTheElementsThatItIsOf) {
  ir::ExprPool pool;
  ir::Graph graph(kHostOps, "p");
  const Expr* i0 = pool.Symbol("i0");
  const auto type = [&](std::initializer_list<const Expr*> extents) {
    std::vector<ir::Axis> axes;
    for (const Expr* extent : extents) axes.push_back({ir::AxisKind::kIteration, extent});
    return graph.Tensor(DType::kFloat32, axes);
  };
  const Expr *two = pool.Const(2), *columns = pool.Const(64), *half = pool.FloorDiv(i0, two);
  const Region whole = WholeOf(pool, *graph.AddParam("x", type({i0, columns})));
  const Expr* const extents[] = {two, half, columns};
  const Region reshaped = *Reshape(pool, whole, *type({two, half, columns}), extents);
  const auto covered = [&](std::vector<const Region*> parts) { return ProveCovered(pool, whole, parts); };
  EXPECT_TRUE(ProveSame(pool, whole, reshaped));
  EXPECT_TRUE(covered({&reshaped}));
  const Region first = Select(pool, reshaped, 0, pool.Const(0));
  const Region second = Select(pool, reshaped, 0, pool.Const(1));
  EXPECT_TRUE(covered({&first, &second}));
  EXPECT_FALSE(covered({&first}));
  EXPECT_FALSE(covered({&second}));
  EXPECT_TRUE(ProveDisjoint(pool, first, second));
  EXPECT_FALSE(ProveDisjoint(pool, first, whole));
}

// [i0, i1] as [3, i0/3, i1], each of its three as [i0/3, 2, i1/2]: as loops in loops write it.
TEST(Region, ReshapesOfParts) {
  ir::ExprPool pool;
  ir::Graph graph(kHostOps, "p");
  const Expr *i0 = pool.Symbol("i0"), *i1 = pool.Symbol("i1"), *two = pool.Const(2), *three = pool.Const(3);
  const Expr *third = pool.FloorDiv(i0, three), *half = pool.FloorDiv(i1, two);
  const auto reshaped = [&](const Region& of, const std::vector<const Expr*>& extents) {
    std::vector<ir::Axis> axes;
    for (const Expr* extent : extents) axes.push_back({ir::AxisKind::kIteration, graph.exprs().Import(extent)});
    return *Reshape(pool, of, *graph.Tensor(DType::kFloat32, axes), extents);
  };
  const ir::Axis axes[] = {{ir::AxisKind::kIteration, graph.exprs().Symbol("i0")},
                           {ir::AxisKind::kIteration, graph.exprs().Symbol("i1")}};
  const Region whole = WholeOf(pool, *graph.AddParam("x", graph.Tensor(DType::kFloat32, axes)));
  const Region thirds = reshaped(whole, {three, third, i1});
  std::vector<Region> sixths;
  for (int64_t i = 0; i < 3; ++i) {
    const Region halves = reshaped(Select(pool, thirds, 0, pool.Const(i)), {third, two, half});
    for (int64_t k = 0; k < 2; ++k) sixths.push_back(Select(pool, halves, 1, pool.Const(k)));
  }
  std::vector<const Region*> parts;
  for (const Region& part : sixths) parts.push_back(&part);
  EXPECT_TRUE(ProveCovered(pool, whole, parts));
  EXPECT_TRUE(ProveCovered(pool, thirds, parts));
  for (size_t left_out = 0; left_out < parts.size(); ++left_out) {
    std::vector<const Region*> others = parts;
    others.erase(others.begin() + static_cast<ptrdiff_t>(left_out));
    EXPECT_FALSE(ProveCovered(pool, whole, others)) << left_out;
  }
}

TEST(Region, QuartersOfASymbolicAxis) {
  ir::ExprPool pool;
  const Expr* i0 = pool.Symbol("i0");
  const auto quarter = [&](int64_t k) { return pool.FloorDiv(pool.Mul(pool.Const(k), i0), pool.Const(4)); };
  EXPECT_TRUE(ProveLessEqual(pool, quarter(1), quarter(3)));
  EXPECT_TRUE(ProveLessEqual(pool, quarter(3), i0));
  EXPECT_TRUE(ProveLessEqual(pool, pool.Mul(quarter(1), pool.Symbol("i1")), pool.Mul(quarter(2), pool.Symbol("i1"))));
  EXPECT_FALSE(ProveLessEqual(pool, quarter(3), quarter(2)));
  EXPECT_FALSE(ProveLessEqual(pool, i0, pool.Symbol("i1")));
}

// The last block of an axis of i0 - 6 elements in blocks of 5: it begins at 5 ((i0 - 6) / 5), which as it is written
// has a constant below 0.
TEST(ProveCovered, PartsFromTheBeginBeginBeforeAllOthers) {
  ir::Graph graph(kHostOps, "p");
  ir::ExprPool pool;
  ir::ExprPool& own = graph.exprs();
  const Expr* extent = own.Sub(own.Symbol("i0"), own.Const(6));
  const ir::Axis axes[] = {{ir::AxisKind::kIteration, extent}};
  const Region whole = WholeOf(pool, *graph.AddParam("x", graph.Tensor(DType::kInt64, axes)));
  const Expr* all = pool.Import(extent);
  const Expr* begin = pool.Mul(pool.FloorDiv(all, pool.Const(5)), pool.Const(5));
  const Expr* end = pool.Add(begin, pool.Mod(all, pool.Const(5)));
  const Region last = Slice(pool, whole, 0, begin, end);
  const Region before = Slice(pool, whole, 0, pool.Const(0), begin);
  const Region one[] = {whole}, two[] = {before};
  const Region* const by_whole[] = {&one[0]};
  const Region* const by_before[] = {&two[0]};
  EXPECT_TRUE(ProveCovered(pool, last, by_whole));
  EXPECT_FALSE(ProveCovered(pool, last, by_before));
}

}  // namespace
}  // namespace hir::host
