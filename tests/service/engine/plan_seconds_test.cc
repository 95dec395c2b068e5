// Goal: a principal has so many seconds of planning an hour, and is told when it has more. Method: a clock that is set.
#include "service/engine/plan_seconds.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hir::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class SetClock : public base::Clock {
 public:
  base::Nanos Now() const override { return now; }
  base::Nanos now = seconds(1000);
};

class PlanSecondsTest : public testing::Test {
 protected:
  std::string Checked(const std::string& principal = "uid:1") { return plan_seconds.Check(principal).ToString(); }

  SetClock clock;
  PlanSeconds plan_seconds{60, clock};
};

TEST_F(PlanSecondsTest, WithinTheLimit) {
  EXPECT_EQ(Checked(), "OK");
  plan_seconds.Charge("uid:1", milliseconds(59999));
  EXPECT_EQ(Checked(), "OK");
  plan_seconds.Charge("uid:1", milliseconds(1));
  EXPECT_EQ(Checked(),
            "RESOURCE_EXHAUSTED: principal_plan_seconds_max = 60: plans of uid:1 took 60 s of the 60 s that it has an "
            "hour; it is served again in 1 s; send fewer programs, or start the daemon with a higher limit");
  EXPECT_EQ(Checked("uid:2"), "OK") << "each has its own";
}

// 60 s an hour are a second a minute.
TEST_F(PlanSecondsTest, IsServedAgainWhenItSays) {
  plan_seconds.Charge("uid:1", seconds(72));
  EXPECT_NE(Checked().find("took 72 s of the 60 s that it has an hour; it is served again in 721 s"), std::string::npos)
      << Checked();
  clock.now += seconds(719);
  EXPECT_NE(Checked(), "OK");
  clock.now += seconds(2);
  EXPECT_EQ(Checked(), "OK");
  plan_seconds.Charge("uid:1", seconds(1));
  EXPECT_NE(Checked().find("served again in 60 s"), std::string::npos) << Checked();
}

TEST_F(PlanSecondsTest, AllIsGivenBackInAnHour) {
  plan_seconds.Charge("uid:1", seconds(30));
  clock.now += minutes(30);
  plan_seconds.Charge("uid:1", seconds(59));
  EXPECT_EQ(Checked(), "OK") << "the 30 s were given back";
  clock.now += minutes(600);
  plan_seconds.Charge("uid:1", seconds(59));
  EXPECT_EQ(Checked(), "OK") << "and no more than that";
  plan_seconds.Charge("uid:1", seconds(1));
  EXPECT_NE(Checked(), "OK");
}

TEST_F(PlanSecondsTest, ZeroIsNoLimit) {
  PlanSeconds unlimited(0, clock);
  unlimited.Charge("uid:1", seconds(1000000));
  EXPECT_TRUE(unlimited.Check("uid:1").ok());
}

}  // namespace
}  // namespace hir::service
