// FreeRanges against a map of bytes.
#include "csrc/base/free_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "csrc/base/prng.h"

namespace hir::base {
namespace {

TEST(FreeRanges, TakesTheSmallestThatFits) {
  FreeRanges ranges;
  EXPECT_EQ(ranges.Take(1), std::nullopt);
  ranges.Add(0, 100);
  ranges.Add(200, 10);
  ranges.Add(300, 50);
  EXPECT_EQ(ranges.Take(10), 200);
  EXPECT_EQ(ranges.Take(20), 300);
  EXPECT_EQ(ranges.Take(30), 320);
  EXPECT_EQ(ranges.Take(101), std::nullopt);
  EXPECT_EQ(ranges.largest(), 100);
  ranges.Add(300, 50);
  EXPECT_EQ(ranges.BytesBefore(350), 50);
  EXPECT_EQ(ranges.BytesBefore(360), 0);
}

TEST(FreeRanges, NeverGivesAByteTwiceAndLosesNone) {
  constexpr int64_t kBytes = 400;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    base::Prng random(seed);
    FreeRanges ranges;
    ranges.Add(0, kBytes);
    std::vector<bool> used(kBytes);
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (int step = 0; step < 300; ++step) {
      if (taken.empty() || random.OneIn(2)) {
        const int64_t bytes = 1 + random.Below(60);
        const auto offset = ranges.Take(bytes);
        int64_t longest = 0;
        for (int64_t i = 0, run = 0; i < kBytes; ++i) {
          run = used[static_cast<size_t>(i)] ? 0 : run + 1;
          longest = std::max(longest, run);
        }
        ASSERT_EQ(offset.has_value(), longest >= bytes) << "seed " << seed;
        if (!offset) continue;
        for (int64_t i = *offset; i < *offset + bytes; ++i) {
          ASSERT_FALSE(used[static_cast<size_t>(i)]);
          used[static_cast<size_t>(i)] = true;
        }
        taken.emplace_back(*offset, bytes);
      } else {
        const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(taken.size())));
        const auto [offset, bytes] = taken[at];
        taken.erase(taken.begin() + static_cast<ptrdiff_t>(at));
        for (int64_t i = offset; i < offset + bytes; ++i) used[static_cast<size_t>(i)] = false;
        ranges.Add(offset, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace hir::base
