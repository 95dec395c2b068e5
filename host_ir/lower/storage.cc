#include "host_ir/lower/storage.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::host {
namespace {

bool HasExpandedAxis(const ir::Value& value) {
  return std::any_of(value.type->axes.begin(), value.type->axes.end(), [](const ir::Axis& axis) {
    return axis.kind == ir::AxisKind::kBroadcast && !axis.extent->IsConst(1);
  });
}

// Elements in memory, in `pool`.
const ir::Expr* StoredElements(ir::ExprPool& pool, const ir::Value& value) {
  const ir::Expr* elements = pool.Const(1);
  for (const ir::Axis& axis : value.type->axes) {
    if (axis.kind == ir::AxisKind::kIteration) elements = pool.Mul(elements, pool.Import(axis.extent));
  }
  return elements;
}

bool NamesCoordinate(const ir::Expr* extent) {
  std::vector<std::string_view> symbols;
  ir::CollectSymbols(extent, symbols);
  return std::ranges::any_of(symbols, [](std::string_view symbol) { return symbol[0] == '@'; });
}

// Of "@m.x": the size of mesh m along x, less one. Whether a rank is in a mesh, "@m.in", is 0 or 1.
int64_t LargestCoordinate(const ir::Graph& graph, std::string_view symbol) {
  const size_t dot = symbol.rfind('.');
  const std::string_view dimension = symbol.substr(dot + 1);
  if (dimension == "in") return 1;
  const ir::Mesh* const mesh = graph.FindMesh(symbol.substr(1, dot - 1));
  HIR_CHECK(mesh != nullptr);
  return mesh->mesh.Size(*mesh::ParseParallelType(base::Cat("mesh_", dimension))) - 1;
}

}  // namespace

bool IsView(const ir::Op& op) {
  using fusion::FusionOp;
  const FusionOp code = fusion::CodeOf(op);
  if (code == FusionOp::kSet || code == FusionOp::kSegmentSet || code == FusionOp::kSqueeze ||
      code == FusionOp::kBroadcast || code == FusionOp::kBroadcastInDim || code == FusionOp::kExpand) {
    // An axis stretched to nothing is stored like any other.
    ir::ExprPool pool;
    return StoredElements(pool, *op.operands[0]) == StoredElements(pool, *op.results[0]);
  }
  // A reshape of an expanded axis repeats elements that are stored once.
  return code == FusionOp::kReshape && !HasExpandedAxis(*op.operands[0]) && !HasExpandedAxis(*op.results[0]);
}

const ir::Expr* LargestOnAnyRank(ir::Graph& graph, const ir::Expr* extent) {
  ir::ExprPool& pool = graph.exprs();
  extent = pool.Import(extent);
  if (!NamesCoordinate(extent)) return extent;
  const auto largest = [&](size_t arg) { return LargestOnAnyRank(graph, extent->args[arg]); };
  switch (extent->kind) {
    case ir::ExprKind::kSymbol: return pool.Const(LargestCoordinate(graph, extent->symbol));
    case ir::ExprKind::kAdd: {
      const ir::Expr* sum = pool.Const(extent->value);
      for (size_t i = 0; i < extent->args.size(); ++i) sum = pool.Add(sum, largest(i));
      return sum;
    }
    case ir::ExprKind::kMul: {
      if (extent->value < 0) return pool.Const(0);  // Of factors that are 0 or more.
      const ir::Expr* product = pool.Const(extent->value);
      for (size_t i = 0; i < extent->args.size(); ++i) product = pool.Mul(product, largest(i));
      return product;
    }
    case ir::ExprKind::kMin: return pool.Min(largest(0), largest(1));
    case ir::ExprKind::kMax: return pool.Max(largest(0), largest(1));
    case ir::ExprKind::kFloorDiv:
      return NamesCoordinate(extent->args[1]) ? largest(0) : pool.FloorDiv(largest(0), extent->args[1]);
    case ir::ExprKind::kCeilDiv:
      return NamesCoordinate(extent->args[1]) ? largest(0) : pool.CeilDiv(largest(0), extent->args[1]);
    case ir::ExprKind::kMod: return pool.Min(largest(0), largest(1));
    case ir::ExprKind::kConst: break;
  }
  HIR_CHECK(false);
  return nullptr;
}

}  // namespace hir::host
