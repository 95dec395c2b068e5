// Goal: of values that can be read or computed, the cheapest choice is found, each cost paid once. Method: small cases
// by hand; random graphs against all choices there are.
#include "csrc/segment/min_cut.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "csrc/base/prng.h"

namespace hir::segment {
namespace {

using Choice = MinCut::Choice;

TEST(MinCut, ReadsASharedLeafOnce) {
  MinCut cut;
  const int leaf = cut.AddNode(10, MinCut::kNever);
  const int a = cut.AddNode(8, 0), b = cut.AddNode(8, 0);
  for (const int node : {a, b}) {
    cut.AddOperand(node, leaf);
    cut.Need(node);
  }
  const MinCut::Cut found = cut.Solve();
  EXPECT_EQ(found.cost, 10);
  EXPECT_EQ(found.choices, (std::vector{Choice::kRead, Choice::kComputed, Choice::kComputed}));
}

TEST(MinCut, OfEqualCutsComputesLeast) {
  MinCut cut;
  const int leaf = cut.AddNode(8, MinCut::kNever);
  const int a = cut.AddNode(8, 0);
  cut.AddOperand(a, leaf);
  cut.Need(a);
  EXPECT_EQ(cut.Solve().choices, (std::vector{Choice::kUnused, Choice::kRead}));
}

TEST(MinCut, ArithmeticHasItsPrice) {
  for (const int64_t price : {3, 5}) {
    MinCut cut;
    const int leaf = cut.AddNode(4, MinCut::kNever);
    const int a = cut.AddNode(8, price);
    cut.AddOperand(a, leaf);
    cut.Need(a);
    EXPECT_EQ(cut.Solve().cost, price == 3 ? 7 : 8);
  }
}

TEST(MinCut, SaysWhenThereIsNone) {
  MinCut cut;
  cut.Need(cut.AddNode(MinCut::kNever, MinCut::kNever));
  EXPECT_GE(cut.Solve().cost, MinCut::kNever);
}

// A chain longer than any stack takes by recursion.
TEST(MinCut, TakesLongChains) {
  MinCut cut;
  int last = cut.AddNode(1, MinCut::kNever);
  for (int i = 0; i < 200000; ++i) {
    const int next = cut.AddNode(MinCut::kNever, 0);
    cut.AddOperand(next, last);
    last = next;
  }
  cut.Need(last);
  EXPECT_EQ(cut.Solve().cost, 1);
}

struct Case {
  std::vector<int64_t> read, compute;
  std::vector<std::vector<int>> operands;
  std::vector<char> needed;
};

// The least over all sets of values that are computed; what these and the caller need otherwise is read.
int64_t Exhaustive(const Case& c) {
  const size_t n = c.read.size();
  int64_t least = std::numeric_limits<int64_t>::max();
  for (unsigned computed = 0; computed < (1U << n); ++computed) {
    std::vector<char> wanted = c.needed;
    int64_t cost = 0;
    for (size_t i = n; i-- > 0;) {
      if ((computed >> i & 1) == 0) continue;
      cost += c.compute[i];
      for (const int operand : c.operands[i]) wanted[static_cast<size_t>(operand)] = 1;
    }
    for (size_t i = 0; i < n; ++i) {
      if ((computed >> i & 1) == 0 && wanted[i] != 0) cost += c.read[i];
    }
    least = std::min(least, cost);
  }
  return least;
}

TEST(MinCut, IsTheLeastOfAllChoices) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    SCOPED_TRACE(seed);
    base::Prng rng(seed);
    Case c;
    MinCut cut;
    const int n = static_cast<int>(rng.Between(1, 10));
    for (int i = 0; i < n; ++i) {
      c.read.push_back(rng.Between(0, 9));
      c.compute.push_back(rng.OneIn(4) ? 1000 : rng.Between(0, 4));
      c.needed.push_back(rng.OneIn(3) || i == n - 1 ? 1 : 0);
      c.operands.emplace_back();
      cut.AddNode(c.read.back(), c.compute.back());
      if (c.needed.back() != 0) cut.Need(i);
      for (int k = 0; k < i; ++k) {
        if (!rng.OneIn(3)) continue;
        c.operands.back().push_back(k);
        cut.AddOperand(i, k);
      }
    }
    const MinCut::Cut found = cut.Solve();
    ASSERT_EQ(found.cost, Exhaustive(c));
    int64_t cost = 0;
    for (size_t i = 0; i < c.read.size(); ++i) {
      if (found.choices[i] == Choice::kRead) cost += c.read[i];
      if (found.choices[i] != Choice::kComputed) continue;
      cost += c.compute[i];
      for (const int operand : c.operands[i]) ASSERT_NE(found.choices[static_cast<size_t>(operand)], Choice::kUnused);
    }
    ASSERT_EQ(cost, found.cost);
  }
}

}  // namespace
}  // namespace hir::segment
