// Goal: reshardings between meshes work through the whole pipeline. Method: programs that only move tensors, with every
// kind of communication, roots inside and outside of their teams and ranks that hold nothing, run on simulated ranks
// with random delays; what comes out must be what went in.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/interpret.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {
namespace {

using fusion::HostTensor;

constexpr std::string_view kBetweenMeshes = R"(
mesh @a = [0, 1]
mesh @b = [2, 3]
mesh @turned = [1, 0]
mesh @first = [0]
mesh @other = [4]
mesh @square = [[0, 1], [2, 3]]
mesh @across = [[3, 4], [0, 2]]
fusion @between(%x: f32[i0, 8] {mesh=@a, shard(0, mesh_x)}, %w: f32[i0, 8] {mesh=@first},
                %s: f32[i0, 8] {mesh=@square, shard(0, mesh_y), shard(1, mesh_x)}) {
  %gathered: f32[i0, 8] {mesh=@first} = set(%x)
  %far: f32[i0, 8] {mesh=@other} = set(%x)
  %spread: f32[i0, 8] {mesh=@b} = set(%w)
  %scattered: f32[i0, 8] {mesh=@b, shard(1, mesh_x)} = set(%w)
  %own: f32[i0, 8] {mesh=@turned, shard(0, mesh_x)} = set(%w)
  %sum = sum(%x) {axes=[0], keepdim=false, dtype=null}
  %reduced: f32[8] {mesh=@first} = set(%sum)
  %most = max(%x) {axes=[0], keepdim=false, dtype=null}
  %most_far: f32[8] {mesh=@other} = set(%most)
  %permuted: f32[i0, 8] {mesh=@turned, shard(0, mesh_x)} = set(%x)
  %sent: f32[i0, 8] {mesh=@b, shard(0, mesh_x)} = set(%x)
  %blocks: f32[i0, 8] {mesh=@other} = set(%s)
  %swapped: f32[i0, 8] {mesh=@square, shard(0, mesh_x), shard(1, mesh_y)} = set(%s)
  %moved: f32[i0, 8] {mesh=@across, shard(1, mesh_y), shard(0, mesh_x)} = set(%s)
  %rows: f32[i0, 8] {mesh=@across, shard(0, mesh_y)} = set(%x)
  return %gathered, %far, %spread, %scattered, %own, %reduced, %most_far, %permuted, %sent, %blocks, %swapped,
         %moved, %rows
}
)";

TEST(ReshardingOnRanks, BetweenMeshes) {
  codegen::cpu::Compiler compiler({});
  for (const int64_t rows : {4, 12}) {
    auto graph = ir::Parse(kBetweenMeshes, fusion::kFusionOps);
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    std::vector<HostTensor> inputs;
    for (int64_t i = 0; i < 3; ++i) {
      std::vector<double> values(static_cast<size_t>(rows * 8));
      std::iota(values.begin(), values.end(), static_cast<double>(1000 * i + 1));
      inputs.push_back(fusion::TensorOf(DType::kFloat32, {rows, 8}, values));
    }
    const auto expected = fusion::Interpret(**graph, inputs);
    ASSERT_TRUE(expected.ok()) << expected.status().ToString();
    auto plan = host::PlanProgram(std::move(*graph), {.num_devices = 5, .sizes = {{"i0", rows}}});
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    std::set<std::string_view> types;
    for (const plan::Communication& c : (*plan).local.communications) types.insert(c.type);
    for (const char* type : {"Gather", "Scatter", "Reduce", "Broadcast", "SendRecv", "CollectivePermute"})
      EXPECT_TRUE(types.contains(type)) << "no " << type << "\n" << ir::Print(*(*plan).host);
    for (const uint64_t seed : {1, 2, 3}) {
      const auto outputs = RunOnRanks(*plan, inputs, {.num_ranks = 5, .seed = seed, .compiler = &compiler});
      ASSERT_TRUE(outputs.ok()) << outputs.status().ToString() << "\n" << ir::Print(*(*plan).host);
      for (size_t i = 0; i < (*expected).size(); ++i) EXPECT_EQ((*outputs)[i], (*expected)[i]) << "output " << i;
    }
  }
}

}  // namespace
}  // namespace hir::testing
