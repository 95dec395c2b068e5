// Text that reads back to the same value, and suggestions for misspelled words.
#include "csrc/base/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "csrc/base/prng.h"

namespace hir::base {
namespace {

TEST(FormatDouble, ReadsBackToTheSameBits) {
  constexpr uint64_t kSeed = 20;
  SCOPED_TRACE(Cat("seed ", kSeed));
  Prng prng(kSeed);
  for (int i = 0; i < 200'000; ++i) {
    // Half any bit pattern, half the short numbers that people write.
    const double value =
        i % 2 == 0 ? std::bit_cast<double>(prng.Next()) : static_cast<double>(prng.Between(-100'000, 100'000)) / 100;
    if (std::isnan(value)) continue;
    const std::string text = FormatDouble(value);
    const std::optional<double> back = ParseDouble(text);
    ASSERT_TRUE(back.has_value()) << text;
    ASSERT_EQ(std::bit_cast<uint64_t>(*back), std::bit_cast<uint64_t>(value)) << text;
    ASSERT_NE(text.find_first_of(".einf"), std::string::npos) << text << " reads as an integer";
  }
}

TEST(FormatDouble, IsShortAndNeverLooksLikeAnInteger) {
  EXPECT_EQ(FormatDouble(0.1), "0.1");
  EXPECT_EQ(FormatDouble(3), "3.0");
  EXPECT_EQ(FormatDouble(-0.0), "-0.0");
  EXPECT_EQ(FormatDouble(1e300), "1e+300");
  EXPECT_EQ(FormatDouble(5e-324), "5e-324");
  EXPECT_EQ(FormatDouble(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatDouble(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(FormatDouble(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(FormatDouble(-std::numeric_limits<double>::quiet_NaN()), "nan");
}

TEST(Cat, TakesEveryKind) {
  EXPECT_EQ(Cat("a", std::string("b"), 'c', true, 1.5, -7, uint64_t{18446744073709551615u}),
            "abctrue1.5-718446744073709551615");
  EXPECT_EQ(Cat(), "");
}

TEST(Join, PutsSeparatorsBetween) {
  EXPECT_EQ(JoinInts(std::vector<int64_t>{}, ", "), "");
  EXPECT_EQ(JoinInts(std::vector<int64_t>{1}, ", "), "1");
  EXPECT_EQ(JoinInts(std::vector<int64_t>{1, -2, 3}, ", "), "1, -2, 3");
}

TEST(ParseInt, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(ParseInt("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(ParseInt("9223372036854775807"), std::numeric_limits<int64_t>::max());
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1x", "0x10", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInt(text).has_value()) << text;
  }
}

TEST(ParseDouble, TakesTheWholeTextOrNothing) {
  EXPECT_EQ(ParseDouble("1e3"), 1000.0);
  EXPECT_EQ(ParseDouble("-inf"), -std::numeric_limits<double>::infinity());
  for (const char* text : {"", ".", "1.0f", " 1", "1e", "--1", "1e999"}) {
    EXPECT_FALSE(ParseDouble(text).has_value()) << text;
  }
}

TEST(Nearest, SuggestsOnlyWhatIsNear) {
  const std::string_view words[] = {"add", "reshape", "broadcast_in_dim", "relu"};
  EXPECT_EQ(Nearest("reshap", words), "reshape");
  EXPECT_EQ(Nearest("reul", words), "relu");
  EXPECT_EQ(Nearest("broadcast_dim", words), "broadcast_in_dim");
  EXPECT_EQ(Nearest("softmax", words), "");
  EXPECT_EQ(Nearest(std::string(1'000'000, 'x'), words), "");
  EXPECT_EQ(Nearest("add", {}), "");
}

}  // namespace
}  // namespace hir::base
