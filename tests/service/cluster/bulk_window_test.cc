// Goal: of a slow link little is on its way, of a fast one enough; and whatever the other side says there is an end to
// neither. Method: pieces that take as long as a test says.
#include "service/cluster/bulk_window.h"

#include <gtest/gtest.h>

#include "csrc/base/prng.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;

TEST(BulkWindow, GrowsWhileItIsFastAndNeededAndShrinksWhenItIsSlow) {
  BulkWindow window;
  base::Nanos now = {};
  const auto round = [&](base::Nanos takes, int64_t most) {
    int asked = 0;
    for (int64_t sent = 0; sent < most;) {
      const int64_t bytes = window.Next(most - sent);
      if (bytes == 0) break;
      sent += bytes;
      asked += window.Sent(bytes, sent == most, now) ? 1 : 0;
    }
    now += takes;
    for (; asked > 0; --asked) window.Taken(now);
  };
  for (int i = 0; i < 100; ++i) round(milliseconds(1), 1000);
  EXPECT_EQ(window.bytes(), BulkWindow::kLeast);  // More was never needed.
  for (int i = 0; i < 100; ++i) round(milliseconds(1), INT64_MAX);
  EXPECT_EQ(window.bytes(), BulkWindow::kMost);
  for (int i = 0; i < 100; ++i) round(milliseconds(100), INT64_MAX);
  EXPECT_EQ(window.bytes(), BulkWindow::kMost);
  for (int i = 0; i < 10; ++i) round(milliseconds(300), INT64_MAX);
  EXPECT_EQ(window.bytes(), BulkWindow::kLeast);
}

// Where an answer is to come, or there is room: else nothing would ever be sent again.
TEST(BulkWindow, NeverGetsStuck) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    base::Prng prng(seed);
    BulkWindow window;
    base::Nanos now = {};
    int64_t asked = 0;
    for (int i = 0; i < 1000; ++i) {
      now += milliseconds(prng.Below(prng.OneIn(2) ? 3 : 400));
      if (asked > 0 && prng.OneIn(2)) {
        window.Taken(now);
        --asked;
        continue;
      }
      const int64_t left = 1 + prng.Below(1 << 20);
      const int64_t bytes = window.Next(left);
      ASSERT_TRUE(bytes > 0 || asked > 0);
      ASSERT_LE(bytes, BulkWindow::kPieceMost);
      if (bytes > 0) asked += window.Sent(bytes, bytes == left, now) ? 1 : 0;
      ASSERT_LE(window.on_the_way(), BulkWindow::kMost);
    }
  }
}

TEST(BulkWindow, AnswersThatNobodyAskedForChangeNothing) {
  BulkWindow window;
  for (int i = 0; i < 10; ++i) window.Taken(milliseconds(i));
  EXPECT_EQ(window.on_the_way(), 0);
  EXPECT_EQ(window.bytes(), BulkWindow::kLeast);
}

}  // namespace
}  // namespace hir::service
