// Goal: loops along rows are right for each kind of processor that this one can stand for, to the last element of rows
// of any length, and write nothing but what they say. Method: beside the formulas in double.
#include "csrc/codegen/library/row_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "tests/csrc/codegen/library/elements.h"

namespace hir::codegen::library {
namespace {

template <typename T>
class RowLoopsTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(RowLoopsTest, Types);

template <typename T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// In units of the last place of `want`.
template <typename T>
double ErrorOf(T got, double want) {
  const auto near = std::fabs(static_cast<T>(want));
  return std::fabs(static_cast<double>(got) - want) / (std::nextafter(near, kInfinity<T>) - near);
}

TYPED_TEST(RowLoopsTest, PowersAreExactToTwoUnits) {
  using T = TypeParam;
  for (const RowLoops<T>* loops : AllRowLoops<T>()) {
    std::vector<T> row(RowLoops<T>::kLanes);
    double worst = 0;
    for (double x = -86.4; x < 88.7; x += 0.00037) {
      row[0] = static_cast<T>(x);
      const T exponent = row[0];
      loops->powers(row.data(), 1, T{0});
      worst = std::max(worst, ErrorOf(row[0], std::exp(static_cast<double>(exponent))));
    }
    EXPECT_LE(worst, 2);
    const auto power = [&](T x, T shift) {
      row[0] = x;
      const T sum = loops->powers(row.data(), 1, shift);
      EXPECT_TRUE(sum == row[0] || std::isnan(sum));
      return row[0];
    };
    EXPECT_EQ(power(3, 3), 1);
    EXPECT_EQ(power(-kInfinity<T>, 0), 0);
    EXPECT_EQ(power(T(-1e30), T(1e30)), 0);
    EXPECT_LT(power(-88, 0), 1e-37);
    EXPECT_EQ(power(T(1e30), 0), kInfinity<T>);
    EXPECT_TRUE(std::isnan(power(std::numeric_limits<T>::quiet_NaN(), 0)));
    EXPECT_TRUE(std::isnan(power(kInfinity<T>, kInfinity<T>)));
  }
}

TYPED_TEST(RowLoopsTest, RowsOfAnyLength) {
  using T = TypeParam;
  constexpr int64_t kLanes = RowLoops<T>::kLanes;
  base::Prng prng(1);
  const auto near = [](double want) { return 1e-6 * std::fabs(want) + 1e-6; };
  for (const RowLoops<T>* loops : AllRowLoops<T>()) {
    for (int64_t n = 0; n < 9 * kLanes; ++n) {
      SCOPED_TRACE(n);
      const auto size = static_cast<size_t>(n), room = (size + kLanes - 1) / kLanes * kLanes;
      std::vector<T> x(room + 1, 777), y(x);
      for (size_t i = 0; i < size; ++i) {
        x[i] = static_cast<T>(prng.Unit() * 4 - 2);
        y[i] = prng.OneIn(3) ? T{0} : static_cast<T>(prng.Unit());
      }
      // Exactly n are written by these.
      std::vector<T> scaled = x, added = x, chosen = x;
      loops->scale(scaled.data(), n, T(0.5));
      loops->add(added.data(), y.data(), n);
      loops->choose(chosen.data(), y.data(), n);
      for (size_t i = 0; i <= room; ++i) {
        ASSERT_EQ(scaled[i], i < size ? x[i] / 2 : 777);
        ASSERT_EQ(added[i], i < size ? x[i] + y[i] : 777);
        ASSERT_EQ(chosen[i], i < size && y[i] == 0 ? -kInfinity<T> : x[i]);
      }
      double sum = 0, max = -kInfinity<T>;
      for (size_t i = 0; i < size; ++i) {
        sum += std::exp(x[i] - 1.0);
        max = x[i] > max ? x[i] : max;
      }
      std::vector<T> powers = x;
      EXPECT_EQ(loops->max(powers.data(), n), max);
      EXPECT_NEAR(loops->powers(powers.data(), n, T{1}), sum, near(sum));
      // Two of the scores are none, or NaN, where there are so many; their gradients are as said.
      std::vector<T> p = x, of_p = y, alone = x;
      if (n > 2) p[0] = alone[0] = -kInfinity<T>, of_p[0] = std::numeric_limits<T>::quiet_NaN();
      if (n > 2) of_p[size - 1] = std::numeric_limits<T>::quiet_NaN();
      loops->gradients(p.data(), of_p.data(), n, T(0.5), T(0.25));
      loops->gradients(alone.data(), nullptr, n, T(0.5), T(0.25));
      for (size_t i = 0; i < size; ++i) {
        const double want = n > 2 && i == 0 ? 0 : std::exp(x[i] - 0.5);
        ASSERT_NEAR(powers[i], std::exp(x[i] - 1.0), near(1));
        ASSERT_NEAR(p[i], want, near(want));
        ASSERT_EQ(alone[i], p[i]);
        if (n > 2 && i == size - 1) {
          ASSERT_TRUE(std::isnan(of_p[i]));
        } else {
          ASSERT_NEAR(of_p[i], n > 2 && i == 0 ? 0 : want * (y[i] - 0.25), near(want));
        }
      }
      for (size_t i = size; i < room; ++i) ASSERT_TRUE(powers[i] == 0 && p[i] == 0 && of_p[i] == 0);
      ASSERT_TRUE(powers[room] == 777 && p[room] == 777 && of_p[room] == 777);
      // No key takes part: neither score nor lse is finite.
      std::fill(p.begin(), p.end(), -kInfinity<T>);
      loops->gradients(p.data(), nullptr, n, -kInfinity<T>, T{0});
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(p[i], 0);
      // Without a score, or with NaN alone.
      std::fill(x.begin(), x.end(), std::numeric_limits<T>::quiet_NaN());
      EXPECT_EQ(loops->max(x.data(), n), -kInfinity<T>);
    }
  }
}

// All 16-bit floats, and a few others, next to each other and apart.
TYPED_TEST(RowLoopsTest, WidensElementsOfEveryType) {
  using T = TypeParam;
  for (const RowLoops<T>* loops : AllRowLoops<T>()) {
    for (const DType dtype : {DType::kBool, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (const int64_t next : {0, 1, 3}) {
        for (const int64_t n : {0, 1, 15, 16, 17, 65535}) {
          SCOPED_TRACE(base::Cat(DTypeName(dtype), " next ", next, " n ", n));
          std::vector<std::byte> from(static_cast<size_t>(((n - 1) * next + 1) * DTypeBytes(dtype) * (n > 0 ? 1 : 0)));
          for (int64_t i = 0; i < n; ++i) {
            std::byte* const at = from.data() + i * next * DTypeBytes(dtype);
            const auto bits = static_cast<uint16_t>(i);
            if (DTypeBytes(dtype) == 2) {
              std::memcpy(at, &bits, 2);
            } else {
              Put(at, dtype, dtype == DType::kBool ? static_cast<double>(i % 3 == 0) : 0.1 * static_cast<double>(i));
            }
          }
          std::vector<T> to(static_cast<size_t>(n) + 1, 777);
          loops->widen(dtype, from.data(), next, n, to.data());
          for (int64_t i = 0; i < n; ++i) {
            const std::byte* const at = from.data() + i * next * DTypeBytes(dtype);
            const double want = dtype == DType::kBool ? static_cast<double>(*at) : Take(at, dtype);
            const T got = to[static_cast<size_t>(i)];
            ASSERT_TRUE(got == static_cast<T>(want) || (std::isnan(got) && std::isnan(want))) << i;
          }
          ASSERT_EQ(to.back(), 777);
        }
      }
    }
  }
}

}  // namespace
}  // namespace hir::codegen::library
