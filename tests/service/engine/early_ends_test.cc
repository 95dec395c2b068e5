// Goal: runs that wait end at their deadlines, in that order; the one under way is given up when it was cancelled, or
// is late, and has had its grace; the first cause is the one that counts. Method: the table alone, at times that the
// test says; with queue and ranks it is in sequencer_test.cc.
#include "service/engine/early_ends.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hir::service {
namespace {

using std::chrono::milliseconds;

constexpr base::Nanos kNever = base::Nanos::max();
const Owner kZoe = {"uid:1", "a"}, kBob = {"uid:2", "b"};

RunDeadline At(int64_t ms) { return {milliseconds(ms), ms}; }

TEST(EarlyEnds, DeadlinesComeInOrder) {
  EarlyEnds ends(milliseconds(100));
  EXPECT_EQ(ends.next(), kNever);
  ends.Wait(kZoe, 1, At(30));
  ends.Wait(kBob, 2, At(20));
  ends.Wait(kBob, 3, {});
  ends.Wait(kZoe, 4, At(20));
  ends.Wait(kZoe, 5, At(10));
  ends.WaitNoMore(5, At(10));
  ends.WaitNoMore(3, {});
  EXPECT_EQ(ends.next(), milliseconds(20));
  EXPECT_EQ(ends.TakeLate(milliseconds(19)), std::nullopt);
  EXPECT_EQ(ends.TakeLate(milliseconds(30)), std::pair(kBob, int64_t{2}));
  EXPECT_EQ(ends.TakeLate(milliseconds(30)), std::pair(kZoe, int64_t{4}));
  EXPECT_EQ(ends.TakeLate(milliseconds(30)), std::pair(kZoe, int64_t{1}));
  EXPECT_EQ(ends.TakeLate(milliseconds(30)), std::nullopt);
  EXPECT_EQ(ends.next(), kNever);
}

TEST(EarlyEnds, WhatRunsHasItsGrace) {
  EarlyEnds ends(milliseconds(100));
  ends.Start(kZoe, 7, "run 7 of p", {}, milliseconds(1000));
  EXPECT_EQ(ends.next(), kNever);
  EXPECT_TRUE(ends.IsUnderWay(kZoe, 7));
  EXPECT_FALSE(ends.IsUnderWay(kBob, 7)) << "it is another's";
  EXPECT_FALSE(ends.IsUnderWay(kZoe, 8));
  ends.Cancel("zoe cancelled it", milliseconds(1010));
  EXPECT_EQ(ends.next(), milliseconds(1100));
  EXPECT_EQ(ends.GivenUp(milliseconds(1099)).ToString(), "OK");
  EXPECT_EQ(ends.GivenUp(milliseconds(1100)).ToString(), "CANCELLED: run 7 of p: zoe cancelled it while it ran");
  ends.Over();
  EXPECT_EQ(ends.GivenUp(milliseconds(1100)).ToString(), "OK");
  EXPECT_FALSE(ends.IsUnderWay(kZoe, 7));
  ends.Start(kZoe, 8, "run 8 of p", {}, milliseconds(2000));
  ends.Cancel("zoe cancelled it", milliseconds(2500));
  EXPECT_EQ(ends.next(), milliseconds(2500)) << "its grace is over";
}

TEST(EarlyEnds, TheFirstCauseCounts) {
  EarlyEnds ends(milliseconds(100));
  ends.Start(kZoe, 1, "run 1 of p", At(1010), milliseconds(1000));
  EXPECT_EQ(ends.next(), milliseconds(1100)) << "the deadline is within its grace";
  ends.Cancel("zoe cancelled it", milliseconds(1020));
  EXPECT_EQ(ends.GivenUp(milliseconds(1100)).ToString(),
            "DEADLINE_EXCEEDED: run 1 of p: deadline_ms = 1010 passed while it ran");
  ends.Start(kZoe, 2, "run 2 of p", At(9000), milliseconds(2000));
  EXPECT_EQ(ends.next(), milliseconds(9000));
  ends.Cancel("zoe cancelled it", milliseconds(3000));
  EXPECT_EQ(ends.GivenUp(milliseconds(3000)).code(), Code::kCancelled);
}

}  // namespace
}  // namespace hir::service
