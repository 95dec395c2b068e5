// Goal: an output that takes over the memory of an input of other axes lies where it lies; that of the input says
// nothing of it. Method: such programs through planning, which then refuses them for not lying alike.
#include <gtest/gtest.h>

#include <string>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "host_ir/pipeline/pipeline.h"

namespace hir::host {
namespace {

Status Planned(const std::string& text) {
  auto graph = ir::Parse(text, fusion::kFusionOps);
  if (!graph.ok()) return graph.status();
  return PlanProgram(*std::move(graph), {.num_devices = 2}).status();
}

TEST(Aliases, OfAnInputWithMoreAxes) {
  const Status status = Planned(
      "mesh @m = [0, 1]\n"
      "fusion @f(%x: f32[4, 4] {mesh=@m, shard(1, mesh_x)}, %y: f32[4]) {\n"
      "  %z = neg(%y)\n"
      "  return %z alias %x\n"
      "}\n");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("they must lie alike"), std::string::npos) << status.ToString();
}

TEST(Aliases, OfAnInputWithFewerAxes) {
  const Status status = Planned(
      "mesh @m = [0, 1]\n"
      "fusion @f(%x: f32[4], %y: f32[4, 4] {mesh=@m, shard(1, mesh_x)}) {\n"
      "  %z = neg(%y)\n"
      "  return %z alias %x\n"
      "}\n");
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("they must lie alike"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace hir::host
