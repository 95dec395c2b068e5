// Goal: a plan that names what is not there is refused when it arrives, since runs do not look again: it comes from a
// process that may have gone mad. Method: a plan that is good, and the same with one thing wrong.
#include "service/engine/program.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// x: f32[i0], n: a number -> y: f32[i0], replacing x.
pb::Plan Good() {
  pb::Plan plan;
  pb::PlanParam& x = *plan.add_inputs();
  x.set_name("x");
  x.set_dtype(pb::DTYPE_FLOAT32);
  x.add_shape("i0");
  x.add_stored_once(false);
  pb::PlanParam& n = *plan.add_inputs();
  n.set_name("n");
  n.set_dtype(pb::DTYPE_FLOAT64);
  n.set_scalar(true);
  pb::PlanParam& y = *plan.add_outputs();
  y = x;
  y.set_name("y");
  y.set_alias_input(0);
  return plan;
}

std::string Said(const std::function<void(pb::Plan&)>& change) {
  pb::Plan plan = Good();
  change(plan);
  const auto made = Program::Make("id", 1, std::move(plan));
  return made.ok() ? "OK" : made.status().ToString();
}

TEST(Program, TakesAGoodPlan) {
  EXPECT_EQ(Said([](pb::Plan&) {}), "OK");
}

TEST(Program, RefusesOutputsOfWhatIsNotThere) {
  const auto output = [](auto change) { return Said([&](pb::Plan& plan) { change(*plan.mutable_outputs(0)); }); };
  constexpr const char* kNoInput = "INTERNAL: the planner's plan: output 0 is input ";
  for (const int input : {2, -1, 1 << 30, 1 /* a number */}) {
    EXPECT_EQ(output([&](pb::PlanParam& y) { y.set_same_as_input(input); }),
              kNoInput + std::to_string(input) + ", which is no tensor of it");
    EXPECT_EQ(output([&](pb::PlanParam& y) { y.set_alias_input(input); }),
              "INTERNAL: the planner's plan: output 0 replaces input " + std::to_string(input) +
                  ", which is no tensor of it");
  }
  for (const int earlier : {0, -1, 7}) {
    EXPECT_EQ(
        output([&](pb::PlanParam& y) { y.set_same_as_output(earlier); }),
        "INTERNAL: the planner's plan: output 0 is output " + std::to_string(earlier) + ", which is not before it");
  }
}

TEST(Program, RefusesFlagsOfOtherAxes) {
  EXPECT_EQ(Said([](pb::Plan& plan) { plan.mutable_inputs(0)->add_stored_once(true); }),
            "INTERNAL: the planner's plan: x has 2 stored-once flags for 1 axes");
}

TEST(Program, RefusesAMemoryOrderOfOtherAxes) {
  EXPECT_EQ(Said([](pb::Plan& plan) { plan.mutable_inputs(0)->add_memory_order(0); }), "OK");
  EXPECT_EQ(Said([](pb::Plan& plan) { plan.mutable_inputs(0)->add_memory_order(1); }),
            "INTERNAL: the planner's plan: x: memory_order [1] is not a permutation of the 1 axes");
}

}  // namespace
}  // namespace hir::service
