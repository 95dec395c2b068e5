// Integer arithmetic at the edges of int64, against 128-bit arithmetic.
#include "csrc/base/checked.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"

namespace hir::base {
namespace {

using Wide = __int128;
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

std::vector<int64_t> Operands() {
  std::vector<int64_t> values = {kMin, kMin + 1, kMax, kMax - 1, int64_t{1} << 31, int64_t{1} << 32, 3037000500};
  for (int64_t i = -9; i <= 9; ++i) values.push_back(i);
  Prng prng(5);
  for (int i = 0; i < 200; ++i) values.push_back(static_cast<int64_t>(prng.Next()) >> prng.Below(64));
  return values;
}

void ExpectWide(std::optional<int64_t> got, Wide expected, int64_t a, int64_t b) {
  const bool fits = expected >= kMin && expected <= kMax;
  ASSERT_EQ(got.has_value(), fits) << a << " " << b;
  if (fits) {
    ASSERT_EQ(*got, static_cast<int64_t>(expected)) << a << " " << b;
  }
}

TEST(Checked, AgreesWithWiderArithmeticOrRefuses) {
  const std::vector<int64_t> values = Operands();
  for (int64_t a : values) {
    for (int64_t b : values) {
      ExpectWide(CheckedAdd(a, b), Wide{a} + b, a, b);
      ExpectWide(CheckedSub(a, b), Wide{a} - b, a, b);
      ExpectWide(CheckedMul(a, b), Wide{a} * b, a, b);
    }
  }
}

TEST(Divisions, KeepTheirDefinitions) {
  const std::vector<int64_t> values = Operands();
  for (int64_t a : values) {
    for (int64_t b : values) {
      if (b <= 0) continue;
      const int64_t floor = FloorDiv(a, b);
      const int64_t mod = FloorMod(a, b);
      ASSERT_EQ(Wide{floor} * b + mod, a) << a << " " << b;
      ASSERT_GE(mod, 0) << a << " " << b;
      ASSERT_LT(mod, b) << a << " " << b;
      const int64_t ceil = CeilDiv(a, b);
      ASSERT_GE(Wide{ceil} * b, a) << a << " " << b;
      ASSERT_LT((Wide{ceil} - 1) * b, a) << a << " " << b;
    }
  }
}

TEST(Divisions, ByHand) {
  EXPECT_EQ(FloorDiv(7, 2), 3);
  EXPECT_EQ(FloorDiv(-7, 2), -4);
  EXPECT_EQ(FloorMod(-7, 2), 1);
  EXPECT_EQ(CeilDiv(7, 2), 4);
  EXPECT_EQ(CeilDiv(-7, 2), -3);
  EXPECT_EQ(CeilDiv(0, 5), 0);
}

}  // namespace
}  // namespace hir::base
