// The costs that kernels are said to have: bytes as far as they are read, functions as often as they are computed, rows
// that are read again, processors that have no work.
#include <gtest/gtest.h>

#include "csrc/base/text.h"
#include "csrc/codegen/codegen.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen {
namespace {

using base::Cat;

// The cost of one kernel that holds all of a program.
Cost CostOf(const std::string& text, const Target& target = {}, const Sizes& sizes = {}) {
  const auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  Acceptance acceptance(target, sizes);
  const std::optional<Cost> cost = acceptance.CostOf(group.View(**graph));
  EXPECT_TRUE(cost.has_value()) << acceptance.Of(group.View(**graph)).reason;
  return *cost;
}

TEST(Cost, CountsEachTensorOnce) {
  const Cost cost = CostOf(R"(fusion @f(%x: f32[1000], %y: bf16[1000]) {
    %a = add(%x, %y)
    %b = mul(%a, %x)
    return %a, %b
  })");
  EXPECT_EQ(cost.bytes, 4000 + 2000 + 4000 + 4000);
  EXPECT_EQ(cost.again + cost.arithmetic + cost.idle, 0);
  EXPECT_EQ(cost.launches, 1);
}

TEST(Cost, TakesSizesAtHandElse1024) {
  const std::string text = "fusion @f(%x: f32[i0]) {\n%y = neg(%x)\nreturn %y\n}";
  EXPECT_EQ(CostOf(text).bytes, 2 * 4 * 1024);
  EXPECT_EQ(CostOf(text, {}, {{"i0", 5}}).bytes, 2 * 4 * 5);
  EXPECT_EQ(CostOf(text, {}, {{"i0", 0}}).bytes, 0);
}

TEST(Cost, ReadsOfASliceNoMore) {
  const Cost cost = CostOf(R"(fusion @f(%x: f32[1000, 10]) {
    %s = slice(%x) {start=[0, 0], end=[1000, 1], strides=[1, 1]}
    %y = neg(%s)
    return %y
  })");
  EXPECT_EQ(cost.bytes, 2 * 4000);
}

// A sine for each element of the result, not of the row that it is made of.
TEST(Cost, FunctionsAreComputedWhereTheyAreRead) {
  constexpr int64_t kSine = 8;
  const auto cost = [](std::string_view broadcast, std::string_view extent, const Target& target = {}) {
    return CostOf(Cat("fusion @f(%x: f32[100, 200], %a: f32[", extent, "]) {\n%s = sin(%a)\n%b = broadcast(%s) ",
                      "{is_broadcast_dim=[", broadcast, "]}\n%y = mul(%x, %b)\nreturn %y\n}"),
                  target);
  };
  EXPECT_EQ(cost("1, 0", "200").arithmetic, kSine * 100 * 200);
  // Along a row all have the same: a core computes it ahead of its loop, a thread once a vector.
  EXPECT_EQ(cost("0, 1", "100").arithmetic, kSine * 100);
  EXPECT_EQ(cost("0, 1", "100", kHopper).arithmetic, kSine * 100 * 200 / 4);
}

// A value that is read at two places is computed at both; a piece of a concatenation as often as it has elements.
TEST(Cost, FunctionsAreComputedAtEachPlace) {
  constexpr int64_t kExp = 2;
  const auto cost = [](int first, int second) {
    return CostOf(Cat("fusion @f(%x: f32[200]) {\n%e = exp(%x)\n",                                     //
                      "%a = slice(%e) {start=[", first, "], end=[", first + 150, "], strides=[1]}\n",  //
                      "%b = slice(%e) {start=[", second, "], end=[", second + 150, "], strides=[1]}\n",
                      "%y = add(%a, %b)\nreturn %y\n}"));
  };
  EXPECT_EQ(cost(0, 50).arithmetic, kExp * 300);
  const Cost pieces = CostOf(R"(fusion @f(%x: f32[200], %z: f32[300]) {
    %e = exp(%x)
    %y = cat(%e, %z) {axis=0}
    return %y
  })");
  EXPECT_EQ(pieces.arithmetic, kExp * 200);
  EXPECT_EQ(pieces.bytes, 4 * (200 + 300 + 500));
}

std::string SoftmaxOf(int64_t rows, int64_t columns) {
  return Cat("fusion @f(%x: f32[", rows, ", ", columns, R"(]) {
    %m = max(%x) {axes=[1], keepdim=true, dtype=null}
    %d = sub(%x, %m)
    %e = exp(%d)
    %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
    %y = div(%e, %s)
    return %y
  })");
}

// A row that a cache holds is read once by all three loops. A longer one by the maximum with the sum, and by the last.
TEST(Cost, LongRowsAreReadAgain) {
  for (const Target& target : {Target(), kHopper}) {
    EXPECT_EQ(CostOf(SoftmaxOf(1000, 1000), target).again, 0);
    EXPECT_EQ(CostOf(SoftmaxOf(1000, 1 << 20), target).again, 4 * 1000 * int64_t{1 << 20});
  }
}

// One row, which one processor would go through; longer, it is cut into parts.
TEST(Cost, OneRowLeavesProcessorsIdle) {
  for (const Target& target : {Target(), kHopper}) {
    const Cost one = CostOf(SoftmaxOf(1, 8000), target), many = CostOf(SoftmaxOf(1000, 8000), target);
    EXPECT_EQ(many.idle, 0);
    EXPECT_EQ(one.launches, 1);
    const Cost parts = CostOf(SoftmaxOf(1, 1 << 20), target);
    EXPECT_EQ(parts.idle, 0);
    EXPECT_EQ(parts.launches, 3);
  }
  EXPECT_GT(CostOf(SoftmaxOf(1, 8000), kHopper).idle, 10 * 2 * 4 * 8000);
}

// Sums over rows that are gone through in order: few parts read no faster, and on a GPU each row takes its time.
TEST(Cost, FewRowsAndShortOnesTakeLonger) {
  const auto cost = [](const Target& target, const std::string& rows, const std::string& columns,
                       const Sizes& sizes = {}) {
    return CostOf(Cat("fusion @f(%x: f32[", rows, ", ", columns, R"(]) {
      %s = sum(%x) {axes=[0], keepdim=false, dtype=null}
      %m = max(%x) {axes=[1], keepdim=false, dtype=null}
      return %s, %m
    })"),
                  target, sizes);
  };
  for (const Cost& all_work : {cost(kHopper, "300000", "512"), cost({}, "30000", "16"), cost({}, "i0", "i1")}) {
    EXPECT_EQ(all_work.idle, 0);
    EXPECT_EQ(all_work.launches, 2);
    EXPECT_GT(all_work.again, 0);
  }
  const Cost on_gpu = cost(kHopper, "3000000", "32");
  EXPECT_GT(on_gpu.idle, 2 * on_gpu.bytes);
  EXPECT_EQ(cost(kHopper, "i0", "i1", {{"i0", 3000000}, {"i1", 32}}).idle, on_gpu.idle);
  EXPECT_EQ(cost({}, "3000000", "32").idle, 0);
  const Cost half_a_vector = cost({}, "3000000", "4");
  EXPECT_GT(half_a_vector.idle, half_a_vector.bytes * 9 / 10);
  EXPECT_LT(half_a_vector.idle, half_a_vector.bytes * 11 / 10);
  EXPECT_GT(cost(kHopper, "51", "27810").idle, 0);
  // Longer rows than a CTA holds, however many there are.
  EXPECT_EQ(cost(kHopper, "4000", "8192").idle, 0);
  const Cost long_rows = cost(kHopper, "4000", "32768");
  EXPECT_GT(long_rows.idle, long_rows.bytes);
  EXPECT_EQ(cost({}, "4000", "32768").idle, 0);
}

// Beside what each row makes, a total of all rows: a workspace with a number of each, which one CTA reads.
TEST(Cost, TotalsBesideManyRowsAreReadByOneProcessor) {
  const auto cost = [](const Target& target, const char* axes) {
    return CostOf(Cat("fusion @f(%x: f32[1000000, 8, 64]) {\n%s = sum(%x) {axes=", axes,
                      ", keepdim=false, dtype=null}\n%m = max(%x) {axes=[1, 2], keepdim=false, dtype=null}\n",
                      "return %s, %m\n}"),
                  target);
  };
  const Cost of_all = cost(kHopper, "[0, 1, 2]"), of_columns = cost(kHopper, "[0, 2]");
  EXPECT_EQ(of_all.launches, 2);
  EXPECT_EQ(of_all.again, 4000000 * (1 + int64_t{132} * 3 / 4));
  EXPECT_LT(of_columns.again, 2 * of_all.again);  // Of eight times as many, by eight CTAs.
  EXPECT_EQ(cost({}, "[0, 1, 2]").again, 4000000 * (1 + 2));
}

}  // namespace
}  // namespace hir::codegen
