// Goal: extents are canonical, and mean what they say. Method: hand-written forms; random expressions whose canonical
// form, text and substitution evaluate to what plain arithmetic gives; faults and limits.
#include "csrc/ir/expr.h"

#include <gtest/gtest.h>

#include <array>

#include "csrc/base/checked.h"
#include "csrc/base/prng.h"
#include "csrc/ir/parse.h"
#include "tests/csrc/ir/test_ops.h"

namespace hir::ir {
namespace {

class ExprTest : public testing::Test {
 protected:
  const Expr* C(int64_t value) { return pool.Const(value); }
  ExprPool pool;
  const Expr* i = pool.Symbol("i");
  const Expr* j = pool.Symbol("j");
};

TEST_F(ExprTest, EqualContentsAreOnePointer) {
  EXPECT_EQ(pool.Symbol("i"), i);
  EXPECT_EQ(pool.Add(i, j), pool.Add(j, i));
  EXPECT_EQ(pool.Mul(pool.Add(i, C(1)), pool.Sub(i, C(1))), pool.Sub(pool.Mul(i, i), C(1)));
  EXPECT_EQ(pool.Sub(i, i), C(0));
  EXPECT_EQ(pool.FloorDiv(pool.Add(pool.Mul(C(8), i), C(3)), C(4)), pool.Mul(C(2), i));
  EXPECT_EQ(pool.FloorDiv(pool.FloorDiv(i, C(4)), C(2)), pool.FloorDiv(i, C(8)));
  EXPECT_EQ(pool.Mod(pool.Add(pool.Mul(C(8), i), C(7)), C(4)), C(3));
  EXPECT_EQ(pool.CeilDiv(pool.Mul(C(8), i), C(4)), pool.Mul(C(2), i));
  const Expr* in_row = pool.Mod(pool.FloorDiv(i, C(7)), C(5));
  EXPECT_EQ(pool.Add(pool.Mul(C(7), pool.FloorDiv(i, C(7))), pool.Mod(i, C(7))), i);
  EXPECT_EQ(pool.Add(pool.Add(pool.Mul(C(105), pool.FloorDiv(i, C(35))), j),
                     pool.Add(pool.Mul(C(21), in_row), pool.Mul(C(3), pool.Mod(i, C(7))))),
            pool.Add(pool.Mul(C(3), i), j));
  EXPECT_EQ(ToString(pool.Add(pool.Mul(C(8), pool.FloorDiv(i, C(7))), pool.Mod(i, C(7)))), "8*(i / 7) + i mod 7");
  EXPECT_EQ(pool.Min(i, pool.Add(i, C(1))), i);
  EXPECT_EQ(pool.Max(i, pool.Add(i, C(1))), pool.Add(i, C(1)));
  EXPECT_EQ(pool.Max(i, j), pool.Max(j, i));
  EXPECT_FALSE(pool.overflowed());
}

TEST_F(ExprTest, Text) {
  EXPECT_EQ(ToString(pool.Add(pool.Mul(C(4), pool.Mul(i, j)), C(3))), "4*i*j + 3");
  EXPECT_EQ(ToString(pool.Sub(i, pool.Mul(C(2), j))), "i - 2*j");
  EXPECT_EQ(ToString(pool.Mul(pool.FloorDiv(i, C(4)), j)), "j*(i / 4)");
  EXPECT_EQ(ToString(pool.FloorDiv(pool.Add(i, j), C(4))), "(i + j) / 4");
  EXPECT_EQ(ToString(pool.Add(pool.Mod(i, C(4)), C(1))), "i mod 4 + 1");
  EXPECT_EQ(ToString(pool.CeilDiv(i, C(4))), "ceildiv(i, 4)");
  EXPECT_EQ(ToString(pool.Mod(C(-7), C(4))), "1");
  EXPECT_EQ(ToString(pool.Sub(C(-3), i)), "-1*i - 3");
}

TEST_F(ExprTest, SymbolsKeepTheirOrder) {
  pool.Symbol("a");
  EXPECT_LT(pool.SymbolOrder(i), pool.SymbolOrder(pool.Symbol("a")));
  EXPECT_EQ(pool.symbols().size(), 3u);
}

TEST_F(ExprTest, SubstituteSettlesDivisions) {
  const Expr* e = pool.Add(pool.FloorDiv(i, C(4)), pool.Mod(i, j));
  EXPECT_EQ(pool.Substitute(e, {{"i", C(10)}, {"j", C(4)}}), C(4));
  EXPECT_EQ(pool.Substitute(e, {{"i", pool.Mul(C(4), j)}}), pool.Add(j, pool.Mod(pool.Mul(C(4), j), j)));
}

TEST_F(ExprTest, AnotherPoolsExpressions) {
  ExprPool other;
  const Expr* e = pool.CeilDiv(pool.Add(i, C(3)), j);
  const Expr* copy = other.Import(e);
  EXPECT_NE(copy, e);
  EXPECT_TRUE(Equal(copy, e));
  EXPECT_EQ(pool.Import(copy), e);
}

TEST_F(ExprTest, EvaluateSaysWhatIsWrong) {
  const auto value = [](std::string_view name) -> std::optional<int64_t> {
    return name == "i" ? std::optional<int64_t>(INT64_MAX) : name == "z" ? std::optional<int64_t>(0) : std::nullopt;
  };
  EXPECT_EQ(Evaluate(j, value).status().ToString(), "INVALID_ARGUMENT: extent j has no value");
  EXPECT_EQ(Evaluate(pool.Mul(C(2), i), value).status().ToString(), "INVALID_ARGUMENT: extent 2*i overflows 64 bits");
  EXPECT_EQ(Evaluate(pool.FloorDiv(i, pool.Symbol("z")), value).status().ToString(),
            "INVALID_ARGUMENT: extent i / z overflows or divides by zero");
}

TEST_F(ExprTest, FaultsStayAndAreNamed) {
  EXPECT_TRUE(pool.status().ok());
  pool.Add(C(INT64_MAX), C(1));
  EXPECT_EQ(pool.status().ToString(), "INVALID_ARGUMENT: an extent overflows 64 bits");
  pool.FloorDiv(i, C(0));  // The first fault stays.
  EXPECT_EQ(pool.status().ToString(), "INVALID_ARGUMENT: an extent overflows 64 bits");
  ExprPool fresh;
  EXPECT_NE(fresh.Mod(fresh.Symbol("i"), fresh.Const(0)), nullptr);
  EXPECT_EQ(fresh.status().ToString(), "INVALID_ARGUMENT: an extent divides by zero");
  ExprPool least;
  least.Const(INT64_MIN);
  EXPECT_EQ(least.status().ToString(), "INVALID_ARGUMENT: an extent overflows 64 bits");
}

TEST_F(ExprTest, DepthAndSizeAreLimited) {
  const Expr* deep = i;
  for (uint32_t depth = 2; depth <= kExprDepthMax; ++depth) {
    deep = depth % 2 == 0 ? pool.FloorDiv(deep, j) : pool.Min(deep, C(7));
    ASSERT_EQ(deep->depth, depth);
  }
  EXPECT_TRUE(pool.status().ok());
  pool.Min(deep, C(7));
  EXPECT_EQ(pool.status().ToString(), "RESOURCE_EXHAUSTED: an extent is nested deeper than 128");

  ExprPool wide;
  const Expr* sum = wide.Const(1);
  for (uint32_t k = 0; k + 1 < kExprNodesMax; ++k) sum = wide.Add(sum, wide.Symbol("s" + std::to_string(k)));
  EXPECT_TRUE(wide.status().ok());
  EXPECT_EQ(sum->nodes, kExprNodesMax);
  wide.Add(sum, wide.Symbol("t"));
  EXPECT_EQ(wide.status().ToString(), "RESOURCE_EXHAUSTED: an extent has more than 4096 terms and factors");
}

// --- random expressions against plain arithmetic ---

constexpr std::array<std::string_view, 3> kSymbols = {"i", "j", "k"};
using Values = std::array<int64_t, 3>;

// A random expression and what it is worth; divisors are positive.
struct Sample {
  const Expr* expr = nullptr;
  int64_t value = 0;
};

Sample Random(base::Prng& prng, ExprPool& pool, const Values& values, int depth) {
  if (depth == 0 || prng.OneIn(5)) {
    if (prng.OneIn(2)) {
      const int64_t value = prng.Between(-6, 9);
      return {pool.Const(value), value};
    }
    const auto symbol = static_cast<size_t>(prng.Below(3));
    return {pool.Symbol(kSymbols[symbol]), values[symbol]};
  }
  const Sample a = Random(prng, pool, values, depth - 1);
  Sample b = Random(prng, pool, values, depth - 1);
  switch (prng.Below(8)) {
    case 0: return {pool.Add(a.expr, b.expr), a.value + b.value};
    case 1: return {pool.Sub(a.expr, b.expr), a.value - b.value};
    case 2: return {pool.Mul(a.expr, b.expr), a.value * b.value};
    case 3: return {pool.Min(a.expr, b.expr), std::min(a.value, b.value)};
    case 4: return {pool.Max(a.expr, b.expr), std::max(a.value, b.value)};
    default: break;
  }
  if (b.value <= 0) b = {pool.Const(prng.OneIn(2) ? 4 : 3), 0}, b.value = b.expr->value;
  switch (prng.Below(3)) {
    case 0: return {pool.FloorDiv(a.expr, b.expr), base::FloorDiv(a.value, b.value)};
    case 1: return {pool.Mod(a.expr, b.expr), base::FloorMod(a.value, b.value)};
    default: return {pool.CeilDiv(a.expr, b.expr), base::CeilDiv(a.value, b.value)};
  }
}

TEST(ExprRandom, CanonicalFormKeepsTheValue) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    base::Prng prng(seed);
    Graph graph(kTestOps, "p");
    ExprPool& pool = graph.exprs();
    const Values values = {prng.Between(1, 9), prng.Between(1, 20), prng.Between(1, 40)};
    const Sample sample = Random(prng, pool, values, 4);
    ASSERT_TRUE(pool.status().ok()) << pool.status().ToString();
    const auto lookup = [&](std::string_view name) -> std::optional<int64_t> {
      for (size_t s = 0; s < 3; ++s) {
        if (kSymbols[s] == name) return values[s];
      }
      return std::nullopt;
    };
    const std::string text = ToString(sample.expr);
    const Result<int64_t> value = Evaluate(sample.expr, lookup);
    ASSERT_TRUE(value.ok()) << value.status().ToString() << " seed " << seed;
    ASSERT_EQ(*value, sample.value) << text << " seed " << seed;
    // The text reads back to the same node, and so does a rebuild from its parts.
    const Result<const Expr*> parsed = ParseExtent(text, graph, {});
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString() << ": " << text << " seed " << seed;
    ASSERT_EQ(*parsed, sample.expr) << text << " became " << ToString(*parsed) << " seed " << seed;
    ASSERT_EQ(pool.Import(sample.expr), sample.expr) << text << " seed " << seed;
    // Symbols replaced one at a time or all at once: a constant of the same value.
    const Expr* one = pool.Substitute(sample.expr, {{"i", pool.Const(values[0])}});
    const Expr* all = pool.Substitute(one, {{"j", pool.Const(values[1])}, {"k", pool.Const(values[2])}});
    ASSERT_EQ(all, pool.Const(sample.value)) << text << " seed " << seed;
  }
}

// a == b as polynomials must be one node, however they were built.
TEST(ExprRandom, RearrangedSumsAreOneNode) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    base::Prng prng(seed);
    ExprPool pool;
    const Values values = {prng.Between(1, 9), prng.Between(1, 9), prng.Between(1, 9)};
    const Expr* a = Random(prng, pool, values, 2).expr;
    const Expr* b = Random(prng, pool, values, 2).expr;
    const Expr* c = Random(prng, pool, values, 2).expr;
    ASSERT_EQ(pool.Add(pool.Add(a, b), c), pool.Add(a, pool.Add(c, b))) << "seed " << seed;
    ASSERT_EQ(pool.Mul(pool.Add(a, b), c), pool.Add(pool.Mul(c, a), pool.Mul(b, c))) << "seed " << seed;
    ASSERT_EQ(pool.Sub(pool.Add(a, b), b), a) << "seed " << seed;
    ASSERT_EQ(Compare(a, b), -Compare(b, a)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hir::ir
