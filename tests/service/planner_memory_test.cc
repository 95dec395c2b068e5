// Goal: a program that takes a planner's memory is refused by the limit's name, and costs nobody else anything.
// Method: a real daemon and planner, with room for small programs; one of some thousand ops takes more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "tests/service/support/daemon.h"
#include "tests/service/support/programs.h"

namespace hir::service {
namespace {

// Whose kernel is of `ops` ops.
std::string Large(int ops) {
  std::string text = "fusion @large(%x: f32[64]) {\n";
  for (int i = 0; i < ops; ++i) {
    text += "  %y" + std::to_string(i) + " = sin(%" + (i == 0 ? "x" : "y" + std::to_string(i - 1)) + ")\n";
  }
  return text + "  return %y" + std::to_string(ops - 1) + "\n}\n";
}

class PlannerMemory : public testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(Text(client.Compile(Negate("first")).status), "OK");  // From here on the planner has said so.
    if (daemon.Log().find("does not hold") != std::string::npos) GTEST_SKIP() << "sanitizers have no such limit";
  }
  Daemon daemon{{"--devices=cpu:1", "--planners=1", "--planner-bytes-max=33554432"}};
  Client client{daemon};
};

TEST_F(PlannerMemory, AProgramThatTakesTooMuchIsRefused) {
  const std::string large = Large(4000);
  const std::string refusal =
      "RESOURCE_EXHAUSTED: planner_bytes_max = 33554432: the planner found no more memory for program [0-9a-f]*; make "
      "the "
      "program smaller, or start the daemon with a higher limit; the planner is restarted";
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(Text(client.Compile(large).status), testing::MatchesRegex(refusal));
    EXPECT_EQ(Text(client.Compile(Negate("f" + std::to_string(i))).status), "OK") << "by the next planner";
  }
  EXPECT_THAT(
      Text(client.Compile(large).status),
      testing::MatchesRegex("RESOURCE_EXHAUSTED: planner_bytes_max = 33554432: the planner found no more memory for "
                            "program [0-9a-f]* planner_deaths_max = 2 times; make the program smaller, or start the "
                            "daemon with a higher limit; it is refused for planner_deaths_ms = 3600000"));
}

// Then it was not this one alone.
TEST_F(PlannerMemory, WhereOthersWerePlannedBeforeANewPlannerTries) {
  EXPECT_EQ(Text(client.Compile(Negate("f")).status), "OK");
  EXPECT_THAT(Text(client.Compile(Large(4000)).status), testing::HasSubstr("planner_bytes_max"));
  EXPECT_THAT(daemon.Log(), testing::HasSubstr("out of memory, planned again"));
}

}  // namespace
}  // namespace hir::service
