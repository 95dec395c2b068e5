// Every pair of shardings, by brute force: the program `y = set(x)` with x and y placed every way there is, on meshes
// of one and two dimensions, in permuted order and across meshes, must give x back; and no plan communicates without
// need.
#include "tests/multidevice/plan/resharding_pairs.h"

#include <gtest/gtest.h>

#include <iostream>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/decompose_reshardings.h"
#include "csrc/fusion/passes/passes.h"
#include "csrc/fusion/passes/propagate_shardings.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "multidevice/plan/localize.h"
#include "tests/multidevice/plan/spmd_evaluator.h"

namespace hir::plan {
namespace {

using fusion::Types;
using mesh::DeviceMesh;
using mesh::ParallelType;

void Check(const Case& c, const DeviceMesh& from_mesh, const Placed& from, const DeviceMesh& to_mesh,
           const Placed& to) {
  PairProgram pair = MakePair(c, from_mesh, from, to_mesh, to);
  ir::Graph& graph = *pair.graph;
  const Status status = ir::RunPasses(graph, fusion::kFusionPasses, fusion::kShard);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const Result<LocalProgram> program = Localize(graph, {.sizes = pair.sizes});
  ASSERT_TRUE(program.ok()) << program.status().ToString() << ir::Print(graph);
  HostTensor& input = pair.input;
  if (!c.stored_once.empty()) {  // The same along the axes that are stored once.
    const std::vector<int64_t> shape = input.shape;
    std::vector<mesh::Range> ranges;
    for (size_t i = 0; i < shape.size(); ++i) {
      ranges.push_back({0, i < c.stored_once.size() && c.stored_once[i] ? 1 : shape[i]});
    }
    input = fusion::WrittenOut(BlockOfTensor(input, ranges), shape);
  }
  const Result<std::vector<HostTensor>> whole = fusion::Interpret(graph, std::span(&input, 1));
  const Result<fusion::SymbolValues> symbols = fusion::BindSymbols(graph, std::span(&input, 1));
  ASSERT_TRUE(whole.ok() && symbols.ok()) << whole.status().ToString();
  const Result<std::vector<HostTensor>> parts = SpmdEvaluator(*program, *symbols).Run(std::span(&input, 1));
  ASSERT_TRUE(parts.ok()) << parts.status().ToString() << "\n" << ir::Print(graph) << ir::Print(*(*program).graph);
  ASSERT_EQ((*parts)[0], (*whole)[0]) << ir::Print(graph) << ir::Print(*(*program).graph);
}

int pairs = 0;  // That held, of the running test.

void CheckAllPairs(const Case& c, const DeviceMesh& from, const DeviceMesh& to, bool partial = true) {
  for (const auto& a : AllPlacements(from, c.shape.size(), partial)) {
    for (const auto& b : AllPlacements(to, c.shape.size(), false)) {
      Check(c, from, a, to, b);
      if (testing::Test::HasFatalFailure()) return;
      ++pairs;
    }
  }
}

DeviceMesh Make(std::vector<int64_t> shape, std::vector<int64_t> devices) {
  return *DeviceMesh::Make(std::move(shape), std::move(devices));
}

// Prints how many pairs held.
class ReshardingPairs : public ::testing::Test {
 protected:
  void SetUp() override { pairs = 0; }
  void TearDown() override { std::cout << pairs << " pairs\n"; }
};

TEST_F(ReshardingPairs, OneMesh) {
  const DeviceMesh meshes[] = {Make({2}, {0, 1}), Make({3}, {2, 0, 1}), Make({4}, {0, 1, 2, 3}),
                               Make({4}, {3, 1, 0, 2})};
  for (const DeviceMesh& mesh : meshes) {
    for (const bool symbolic : {false, true}) {
      CheckAllPairs({{12}, symbolic}, mesh, mesh);
      CheckAllPairs({{12, 24}, symbolic}, mesh, mesh);
      CheckAllPairs({{12, 12, 12}, symbolic}, mesh, mesh);
    }
  }
}

// Elements dealt in turns before, after, or both, with and without whole turns in each part, so with and without a
// direct exchange.
TEST_F(ReshardingPairs, DealtInTurns) {
  const DeviceMesh meshes[] = {Make({2}, {0, 1}), Make({3}, {2, 0, 1}), Make({4}, {3, 1, 0, 2}),
                               Make({2, 2}, {2, 0, 3, 1}), Make({2}, {3, 0})};
  const auto check = [&](const Case& c, const DeviceMesh& from, const DeviceMesh& to) {
    const std::vector<Placed> a = AllPlacements(from, c.shape.size(), true);
    const std::vector<Placed> b = AllPlacements(to, c.shape.size(), false);
    const std::vector<Placed> a_dealt = DealtPlacements(from, a), b_dealt = DealtPlacements(to, b);
    const auto check_all = [&](const std::vector<Placed>& before, const std::vector<Placed>& after) {
      for (const Placed& one : before) {
        for (const Placed& other : after) {
          Check(c, from, one, to, other);
          if (HasFatalFailure()) return;
          ++pairs;
        }
      }
    };
    check_all(a_dealt, b);
    check_all(a, b_dealt);
    check_all(a_dealt, b_dealt);
  };
  for (const DeviceMesh& from : meshes) {
    for (const DeviceMesh& to : meshes) {
      for (const int64_t extent : {12, 0}) check({{extent}, extent == 12}, from, to);
      if (from == to) check({{144}, false}, from, to);
      if (from == to) check({{24, 144}, true}, from, to);
      if (from == to) check({{36, 48}, false}, from, to);
      if (from == to) check({{12, 36}, true, {true, false}}, from, to);
      if (HasFatalFailure()) return;
    }
  }
}

// Sizes that are not whole turns are refused, known or at hand.
TEST(DealtInTurns, OtherSizesAreRefused) {
  const DeviceMesh mesh = Make({2}, {0, 1});
  const Placed whole = {{}, {}};
  Placed dealt = {{ParallelType::kMeshX}, {}};
  dealt[0].dealt = 2;
  for (const bool symbolic : {false, true}) {
    for (const bool before : {false, true}) {
      PairProgram pair = MakePair({{5}, symbolic}, mesh, before ? dealt : whole, mesh, before ? whole : dealt);
      Status status = ir::RunPasses(*pair.graph, fusion::kFusionPasses, fusion::kShard);
      if (status.ok()) status = Localize(*pair.graph, {.sizes = pair.sizes}).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_NE(status.message().find("axis 0 dealt 2 ways over mesh_x has 5 elements, and elements are dealt in "
                                      "whole turns: make its extent a multiple of 2 (pad), or use an outer split"),
                std::string::npos)
          << status.ToString();
    }
  }
}

TEST_F(ReshardingPairs, TwoDimensions) {
  const DeviceMesh meshes[] = {Make({2, 2}, {0, 1, 2, 3}), Make({2, 2}, {2, 0, 3, 1}),
                               Make({2, 3}, {0, 1, 2, 3, 4, 5})};
  for (const DeviceMesh& mesh : meshes) {
    CheckAllPairs({{12}, true}, mesh, mesh);
    CheckAllPairs({{12, 12}, false}, mesh, mesh);
    CheckAllPairs({{12, 36}, true}, mesh, mesh);
  }
}

TEST_F(ReshardingPairs, BlocksAreNeverUneven) {
  // Two rows over two dimensions of two: never both at once.
  const DeviceMesh mesh = Make({2, 2}, {0, 1, 2, 3});
  const Types x = {ParallelType::kMeshX}, y = {ParallelType::kMeshY};
  Check({{2, 3}}, mesh, {x, {}, {}}, mesh, {y, {}, {}});
  Check({{2, 2}}, mesh, {x, y, {}}, mesh, {y, x, {}});
}

TEST_F(ReshardingPairs, AcrossMeshes) {
  const DeviceMesh meshes[] = {Make({1}, {3}),       Make({2}, {0, 1}),          Make({2}, {1, 0}),
                               Make({2}, {2, 3}),    Make({4}, {0, 1, 2, 3}),    Make({4}, {3, 1, 0, 2}),
                               Make({3}, {4, 0, 2}), Make({2, 2}, {0, 1, 2, 3}), Make({2, 2}, {4, 5, 6, 7})};
  for (const DeviceMesh& from : meshes) {
    for (const DeviceMesh& to : meshes) {
      if (from == to) continue;
      CheckAllPairs({{12}, true}, from, to);
      CheckAllPairs({{12, 12}, false}, from, to, false);
    }
  }
}

// Blocks one element over, smaller than the mesh, and none: also of the axis that partial results come from.
TEST_F(ReshardingPairs, UnevenBlocks) {
  const DeviceMesh meshes[] = {Make({2}, {0, 1}), Make({3}, {2, 0, 1}), Make({4}, {3, 1, 0, 2}),
                               Make({2, 2}, {2, 0, 3, 1}), Make({2, 3}, {0, 1, 2, 3, 4, 5})};
  for (const DeviceMesh& mesh : meshes) {
    const int64_t n = mesh.num_devices();
    for (const bool symbolic : {false, true}) {
      for (const int64_t extent : {2 * n + 1, n - 1, int64_t{0}}) {
        Case c = {.shape = {extent}, .symbolic = symbolic, .reduced = n + 1};
        CheckAllPairs(c, mesh, mesh);
        c.shape = {extent, n + 1};
        if (mesh.shape().size() == 1) CheckAllPairs(c, mesh, mesh);
      }
    }
  }
  CheckAllPairs({.shape = {5, 3}, .reduced = 3}, meshes[3], meshes[3]);
  CheckAllPairs({.shape = {5, 3}, .reduced = 3}, meshes[3], Make({3}, {1, 4, 0}));
  CheckAllPairs({.shape = {3, 5}, .symbolic = true, .reduced = 3}, Make({4}, {0, 1, 2, 3}), Make({4}, {4, 5, 1, 0}));
}

// No pass knows of symbolic sizes that they are uneven, so that nothing was gathered for the product.
TEST(UnevenBlocks, OpsThatCannotTakeThemAreNamed) {
  auto graph = ir::Parse(R"(mesh @m = [0, 1, 2, 3]
fusion @f(%x: f32[3, i0] {mesh=@m, shard(1, mesh_x)}, %w: f32[i0, 2]) {
  %p = matmul(%x, %w)
  return %p
}
)",
                         fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  ASSERT_TRUE(ir::RunPasses(**graph, fusion::kFusionPasses, fusion::kShard).ok());
  EXPECT_TRUE(Localize(**graph, {.sizes = {{"i0", 8}}}).ok());
  EXPECT_EQ(Localize(**graph, {.sizes = {{"i0", 9}}}).status().ToString(),
            "UNIMPLEMENTED: matmul: axis 1 split 4 ways over mesh_x of [0, 1, 2, 3] of %x has i0 = "
            "9 elements, so uneven blocks; only pointwise ops, reductions and reshardings take "
            "those: make its extent a multiple of 4, or replicate it");
}

// 22 elements are two even blocks of 11, 11 rows of two are not: a part of one is no part of the other.
TEST(UnevenBlocks, OuterPartsOfEvenAxesAreNamed) {
  auto graph = ir::Parse(R"(mesh @m = [0, 1]
fusion @f(%x: f32[i0] {mesh=@m, shard(0, mesh_x)}) {
  %r = reshape(%x) {shape=[i0 / 2, 2]}
  return %r
}
)",
                         fusion::kFusionOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  ASSERT_TRUE(ir::RunPasses(**graph, fusion::kFusionPasses, fusion::kShard).ok());
  EXPECT_TRUE(Localize(**graph, {.sizes = {{"i0", 24}}}).ok());
  EXPECT_EQ(Localize(**graph, {.sizes = {{"i0", 22}}}).status().ToString(),
            "UNIMPLEMENTED: reshape: axis 0 split 2 ways over mesh_x of [0, 1] of %r has i0 / 2 = 11 "
            "elements, so uneven blocks; only pointwise ops, reductions and reshardings take those: "
            "make its extent a multiple of 2, or replicate it");
}

// Ranks without an element hold what changes nothing; padding changes nothing either.
TEST_F(ReshardingPairs, EveryReduction) {
  const DeviceMesh square = Make({2, 2}, {2, 0, 3, 1}), line = Make({4}, {3, 1, 0, 2});
  for (const char* reduction : {"sum", "prod", "min", "max"}) {
    for (const int64_t reduced : {3, 4, 5}) {
      const Case c = {.shape = {3}, .reduced = reduced, .reduction = reduction};
      CheckAllPairs(c, square, square);
      CheckAllPairs(c, line, line);
      CheckAllPairs(c, line, Make({1}, {1}));
      CheckAllPairs(c, square, Make({2}, {5, 0}));
    }
  }
}

TEST_F(ReshardingPairs, AxesStoredOnce) {
  const DeviceMesh meshes[] = {Make({2}, {0, 1}), Make({2, 2}, {0, 1, 2, 3}), Make({2}, {2, 3})};
  for (const DeviceMesh& from : meshes) {
    for (const DeviceMesh& to : meshes) {
      CheckAllPairs({{4, 4}, false, {true, false}}, from, to);
      CheckAllPairs({{4, 4}, true, {false, true}}, from, to);
      CheckAllPairs({{4, 8}, false, {true, true}}, from, to);
    }
  }
}

TEST_F(ReshardingPairs, NoElements) {
  const DeviceMesh mesh = Make({2, 2}, {0, 1, 2, 3});
  CheckAllPairs({{0, 4}, true}, mesh, mesh);
}

}  // namespace
}  // namespace hir::plan
