// Goal: a program of symbolic sizes is compiled for few of them: at most 8 texts a schedule, whatever sizes come.
#include <gtest/gtest.h>

#include <set>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"

namespace hir::codegen::gpu {
namespace {

size_t CountTexts(const std::string& text) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  std::vector<ir::Op*> ops;
  ir::ForEachOp((*graph)->body, [&](ir::Op* op) { ops.push_back(op); });
  const segment::Group group = segment::MakeGroup(**graph, ops);
  std::set<std::string> texts;
  for (const int64_t rows : {1, 16, 128, 2048, 16384}) {
    for (const int64_t columns : {1, 8, 17, 64, 256, 520, 1000, 1024, 1536, 2048, 3000, 4104, 5000,
                                  6000, 8192, 12000, 16384, 30000, 65536}) {
      const auto plan = Plan(group.View(**graph), "k", kHopper, {{"i0", rows}, {"i1", columns}});
      EXPECT_TRUE(plan.ok()) << plan.status().ToString();
      const auto kernels = EmitKernels(*plan);
      EXPECT_TRUE(kernels.ok()) << kernels.status().ToString();
      texts.insert(*kernels);
    }
  }
  return texts.size();
}

TEST(Buckets, AreAtMostEightASchedule) {
  EXPECT_LE(
      CountTexts("fusion @f(%x: bf16[i0, i1], %b: bf16[i1]) {\n  %a = add(%x, %b)\n  return %a\n}"),
      8u);
  EXPECT_LE(CountTexts(R"(fusion @f(%x: bf16[i0, i1]) {
    %f = cast(%x) {dtype=f32}
    %m = max(%f) {axes=[1], keepdim=true, dtype=null}
    %d = sub(%f, %m)
    %e = exp(%d)
    %s = sum(%e) {axes=[1], keepdim=true, dtype=null}
    %y = div(%e, %s)
    %z = cast(%y) {dtype=bf16}
    return %z
  })"),
            8u);
}

}  // namespace
}  // namespace hir::codegen::gpu
