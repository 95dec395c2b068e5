// Goal: a thread looks before it sleeps while that pays, stops for a while beside a neighbour that keeps the core, and
// comes back when the neighbour has gone.
// Method: a clock that only yields move, each by as much as the test says: nothing sleeps, and every time is exact.
#include "csrc/base/busy_wait.h"

#include <gtest/gtest.h>

#include <vector>

namespace hir::base {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class BusyWaitTest : public testing::Test, public Clock {
 protected:
  static constexpr Nanos kMost = microseconds(200);

  Nanos Now() const override { return now_; }
  BusyWait Make(BusyWait::Mode mode) {
    return BusyWait(mode, *this, [this] {
      ++num_yields_;
      now_ += yield_;
    });
  }
  // A look for what is there after a yield, which takes so long. Whether it found it, rather than to sleep for it.
  bool FindAfter(Nanos yield, BusyWait& busy_wait) {
    yield_ = yield;
    Look look(busy_wait, kMost);
    if (look.IsOver()) return false;
    look.Found();
    return true;
  }
  // How long it then looks for nothing.
  Nanos Pause(BusyWait& busy_wait) {
    const Nanos from = now_;
    while (!busy_wait.Pays()) now_ += milliseconds(1);
    return now_ - from;
  }

  Nanos now_ = std::chrono::hours(1);
  Nanos yield_ = microseconds(1);
  int num_yields_ = 0;
};

TEST_F(BusyWaitTest, LooksForAsLongAsItIsToldTo) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  Look look(busy_wait, microseconds(20));
  while (!look.IsOver()) {
  }
  EXPECT_EQ(num_yields_, 20);
  EXPECT_TRUE(look.IsOver());
  EXPECT_EQ(num_yields_, 20);
}

TEST_F(BusyWaitTest, LooksOnceMoreAfterAYieldBeyondItsTime) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  yield_ = milliseconds(3);
  Look look(busy_wait, kMost);
  EXPECT_FALSE(look.IsOver());  // It may be there now.
  EXPECT_TRUE(look.IsOver());
}

TEST_F(BusyWaitTest, LooksSoManyTimesMore) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  yield_ = microseconds(100);
  Look look(busy_wait, kMost, /*more=*/5);
  while (!look.IsOver()) {
  }
  EXPECT_EQ(num_yields_, 7);
}

TEST_F(BusyWaitTest, OffNeverLooks) {
  BusyWait busy_wait = Make(BusyWait::Mode::kOff);
  EXPECT_FALSE(FindAfter(microseconds(1), busy_wait));
  Look look(busy_wait, kMost, /*more=*/5);
  EXPECT_TRUE(look.IsOver());
  EXPECT_EQ(num_yields_, 0);
}

TEST_F(BusyWaitTest, OnLooksWhateverItCosts) {
  BusyWait busy_wait = Make(BusyWait::Mode::kOn);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(FindAfter(milliseconds(3), busy_wait));
}

TEST_F(BusyWaitTest, OwnThreadsOnTheSameCoreDoNotEndIt) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  for (int i = 0; i < 10000; ++i) ASSERT_TRUE(FindAfter(microseconds(i % 100), busy_wait));
}

TEST_F(BusyWaitTest, ANeighbourThatStaysEndsItWithinAFewSlices) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(FindAfter(microseconds(1), busy_wait));
  int found = 0;
  while (FindAfter(milliseconds(3), busy_wait)) ++found;
  EXPECT_EQ(found, 4);  // What it has saved is 10 ms at most.
  num_yields_ = 0;
  EXPECT_FALSE(FindAfter(milliseconds(3), busy_wait));
  EXPECT_EQ(num_yields_, 0);
}

TEST_F(BusyWaitTest, PausesGetLongerBesideANeighbourThatStays) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  std::vector<Nanos> pauses;
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(FindAfter(milliseconds(3), busy_wait));  // One look a pause.
    pauses.push_back(Pause(busy_wait));
  }
  EXPECT_EQ(pauses, (std::vector<Nanos>{milliseconds(50), milliseconds(100), milliseconds(200), milliseconds(400),
                                        milliseconds(800), milliseconds(1600), milliseconds(3200), milliseconds(5000),
                                        milliseconds(5000)}));
}

TEST_F(BusyWaitTest, AfterANeighbourHasGonePausesAreShortAgain) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(FindAfter(milliseconds(3), busy_wait));
    Pause(busy_wait);
  }
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(FindAfter(microseconds(1), busy_wait));
  while (FindAfter(milliseconds(3), busy_wait)) {
  }
  EXPECT_EQ(Pause(busy_wait), milliseconds(50));
}

TEST_F(BusyWaitTest, WhereClientsWaitMomentsAreLostToo) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(FindAfter(microseconds(400), busy_wait));  // One client's own.
  busy_wait.set_clients_wait(true);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(FindAfter(microseconds(1), busy_wait));  // There are cores for all.
  int found = 0;
  while (FindAfter(microseconds(400), busy_wait)) ++found;
  EXPECT_EQ(found, 29);  // 10 ms were saved, and each loses 350 us.
  busy_wait.set_clients_wait(true);
  EXPECT_FALSE(busy_wait.Pays());
  busy_wait.set_clients_wait(false);
  EXPECT_TRUE(FindAfter(microseconds(400), busy_wait));
}

// A program that wakes every 20 ms costs 3 ms then, and 60 looks that find something save as much.
TEST_F(BusyWaitTest, ANeighbourNowAndThenDoesNotEndIt) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(FindAfter(microseconds(1), busy_wait));
  for (int i = 0; i < 10000; ++i) ASSERT_TRUE(FindAfter(i % 70 == 0 ? milliseconds(3) : microseconds(1), busy_wait));
}

// A thread that looked in vain and slept then was woken: looking saved nothing.
TEST_F(BusyWaitTest, WhatComesAfterwardsCountsNothing) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  for (int i = 0; i < 1000; ++i) {
    Look look(busy_wait, kMost);
    while (!look.IsOver()) {
    }
    look.Found();
  }
  ASSERT_TRUE(FindAfter(milliseconds(3), busy_wait));
  EXPECT_FALSE(busy_wait.Pays());
}

// A thread that finds nothing has lost nothing: it would have slept.
TEST_F(BusyWaitTest, LooksThatFindNothingCostNothing) {
  BusyWait busy_wait = Make(BusyWait::Mode::kAuto);
  yield_ = milliseconds(3);
  for (int i = 0; i < 100; ++i) {
    Look look(busy_wait, kMost);
    ASSERT_FALSE(look.IsOver());
    ASSERT_TRUE(look.IsOver());
  }
}

}  // namespace
}  // namespace hir::base
