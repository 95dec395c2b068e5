// Goal: stores past the caches are chosen by what they cost on this machine, and lose nothing. Method: the rule on made
// up times; the measurement itself; a kernel whose output is large enough, whatever was chosen.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "csrc/codegen/cpu/artifact.h"
#include "tests/csrc/codegen/kernel_runner.h"

namespace hir::codegen::cpu {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

TEST(StreamedBytes, AreNoneWhereSuchStoresAreManyTimesSlower) {
  EXPECT_EQ(StreamedBytesFor(1, 0.8), kStreamedBytesMin);
  EXPECT_EQ(StreamedBytesFor(1, 3), kStreamedBytesMin);
  EXPECT_EQ(StreamedBytesFor(1, 5), kNever);
}

TEST(StreamedBytes, AreMeasuredOnce) {
  const int64_t bytes = StreamedBytes();
  EXPECT_TRUE(bytes == kStreamedBytesMin || bytes == kNever) << bytes;
  EXPECT_EQ(StreamedBytes(), bytes);
}

TEST(StreamedBytes, LargeOutputsAreWhole) {
  // One line more than the least, of a known size and of a symbol's.
  constexpr int64_t kElements = kStreamedBytesMin / 8 + 8;
  const std::string known = base::Cat("f64[", kElements, "]");
  CheckProgram(base::Cat("fusion @f(%x: ", known, ") { %y = neg(%x) return %y }"), {}, 1);
  CheckProgram("fusion @f(%x: f64[i0]) { %y = neg(%x) return %y }", {{"i0", kElements}}, 2);
}

}  // namespace
}  // namespace hir::codegen::cpu
