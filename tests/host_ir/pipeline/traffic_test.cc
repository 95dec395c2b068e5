// Goal: a plan says how many bytes its kernels and calls move, and how few they could be; passes can be left out.
#include "host_ir/pipeline/traffic.h"

#include <gtest/gtest.h>

#include <string>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::host {
namespace {

ProgramPlan PlanOf(const std::string& text, const PlanOptions& options = {}) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  if (!graph.ok()) ADD_FAILURE() << graph.status().ToString();
  auto plan = PlanProgram(*std::move(graph), options);
  if (!plan.ok()) ADD_FAILURE() << plan.status().ToString();
  return *std::move(plan);
}

// "bytes/least"
std::string TrafficIn(const std::string& text, const PlanOptions& options = {}) {
  const auto traffic = TrafficOf(PlanOf(text, options), options.sizes);
  return traffic ? std::to_string(traffic->bytes) + "/" + std::to_string(traffic->floor) : "not known";
}

TEST(Traffic, OfOneKernelIsItsInputsAndOutputs) {
  const std::string text = R"(
fusion @f(%x: f32[i0, 8], %b: f32[b, 8]) {
  %a = add(%x, %b)
  %y = exp(%a)
  return %y
})";
  EXPECT_EQ(TrafficIn(text, {.sizes = {{"i0", 10}}}), "672/672");
  EXPECT_EQ(TrafficIn(text), "not known");
}

// A residual: what is kept for behind the product is written and read, or made again of what it is made of.
TEST(Traffic, TheLeastKnowsThatCallsComeBetween) {
  EXPECT_EQ(TrafficIn(R"(
fusion @f(%x: f32[64, 64], %r: f32[64, 64], %w: f32[64, 64]) {
  %h = add(%x, %r)
  %a = exp(%h)
  %p = linear(%a, %w)
  %y = add(%h, %p)
  return %y
})"),
            std::to_string(10 * 64 * 64 * 4) + "/" + std::to_string(10 * 64 * 64 * 4));
}

TEST(Traffic, OfASliceIsItsPart) {
  EXPECT_EQ(TrafficIn(R"(
fusion @f(%x: f32[64, 64]) {
  %p = slice(%x) {start=[0, 0], end=[64, 8], strides=[1, 1]}
  %y = exp(%p)
  return %y
})"),
            "4096/4096");
}

// The sum of all has to be over before anything is divided by it: two passes are the least.
TEST(Traffic, AFullSumEndsAPass) {
  const std::string text = R"(
fusion @f(%x: f32[i0, 64]) {
  %s = sum(%x) {axes=[], keepdim=false, dtype=null}
  %y = div(%x, %s)
  return %y
})";
  const int64_t bytes = int64_t{4096} * 64 * 4;
  const auto traffic = TrafficOf(PlanOf(text, {.sizes = {{"i0", 4096}}}), {{"i0", 4096}});
  ASSERT_TRUE(traffic);
  EXPECT_NEAR(static_cast<double>(traffic->floor), 3.0 * static_cast<double>(bytes), 100);
  EXPECT_LE(static_cast<double>(traffic->bytes), 1.01 * static_cast<double>(traffic->floor));
}

// Sixteen rows of a table, of which no more is read.
TEST(Traffic, OfATableIsWhatIsTaken) {
  EXPECT_EQ(TrafficIn(R"(
fusion @f(%table: f32[100000, 8], %index: i64[16, b]) {
  %y = take_along_axis(%table, %index) {axis=0}
  return %y
})"),
            "1152/1152");
}

TEST(Traffic, IsNotKnownBeyond63Bits) {
  std::string text = "fusion @f(%s0: f32[288230376151711744]) {\n";
  for (int i = 0; i < 8; ++i) {
    const std::string a = "%a" + std::to_string(i), from = "%s" + std::to_string(i), to = "%s" + std::to_string(i + 1);
    text += "  " + a + " = tanh(" + from + ")\n  " + to + " = segment_set(" + a + ")\n";
  }
  EXPECT_EQ(TrafficIn(text + "  return %s8\n}"), "not known");
}

TEST(Traffic, WhatTwoKernelsReadIsReadTwice) {
  const std::string text = R"(
fusion @f(%x: f32[64, 64]) {
  %s = sum(%x) {axes=[0], keepdim=false, dtype=null}
  %t = cumsum(%x) {axis=1, dtype=null}
  return %s, %t
})";
  const auto traffic = TrafficOf(PlanOf(text), {});
  ASSERT_TRUE(traffic);
  EXPECT_GE(traffic->bytes, 3 * 64 * 64 * 4);
  EXPECT_EQ(traffic->floor, 2 * 64 * 64 * 4 + 64 * 4);
}

TEST(Without, APassIsLeftOut) {
  const std::string text = R"(
fusion @f(%x: f32[2, 3, 64], %w: f32[6, b]) {
  %s = sum(%x) {axes=[1, 2], keepdim=true, dtype=null}
  %g = div(%x, %s)
  %j = reshape(%g) {shape=[6, 64]}
  %y = mul(%j, %w)
  return %y
})";
  EXPECT_EQ(PlanOf(text).kernels.size(), 1U);
  EXPECT_EQ(PlanOf(text, {.without = "sink_reshapes, rematerialize"}).kernels.size(), 2U);
}

TEST(Without, NamesWhatThereIs) {
  for (const auto& [without, said] : {std::pair("remat", "no pass remat"), std::pair("segment", "no pass segment"),
                                      std::pair("rematerialise", "did you mean rematerialize?")}) {
    auto graph = ir::Parse("fusion @f(%x: f32[4]) {\n  %y = neg(%x)\n  return %y\n}", fusion::kFusionOps);
    ASSERT_TRUE(graph.ok());
    const auto plan = PlanProgram(*std::move(graph), {.without = without});
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument);
    EXPECT_NE(plan.status().ToString().find(said), std::string::npos) << plan.status().ToString();
  }
}

}  // namespace
}  // namespace hir::host
