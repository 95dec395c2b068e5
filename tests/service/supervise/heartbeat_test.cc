// Goal: silent ranks are given up in time, and those of a machine that sleeps, or of a daemon that is late, are not.
#include "service/supervise/heartbeat.h"

#include <gtest/gtest.h>

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Next = Heartbeat::Next;

constexpr base::Nanos kEvery = seconds(1), kSilenceMax = seconds(5);

TEST(Heartbeat, AsksWhoHasSaidNothing) {
  Heartbeat heartbeat(kEvery, kSilenceMax);
  heartbeat.Heard(seconds(10));
  EXPECT_EQ(heartbeat.due(), seconds(11));
  EXPECT_EQ(heartbeat.Look(milliseconds(10'900), true), Next::kNothing);
  EXPECT_EQ(heartbeat.Look(seconds(11), true), Next::kAsk);
  EXPECT_EQ(heartbeat.Look(seconds(12), true), Next::kNothing) << "they have answered";
  EXPECT_EQ(heartbeat.due(), seconds(13));
  EXPECT_EQ(heartbeat.Look(seconds(13), false), Next::kAsk) << "whatever it was that they had not answered";
}

TEST(Heartbeat, GivesUpWhoIsSilent) {
  Heartbeat heartbeat(kEvery, kSilenceMax);
  heartbeat.Heard(seconds(0));
  EXPECT_EQ(heartbeat.Look(seconds(1), true), Next::kAsk);
  for (int second = 2; second < 6; ++second) EXPECT_EQ(heartbeat.Look(seconds(second), false), Next::kNothing);
  EXPECT_EQ(heartbeat.Look(seconds(6), false), Next::kGiveUp);
}

TEST(Heartbeat, ARunIsASignOfLife) {
  Heartbeat heartbeat(kEvery, kSilenceMax);
  heartbeat.Heard(seconds(0));
  EXPECT_EQ(heartbeat.Look(seconds(1), true), Next::kAsk);
  EXPECT_EQ(heartbeat.Look(seconds(5), false), Next::kNothing);
  heartbeat.Heard(seconds(6));
  EXPECT_EQ(heartbeat.Look(milliseconds(6'500), false), Next::kNothing);
  EXPECT_EQ(heartbeat.Look(seconds(7), false), Next::kAsk);
}

TEST(Heartbeat, TimeInWhichNobodyLookedCountsForOneBeat) {
  Heartbeat heartbeat(kEvery, kSilenceMax);
  heartbeat.Heard(seconds(0));
  EXPECT_EQ(heartbeat.Look(seconds(1), true), Next::kAsk);
  EXPECT_EQ(heartbeat.Look(seconds(1000), false), Next::kNothing);
  EXPECT_EQ(heartbeat.Look(seconds(2000), false), Next::kNothing);
  EXPECT_EQ(heartbeat.Look(milliseconds(2'000'001), true), Next::kNothing);
}

TEST(Heartbeat, LooksInBetweenAddUpToTheSame) {
  Heartbeat heartbeat(kEvery, kSilenceMax);
  heartbeat.Heard(seconds(0));
  EXPECT_EQ(heartbeat.Look(seconds(1), true), Next::kAsk);
  for (int ms = 1010; ms < 6000; ms += 10) ASSERT_EQ(heartbeat.Look(milliseconds(ms), false), Next::kNothing) << ms;
  EXPECT_EQ(heartbeat.Look(seconds(6), false), Next::kGiveUp);
}

TEST(Heartbeat, NoneIsWanted) {
  Heartbeat heartbeat({}, kSilenceMax);
  EXPECT_EQ(heartbeat.due(), base::Nanos::max());
  EXPECT_EQ(heartbeat.Look(seconds(1000), false), Next::kNothing);
}

}  // namespace
}  // namespace hir::service
