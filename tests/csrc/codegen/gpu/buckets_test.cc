// Goal: a program of symbolic sizes is compiled for few of them: a schedule has at most 8 texts for all sizes that the
// same vectors divide.
// Method: a program for each schedule, planned for sizes of all orders of magnitude, odd ones and powers of two among
// them; the distinct texts of each kernel are counted: a text is what is compiled, and what a cache knows it by. Few
// rows, whose sums are added up by a second kernel, are a schedule of their own.
#include <gtest/gtest.h>

#include <map>
#include <ostream>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::gpu {
namespace {

constexpr size_t kTextsMax = 8;
constexpr int64_t kElementsMax = int64_t{1} << 33;  // Of the largest tensor: 16 GiB of bf16.

struct Case {
  std::string_view name;
  std::string_view schedule;  // Of its first kernel, at 2048 x 8192.
  std::string_view program;   // Over i0 rows and i1 columns.
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"Pointwise", "pointwise", "fusion @f(%x: bf16[i0, i1], %b: bf16[i1]) {\n  %a = add(%x, %b)\n  return %a\n}"},
    {"PointwiseWithoutVectors", "pointwise",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %p = pad(%x) {widths=[0, 0, 3, 0], value=0.0}
  return %p
})"},
    {"Transposed", "transposed",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %n = neg(%x)
  %t = permute(%n) {dims=[1, 0]}
  return %t
})"},
    {"InnerReduction", "rows",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %f = cast(%x) {dtype=f32}
  %s = sum(%f) {axes=[1], keepdim=false, dtype=null}
  return %s
})"},
    {"OuterReduction", "columns",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %f = cast(%x) {dtype=f32}
  %s = sum(%f) {axes=[0], keepdim=false, dtype=null}
  return %s
})"},
    {"WholeReduction", "rows",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %f = cast(%x) {dtype=f32}
  %s = sum(%f) {axes=[0, 1], keepdim=false, dtype=null}
  return %s
})"},
    {"Softmax", "rows",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %f = cast(%x) {dtype=f32}
  %m = max(%f) {axes=[1], keepdim=true, dtype=null}
  %d = sub(%f, %m)
  %e = exp(%d)
  %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
  %y = div(%e, %s)
  %z = cast(%y) {dtype=bf16}
  return %z
})"},
    {"OuterSoftmax", "columns",
     R"(fusion @f(%x: bf16[i0, i1]) {
  %f = cast(%x) {dtype=f32}
  %m = max(%f) {axes=[0], keepdim=true, dtype=null}
  %d = sub(%f, %m)
  %e = exp(%d)
  %s = sum(%e) {axes=[0], keepdim=true, dtype=null}
  %y = div(%e, %s)
  %z = cast(%y) {dtype=bf16}
  return %z
})"},
    {"Gather", "rows",
     R"(fusion @f(%x: bf16[i0, i1], %k: i64[i0, 1]) {
  %f = cast(%x) {dtype=f32}
  %e = exp(%f)
  %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
  %l = log(%s)
  %c = take_along_axis(%f, %k) {axis=1}
  %y = sub(%l, %c)
  return %y
})"},
    {"Carried", "carried",
     R"(fusion @f(%g: bf16[i0, i1], %x: bf16[i0, i1]) {
  %gf = cast(%g) {dtype=f32}
  %xf = cast(%x) {dtype=f32}
  %p = mul(%gf, %xf)
  %s = sum(%p) {axes=[1], keepdim=true, dtype=null}
  %d = sub(%gf, %s)
  %y = cast(%d) {dtype=bf16}
  %w = sum(%p) {axes=[0], keepdim=false, dtype=null}
  %v = cast(%w) {dtype=bf16}
  return %y, %v
})"},
};

class Buckets : public testing::TestWithParam<Case> {};

TEST_P(Buckets, AreAtMostEightAScheduleAndVector) {
  auto graph = ir::Parse(GetParam().program, fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  // By schedule: what each text is, and for how many sizes.
  std::map<std::string, std::map<std::string, std::pair<std::string, int>>> texts;
  std::string schedule;
  for (const int64_t rows : {1, 2, 7, 16, 100, 128, 1000, 2048, 16384, 131072, 1 << 20, 1 << 24}) {
    for (const int64_t columns :
         {1,    2,    8,    17,   32,   64,   100,   128,   256,   520,   1000,   1024,    1536,    2048,
          3000, 4096, 4104, 5000, 6000, 8192, 12000, 16384, 30000, 65536, 131072, 1 << 20, 1 << 22, 1 << 24}) {
      if (rows * columns > kElementsMax) continue;
      const auto plan = Plan(group.View(**graph), "k", kHopper, {{"i0", rows}, {"i1", columns}});
      ASSERT_TRUE(plan.ok()) << plan.status().ToString();
      const auto source = EmitCuda(*plan);
      ASSERT_TRUE(source.ok()) << source.status().ToString();
      for (size_t i = 0; i < source->parts.size(); ++i) {
        const std::string own = base::Cat(source->tunings[i].schedule, ", kernel ", i + 1, " of ", source->parts.size(),
                                          ", vectors of ", VectorOfSize(rows), " and ", VectorOfSize(columns));
        auto& [described, count] = texts[own][source->parts[i]];
        described = base::Cat(DescribeSchedule(*source, i), " (", rows, " x ", columns, ")");
        ++count;
      }
      if (rows == 2048 && columns == 8192) schedule = source->tunings[0].schedule;
    }
  }
  EXPECT_EQ(schedule, GetParam().schedule);
  for (const auto& [own, variants] : texts) {
    EXPECT_LE(variants.size(), kTextsMax) << own;
    std::printf("%s: %zu texts\n", own.c_str(), variants.size());
    for (const auto& [text, what] : variants) std::printf("  %4d sizes: %s\n", what.second, what.first.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Buckets, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace hir::codegen::gpu
