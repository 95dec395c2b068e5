// Pairs of ways to lie, by brute force, as programs: p = sum(x), or another reduction, over a last axis, which is split
// where p is partial; y = set(p) lies as it should afterwards. What is enumerated here runs by the plan's own evaluator
// (resharding_pairs_test) and on ranks (tests/property/resharding_oracle.h).
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/ir/builder.h"
#include "multidevice/plan/localize.h"

namespace hir::plan {

using Placed = std::vector<fusion::Types>;  // One an axis, that of the reduction last.

// Every way to lie on `mesh` for a tensor of `rank` axes, and with `partial` also over reduction axis number `rank`.
inline std::vector<Placed> AllPlacements(const mesh::DeviceMesh& mesh, size_t rank, bool partial) {
  std::vector<mesh::ParallelType> order(std::begin(mesh::kMeshTypes), std::end(mesh::kMeshTypes));
  std::vector<Placed> found;
  do {
    std::vector<Placed> some = {Placed(rank + 1)};
    for (const mesh::ParallelType type : order) {
      if (mesh.Size(type) == 1) continue;
      const size_t count = some.size();
      for (size_t i = 0; i < count; ++i) {
        for (size_t axis = 0; axis < rank + (partial ? 1 : 0); ++axis) {
          some.push_back(some[i]);
          some.back()[axis].push_back(type);
        }
      }
    }
    for (Placed& placement : some) {
      if (std::ranges::find(found, placement) == found.end()) found.push_back(placement);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return found;
}

// Those of `placements` that deal elements in turns instead: each choice of value axes that one dimension splits.
inline std::vector<Placed> DealtPlacements(const mesh::DeviceMesh& mesh, const std::vector<Placed>& placements) {
  std::vector<Placed> found;
  for (const Placed& placement : placements) {
    std::vector<Placed> some = {placement};
    for (size_t axis = 0; axis + 1 < placement.size(); ++axis) {
      if (placement[axis].size() != 1) continue;
      const size_t count = some.size();
      for (size_t i = 0; i < count; ++i) {
        some.push_back(some[i]);
        some.back()[axis].dealt = mesh.Size(placement[axis][0]);
      }
    }
    found.insert(found.end(), some.begin() + 1, some.end());
  }
  return found;
}

inline bool IsDealt(const Placed& placement) { return std::ranges::any_of(placement, &mesh::AxisSplit::is_dealt); }

// Whether elements of a tensor of `shape` are dealt in whole turns.
inline bool HasWholeTurns(const Placed& placement, const std::vector<int64_t>& shape) {
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] % placement[axis].dealt != 0) return false;
  }
  return true;
}

// Sizes around those that `ways` divides: even, one over, fewer than devices, none; of the first axis, then of all.
inline std::vector<std::vector<int64_t>> SizesAround(size_t rank, int64_t ways) {
  std::vector<std::vector<int64_t>> sizes;
  for (const int64_t extent : {2 * ways, 2 * ways + 1, ways - 1, int64_t{0}}) {
    std::vector<int64_t> extents(rank, 2 * ways);
    extents[0] = extent;
    sizes.push_back(extents);
    if (rank > 1 && extent != 2 * ways) sizes.push_back(std::vector<int64_t>(rank, extent));
  }
  return sizes;
}

struct Case {
  std::vector<int64_t> shape;
  bool symbolic = false;
  std::vector<bool> stored_once = {};  // One an axis, or none.
  int64_t reduced = 12;                // The extent of the axis that is reduced.
  const char* reduction = "sum";
};

// The program of one pair, as a user may write it, and the one input that shows where each element went: 1, 2, 3 ...
struct PairProgram {
  std::unique_ptr<ir::Graph> graph;
  fusion::HostTensor input;
  SymbolSizes sizes;
};

inline fusion::HostTensor Counting(const std::vector<int64_t>& shape) {
  std::vector<int64_t> values(
      static_cast<size_t>(std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies())));
  std::iota(values.begin(), values.end(), 1);
  return fusion::TensorOfInts(DType::kInt64, shape, values);
}

inline PairProgram MakePair(const Case& c, const mesh::DeviceMesh& from_mesh, const Placed& from,
                            const mesh::DeviceMesh& to_mesh, const Placed& to) {
  PairProgram pair = {.graph = std::make_unique<ir::Graph>(fusion::kFusionOps, "pair"), .input = {}, .sizes = {}};
  ir::Graph& graph = *pair.graph;
  std::vector<ir::Axis> axes;
  for (size_t i = 0; i < c.shape.size(); ++i) {
    const std::string symbol = base::Cat("i", i);
    const ir::Expr* extent = c.symbolic ? graph.exprs().Symbol(symbol) : graph.exprs().Const(c.shape[i]);
    if (c.symbolic) pair.sizes[symbol] = c.shape[i];
    const bool once = !c.stored_once.empty() && c.stored_once[i];
    axes.push_back({once ? ir::AxisKind::kBroadcast : ir::AxisKind::kIteration, extent});
  }
  axes.push_back({ir::AxisKind::kIteration, graph.exprs().Const(c.reduced)});
  ir::Value* x = graph.AddParam("x", graph.Tensor(DType::kInt64, axes));
  ir::Builder builder(graph);
  const std::vector<int64_t> reduced = {static_cast<int64_t>(c.shape.size())};
  ir::Value* p = builder.Make(
      c.reduction, {x},
      {{"axes", std::span<const int64_t>(reduced)}, {"keepdim", false}, {"dtype", std::string_view("null")}}, "p");
  ir::Value* y = builder.Make("set", {p}, {}, "y");
  graph.outputs.push_back({y, nullptr});
  const ir::Mesh* a = graph.AddMesh(from_mesh, "a");
  const ir::Mesh* b = graph.AddMesh(to_mesh, "b");
  x->layout = fusion::LayoutFor(graph, *x->type, {a, from});
  p->layout = fusion::LayoutFor(graph, *p->type, {a, from});
  y->layout = fusion::LayoutFor(graph, *y->type, {b, Placed(to.begin(), to.end() - 1)});
  std::vector<int64_t> shape = c.shape;
  shape.push_back(c.reduced);
  pair.input = Counting(shape);
  return pair;
}

}  // namespace hir::plan
