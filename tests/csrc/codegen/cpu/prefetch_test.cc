// Goal: kernels ask ahead of what they read where that was measured to pay, and nowhere else. Method: what is asked
// for changes no result, so the IR is read, for targets named by hand.
#include <gtest/gtest.h>

#include <string>

#include "csrc/codegen/codegen.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/segment/segment.h"

namespace hir::codegen::cpu {
namespace {

// The calls of the prefetch in the kernels of `text`, all ops as one group, on a CPU that LLVM calls `cpu`.
int NumPrefetches(const std::string& text, const std::string& cpu) {
  const auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return -1;
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const auto plan = Plan(segment::MakeGroup(**graph, ops).View(**graph), "k", {}, {});
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  if (!plan.ok()) return -1;
  Target target = HostTarget();
  target.cpu = cpu;
  const auto ir = EmitIr(*plan, target);
  EXPECT_TRUE(ir.ok()) << ir.status().ToString();
  int count = 0;
  for (size_t at = ir.ok() ? (*ir).find("call void @llvm.prefetch") : std::string::npos;
       at != std::string::npos; at = (*ir).find("call void @llvm.prefetch", at + 1))
    ++count;
  return count;
}

constexpr const char* kAmd = "znver4";
constexpr const char* kIntel = "sapphirerapids";

TEST(Prefetch, SumsOfRowsAskForRowsToComeButOnAmd) {
  const std::string sum =
      "fusion @f(%x: f32[i0, i1]) {\n  %s = sum(%x) {axes=[1], keepdim=false, dtype=null}\n  "
      "return "
      "%s\n}";
  EXPECT_GT(NumPrefetches(sum, kIntel), 0);
  EXPECT_EQ(NumPrefetches(sum, kAmd), 0);
}

TEST(Prefetch, ColumnsCarriedFromRowToRowAskEverywhere) {
  const std::string sum =
      "fusion @f(%x: f32[i0, i1]) {\n  %s = sum(%x) {axes=[0], keepdim=false, dtype=null}\n  "
      "return "
      "%s\n}";
  EXPECT_GT(NumPrefetches(sum, kIntel), 0);
  EXPECT_EQ(NumPrefetches(sum, kAmd), NumPrefetches(sum, kIntel));
}

TEST(Prefetch, RowsThatLaterPhasesReadAgainAskEverywhere) {
  const std::string norm = R"(fusion @f(%x: f32[i0, 4096]) {
    %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
    %y = div(%x, %s)
    return %y
  })";
  EXPECT_GT(NumPrefetches(norm, kIntel), 0);
  EXPECT_EQ(NumPrefetches(norm, kAmd), NumPrefetches(norm, kIntel));
}

// A block of the transposed tensor asks for the one below it; a row of the other tensor for the row after the next.
TEST(Prefetch, TilesOfATranspositionAskForBothTensors) {
  const std::string turned =
      "fusion @f(%x: f32[i0, i1]) {\n  %t = permute(%x) {dims=[1, 0]}\n  return %t\n}";
  const std::string added =
      "fusion @f(%x: f32[i0, i1], %y: f32[i1, i0]) {\n  %t = permute(%x) {dims=[1, 0]}\n  %z = "
      "add(%t, %y)\n  return %z\n}";
  for (const char* const cpu : {kAmd, kIntel}) {
    EXPECT_GT(NumPrefetches(turned, cpu), 0) << cpu;
    EXPECT_GT(NumPrefetches(added, cpu), NumPrefetches(turned, cpu)) << cpu;
  }
}

TEST(Prefetch, ShortChainsAskForNothing) {
  const std::string add =
      "fusion @f(%x: f32[i0], %y: f32[i0]) {\n  %z = add(%x, %y)\n  return %z\n}";
  EXPECT_EQ(NumPrefetches(add, kAmd), 0);
  EXPECT_EQ(NumPrefetches(add, kIntel), 0);
}

}  // namespace
}  // namespace hir::codegen::cpu
