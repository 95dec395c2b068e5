// Conversions of the 16-bit floats, over every bit pattern.
//
// Method: Decode computes a pattern's value from its fields by ldexp; Nearest finds the pattern
// nearest to a value by looking at all candidates on both sides. Neither shares a line with the
// conversions under test.
#include "csrc/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"

namespace hir {
namespace {

struct Format {
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
  float (*to_float)(uint16_t);
  uint16_t (*from_float)(float);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits); }
};
void PrintTo(const Format& c, std::ostream* out) { *out << DTypeName(c.dtype); }

constexpr Format kFormats[] = {
    {DType::kFloat16, 5, 10, Float16ToFloat, FloatToFloat16},
    {DType::kBFloat16, 8, 7, BFloat16ToFloat, FloatToBFloat16},
};

constexpr uint16_t kSign = 0x8000;

bool IsNan(const Format& format, uint16_t bits) { return (bits & ~kSign) > format.infinity(); }

// The value of a pattern that is not a NaN, from the definition of the format.
double Decode(const Format& format, uint16_t bits) {
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits & ~kSign) >> format.mantissa_bits;
  const double sign = (bits & kSign) != 0 ? -1.0 : 1.0;
  if ((bits & ~kSign) == format.infinity()) return sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  const int implied = mantissa | (1 << format.mantissa_bits);
  return sign * std::ldexp(implied, exponent - format.bias() - format.mantissa_bits);
}

// The value where the format would go on if it had one more exponent: halfway to it rounds to
// infinity.
double BeyondLargest(const Format& format) { return std::ldexp(1.0, format.bias() + 1); }

// The pattern that `value` (not a NaN) rounds to: patterns of one sign are ordered like their
// values, so this is a binary search for the neighbours, then the nearer one, and the even one in a
// tie.
uint16_t Encode(const Format& format, double value) {
  const uint16_t sign = std::signbit(value) ? kSign : 0;
  const double magnitude = std::fabs(value);
  uint16_t low = 0;
  uint16_t high = format.infinity();  // Decode(low) <= magnitude; high is above it, or the infinity.
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (Decode(format, middle) <= magnitude ? low : high) = middle;
  }
  const double above = high == format.infinity() ? BeyondLargest(format) : Decode(format, high);
  const double to_low = magnitude - Decode(format, low);
  const double to_high = above - magnitude;
  const bool up = to_high < to_low || (to_high == to_low && high % 2 == 0);
  return static_cast<uint16_t>((up ? high : low) | sign);
}

class Float16Formats : public testing::TestWithParam<Format> {};

TEST_P(Float16Formats, EveryPatternDecodes) {
  const Format& format = GetParam();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    const float value = format.to_float(pattern);
    if (IsNan(format, pattern)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    ASSERT_EQ(value, Decode(format, pattern)) << bits;
    ASSERT_EQ(std::signbit(value), (pattern & kSign) != 0) << bits;
  }
}

TEST_P(Float16Formats, EveryPatternComesBack) {
  const Format& format = GetParam();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    const uint16_t back = format.from_float(format.to_float(pattern));
    if (IsNan(format, pattern)) {
      ASSERT_TRUE(IsNan(format, back)) << bits;
      ASSERT_EQ(back & kSign, pattern & kSign) << bits;
    } else {
      ASSERT_EQ(back, pattern);
    }
  }
}

// On every pattern, on the middle between it and the next, and on both sides of that middle.
TEST_P(Float16Formats, RoundsToNearestTiesToEven) {
  const Format& format = GetParam();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const uint16_t pattern = static_cast<uint16_t>(bits);
    if ((pattern & ~kSign) >= format.infinity()) continue;
    const uint16_t next = static_cast<uint16_t>(pattern + 1);
    const double here = Decode(format, pattern);
    const double there =
        (next & ~kSign) == format.infinity() ? std::copysign(BeyondLargest(format), here) : Decode(format, next);
    const float middle = static_cast<float>((here + there) / 2);
    ASSERT_EQ(middle, (here + there) / 2) << "float32 holds every middle";
    for (const float value :
         {static_cast<float>(here), middle, std::nextafterf(middle, -INFINITY), std::nextafterf(middle, INFINITY)}) {
      ASSERT_EQ(format.from_float(value), Encode(format, value)) << base::FormatDouble(value);
      ASSERT_EQ(RoundTo(format.dtype, value), Decode(format, Encode(format, value))) << base::FormatDouble(value);
    }
  }
}

TEST_P(Float16Formats, InfinityAndBeyond) {
  const Format& format = GetParam();
  for (const float value : {INFINITY, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(format.from_float(value), format.infinity());
    EXPECT_EQ(format.from_float(-value), format.infinity() | kSign);
    EXPECT_EQ(RoundTo(format.dtype, value), INFINITY);
    EXPECT_EQ(RoundTo(format.dtype, -value), -INFINITY);
  }
  EXPECT_TRUE(std::isnan(RoundTo(format.dtype, NAN)));
  // A NaN whose payload lies only in the bits that are cut off stays a NaN.
  EXPECT_TRUE(IsNan(format, format.from_float(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(IsNan(format, format.from_float(std::bit_cast<float>(0xff800001u))));
}

// Values that float32 cannot hold: RoundTo rounds once, not first to float32.
TEST_P(Float16Formats, RoundToRoundsADoubleOnce) {
  const Format& format = GetParam();
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(base::Cat("seed ", kSeed));
  base::Prng prng(kSeed);
  for (int i = 0; i < 100'000; ++i) {
    const int exponent = static_cast<int>(prng.Between(-format.bias() - 16, format.bias() + 2));
    double value = std::ldexp(1.0 + prng.Unit(), exponent);
    if (prng.OneIn(2)) {  // A hair off the middle between two neighbours, where rounding twice goes wrong.
      const uint16_t pattern = static_cast<uint16_t>(prng.Below(format.infinity() - 1));
      const double middle = (Decode(format, pattern) + Decode(format, static_cast<uint16_t>(pattern + 1))) / 2;
      value = std::nextafter(middle, prng.OneIn(2) ? 0.0 : INFINITY);
    }
    if (prng.OneIn(2)) value = -value;
    ASSERT_EQ(RoundTo(format.dtype, value), Decode(format, Encode(format, value))) << base::FormatDouble(value);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Float16Formats, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(DTypeName(info.param.dtype)); });

TEST(RoundTo, WideTypes) {
  EXPECT_EQ(RoundTo(DType::kFloat64, 0.1), 0.1);
  EXPECT_EQ(RoundTo(DType::kFloat32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(RoundTo(DType::kFloat32, 1e300), INFINITY);
  EXPECT_EQ(RoundTo(DType::kFloat32, 0x1p-149), 0x1p-149) << "the smallest denormal stays";
  EXPECT_TRUE(std::signbit(RoundTo(DType::kBFloat16, -0.0)));
}

TEST(DType, NamesReadBack) {
  for (DType dtype : kAllDTypes) EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  std::string names;
  for (DType dtype : kAllDTypes) names += (names.empty() ? "" : ", ") + std::string(DTypeName(dtype));
  EXPECT_EQ(names, kDTypeNames);
  EXPECT_FALSE(ParseDType("float").has_value());
  EXPECT_FALSE(ParseDType("").has_value());
}

TEST(DType, SizesAndKinds) {
  const int64_t bytes[] = {1, 1, 1, 4, 8, 2, 2, 4, 8};
  for (size_t i = 0; i < std::size(kAllDTypes); ++i) EXPECT_EQ(DTypeBytes(kAllDTypes[i]), bytes[i]);
  for (DType dtype : kAllDTypes) {
    EXPECT_EQ(IsFloat(dtype), DTypeName(dtype).find('f') != std::string_view::npos) << DTypeName(dtype);
    EXPECT_EQ(IsInt(dtype), (DTypeName(dtype)[0] == 'i' || DTypeName(dtype)[0] == 'u')) << DTypeName(dtype);
  }
  EXPECT_EQ(ComputeDType(DType::kFloat16), DType::kFloat32);
  EXPECT_EQ(ComputeDType(DType::kBFloat16), DType::kFloat32);
  EXPECT_EQ(ComputeDType(DType::kInt32), DType::kInt32);
}

}  // namespace
}  // namespace hir
