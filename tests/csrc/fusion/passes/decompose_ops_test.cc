// Goal: the ops in the place of a composite one have the type that a program declared, in whatever words. Method:
// programs that declare an extent which a guard holds equal to another, and the other kind of an axis of one element.
#include "csrc/fusion/passes/decompose_ops.h"

#include "csrc/ir/verify.h"
#include "tests/csrc/fusion/run_program.h"

namespace hir::fusion {
namespace {

TEST(DecomposeOps, KeepsTheDeclaredType) {
  const std::string body =
      "%c = cat(%x, %z) {axis=0}\n"
      "%s: i64[7, 5] = cumsum(%c) {axis=1, dtype=null}\n"
      "%v: f32[7, 1] = mean(%c) {axes=[1], keepdim=true}";
  const auto graph = ir::Parse(Program("%x: i32[i0, 5], %z: i32[i1, 5]", body, "%s, %v"), kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const Status status = DecomposeOps(**graph);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(ir::Verify(**graph).ok()) << ir::Verify(**graph).ToString();
  EXPECT_EQ(ir::ToString(*(*graph)->outputs[0].value->type), "i64[7, 5]");
  EXPECT_EQ(ir::ToString(*(*graph)->outputs[1].value->type), "f32[7, 1]");
  const std::vector<HostTensor> inputs = {Counting(DType::kInt32, {3, 5}), I32({4, 5}, std::vector<int64_t>(20, 1))};
  const auto made = Interpret(**graph, inputs);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ(ToDoubles((*made)[1]), (Numbers{2, 7, 12, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace hir::fusion
