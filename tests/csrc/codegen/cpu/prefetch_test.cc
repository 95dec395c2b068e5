// Goal: kernels ask ahead of what they read where that was measured to pay, and nowhere else. Method: what is asked
// for changes no result, so the IR is read, for targets named by hand.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>

#include "csrc/codegen/codegen.h"
#include "csrc/codegen/cpu/cpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/segment/segment.h"

namespace hir::codegen::cpu {
namespace {

constexpr const char* kZen4 = "znver4";
constexpr const char* kZen5 = "znver5";
constexpr const char* kIntel = "sapphirerapids";

// As LLVM writes them.
constexpr const char* kFirst = "i32 0, i32 3, i32 1";
constexpr const char* kSecond = "i32 0, i32 2, i32 1";
constexpr const char* kAnyLevel = "";

// The calls of the prefetch in the kernels of `text`, all ops as one group, on a CPU that LLVM calls `cpu`.
int NumPrefetches(const std::string& text, const std::string& cpu, const std::string& level = kAnyLevel) {
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
  std::istringstream lines(ir.ok() ? *ir : "");
  for (std::string line; std::getline(lines, line);) {
    const bool is_prefetch = line.find("call void @llvm.prefetch") != std::string::npos;
    count += is_prefetch && line.find(level) != std::string::npos ? 1 : 0;
  }
  return count;
}

std::string SumOver(const std::string& axis) {
  return "fusion @f(%x: f32[i0, i1]) {\n  %s = sum(%x) {axes=[" + axis +
         "], keepdim=false, dtype=null}\n  return %s\n}";
}

TEST(Prefetch, SumsOfRowsAskForRowsToComeOrAWhileAhead) {
  const std::string sum = SumOver("1");
  EXPECT_GT(NumPrefetches(sum, kIntel, kSecond), 0);
  EXPECT_EQ(NumPrefetches(sum, kIntel, kFirst), 0);
  for (const char* const cpu : {kZen4, kZen5}) {
    EXPECT_GT(NumPrefetches(sum, cpu, kFirst), 0) << cpu;
    EXPECT_EQ(NumPrefetches(sum, cpu, kSecond), 0) << cpu;
  }
}

// One row at a time asks for the row after the next; of rows side by side, and of one that they leave, each asks.
TEST(Prefetch, ColumnsCarriedFromRowToRowAskForEveryRow) {
  const std::string sum = SumOver("0");
  EXPECT_GT(NumPrefetches(sum, kIntel, kSecond), 0);
  for (const char* const cpu : {kZen4, kZen5}) {
    EXPECT_EQ(NumPrefetches(sum, cpu, kSecond), 8 + 1) << cpu;
    EXPECT_EQ(NumPrefetches(sum, cpu, kFirst), 0) << cpu;
  }
}

// Every line twice: by the last phase for the row after the next, and again by the one before for the next; or, of rows
// that are known to be short enough for the first level, once by several, a line of four in each vector of four.
TEST(Prefetch, RowsThatLaterPhasesReadAgainAskEverywhere) {
  const std::string two_phases = R"( {
    %s = sum(%x) {axes=[1], keepdim=true, dtype=null}
    %y = div(%x, %s)
    return %y
  })";
  const std::string three_phases = R"( {
    %m = max(%x) {axes=[1], keepdim=true, dtype=null}
    %d = sub(%x, %m)
    %e = exp(%d)
    %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
    %y = div(%e, %s)
    return %y
  })";
  // The vectors of a trip of the last phase but one: four sums side by side, or one of exponentials.
  for (const auto& [ops, again] : {std::pair(two_phases, 4), std::pair(three_phases, 1)}) {
    for (const std::string row : {"i1", "1024", "4096", "8192"}) {
      const std::string norm = "fusion @f(%x: f32[i0, " + row + "])" + ops;
      const int count = NumPrefetches(norm, kIntel);
      EXPECT_EQ(count, (row == "1024" ? 1 : 4) + again) << norm;
      EXPECT_EQ(NumPrefetches(norm, kIntel, kSecond), count);
      EXPECT_EQ(NumPrefetches(norm, kZen4, kSecond), count);
      const bool is_shared = row == "1024" || row == "4096";
      EXPECT_EQ(NumPrefetches(norm, kZen5), is_shared ? 4 : count) << norm;
      EXPECT_EQ(NumPrefetches(norm, kZen5, is_shared ? kSecond : kFirst), 0) << norm;
    }
  }
}

// A block of the transposed tensor asks for the second one below it; a row of the other tensor for what lies behind it.
TEST(Prefetch, TilesOfATranspositionAskForBothTensors) {
  const std::string turned = "fusion @f(%x: f32[i0, i1]) {\n  %t = permute(%x) {dims=[1, 0]}\n  return %t\n}";
  const std::string added =
      "fusion @f(%x: f32[i0, i1], %y: f32[i1, i0]) {\n  %t = permute(%x) {dims=[1, 0]}\n  %z = "
      "add(%t, %y)\n  return %z\n}";
  for (const char* const cpu : {kZen4, kZen5, kIntel}) {
    EXPECT_GT(NumPrefetches(turned, cpu), 0) << cpu;
    EXPECT_GT(NumPrefetches(added, cpu), NumPrefetches(turned, cpu)) << cpu;
  }
}

TEST(Prefetch, ShortChainsAskForNothing) {
  const std::string add = "fusion @f(%x: f32[i0], %y: f32[i0]) {\n  %z = add(%x, %y)\n  return %z\n}";
  for (const char* const cpu : {kZen4, kZen5, kIntel}) EXPECT_EQ(NumPrefetches(add, cpu), 0) << cpu;
}

}  // namespace
}  // namespace hir::codegen::cpu
