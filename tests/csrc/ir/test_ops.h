// A small op table for the tests of csrc/ir: one op for each thing a row can say.
#pragma once

#include "csrc/ir/builder.h"

namespace hir::ir {

// Two tensors of one dtype and unified axes.
inline Status InferTestAdd(Graph& graph, Op& op, std::span<const Type* const>) {
  const Type& a = *op.operands[0]->type;
  const Type& b = *op.operands[1]->type;
  if (a.kind != TypeKind::kTensor || b.kind != TypeKind::kTensor) return InvalidArgument("both operands are tensors");
  if (a.dtype != b.dtype) return InvalidArgument("the operands differ in dtype");
  std::vector<Axis> x = ValueAxes(a), y = ValueAxes(b);
  if (x.size() != y.size()) return InvalidArgument("the operands differ in rank");
  for (size_t i = 0; i < x.size(); ++i) {
    HIR_TRY(Builder::Unify(graph, x[i].extent, y[i].extent, "axis " + std::to_string(i)));
  }
  op.results[0]->type = graph.Tensor(a.dtype, x);
  return {};
}

inline Status InferTestUnary(Graph& graph, Op& op, std::span<const Type* const>) {
  if (op.operands[0]->type->kind != TypeKind::kTensor) return InvalidArgument("the operand is a tensor");
  op.results[0]->type = graph.Tensor(op.operands[0]->type->dtype, ValueAxes(*op.operands[0]->type));
  return {};
}

// Reduces value axis `axis`; the result keeps it as a reduction axis.
inline Status InferTestSum(Graph& graph, Op& op, std::span<const Type* const>) {
  std::vector<Axis> axes = ValueAxes(*op.operands[0]->type);
  const int64_t axis = op.Int("axis");
  if (axis < 0 || axis >= std::ssize(axes)) return InvalidArgument("axis is out of range");
  axes[static_cast<size_t>(axis)].kind = AxisKind::kReduction;
  op.results[0]->type = graph.Tensor(op.operands[0]->type->dtype, axes);
  return {};
}

inline Status InferTestReshape(Graph& graph, Op& op, std::span<const Type* const>) {
  std::vector<Axis> axes;
  for (const Expr* extent : op.Exprs("shape")) axes.push_back({AxisKind::kIteration, extent});
  op.results[0]->type = graph.Tensor(op.operands[0]->type->dtype, axes);
  return {};
}

inline constexpr OpInfo kTestTable[] = {
    {.name = "add", .num_operands = 2, .num_results = 1, .infer = &InferTestAdd},
    {.name = "relu", .code = 1, .num_operands = 1, .num_results = 1, .infer = &InferTestUnary},
    {.name = "sum",
     .code = 2,
     .num_operands = 1,
     .num_results = 1,
     .infer = &InferTestSum,
     .attrs = {{"axis", AttrKind::kInt}}},
    {.name = "reshape",
     .code = 3,
     .num_operands = 1,
     .num_results = 1,
     .infer = &InferTestReshape,
     .attrs = {{"shape", AttrKind::kExprs}}},
    {.name = "make", .code = 4, .num_operands = kVariadic, .num_results = kVariadic},
    {.name = "every",
     .code = 5,
     .num_operands = 0,
     .num_results = 0,
     .attrs = {{"int", AttrKind::kInt},
               {"float", AttrKind::kFloat},
               {"bool", AttrKind::kBool},
               {"name", AttrKind::kName},
               {"string", AttrKind::kString},
               {"ints", AttrKind::kInts},
               {"expr", AttrKind::kExpr},
               {"exprs", AttrKind::kExprs},
               {"mesh", AttrKind::kMesh}}},
    {.name = "for",
     .code = 6,
     .num_operands = 0,
     .num_results = 0,
     .num_blocks = 1,
     .attrs = {{"end", AttrKind::kExpr}}},
    {.name = "choose", .code = 7, .num_operands = 0, .num_results = 0, .num_blocks = 2},
    {.name = "use",
     .code = 8,
     .num_operands = kVariadic,
     .num_results = 0,
     .effects = kWrites,
     .attrs = {{"at", AttrKind::kExpr}}},
};
inline constexpr OpSet kTestOps = {.name = "test", .ops = kTestTable};

}  // namespace hir::ir
