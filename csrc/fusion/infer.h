// What the Infer functions of many ops share. Private to csrc/fusion.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/fusion/axes.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// --- operands -----------------------------------------------------------------------------------------------------
// The value axes of operand `i`, which must be a tensor.
Result<std::vector<ir::Axis>> TensorAxes(const ir::Op& op, int i);
// An extent that stretches to any other: constant 1.
inline bool IsOne(const ir::Axis& axis) { return axis.extent->IsConst(1); }
// Whether an operand's axis is the result's axis or stretches to it (extent 1, or stored once where the result is not).
inline AxisRelation SameOrBroadcast(const ir::Axis& operand, const ir::Axis& result) {
  if (IsOne(operand)) return IsOne(result) ? AxisRelation::kSame : AxisRelation::kBroadcast;
  return operand.kind == result.kind ? AxisRelation::kSame : AxisRelation::kBroadcast;
}
std::string AxisName(const ir::Value& value, size_t axis);  // "axis 1 of %x"

// --- axis numbers ---------------------------------------------------------------------------------------------------
// `axis` in [-rank, rank) as one in [0, rank).
Result<int64_t> NormalAxis(int64_t axis, size_t rank);
// All of `axes`, ascending; repeats are refused.
Result<std::vector<int64_t>> NormalAxes(std::span<const int64_t> axes, size_t rank);
// Whether the axis is among `axes` of a squeeze, which InferSqueeze makes normal.
bool IsSqueezed(const ir::Op& op, size_t axis);
// 0 .. rank - 1 in some order.
Result<std::vector<int64_t>> NormalOrder(std::span<const int64_t> axes, size_t rank);

// --- extents --------------------------------------------------------------------------------------------------------
// Makes `a` and `b` one extent; the names are for people: "axis 1 of %x". Expressions read before stay usable in
// Graph::Tensor and with Graph::Resolve.
Status Unify(ir::Graph& graph, const ir::Expr* a, const ir::Expr* b, std::string_view name_a, std::string_view name_b);
// Guards; no symbol is replaced. Errors: kInvalidArgument where they can never hold.
Status RequireEqual(ir::Graph& graph, const ir::Expr* left, const ir::Expr* right, std::string reason);
Status RequireAtMost(ir::Graph& graph, const ir::Expr* left, const ir::Expr* right, std::string reason);
// Guards that each of `extents`, which attributes say, is a size: a formula of symbols may fall below 0 or divide by 0,
// and then no value of the op exists.
Status RequireExtents(ir::Graph& graph, const ir::Op& op, std::span<const ir::Expr* const> extents);
// Guards that nothing in `value` divides by 0.
Status RequireDivisors(ir::Graph& graph, const ir::Op& op, const ir::Expr* value);

// The axes of operands that broadcast against each other as NumPy's do: aligned at the last axis, extent 1 stretches.
// Unifies extents that must be equal. A result axis is broadcast (stored once) where all operands' are, else iteration.
struct ShapedOperand {
  const ir::Value* value = nullptr;
  std::vector<ir::Axis> axes;  // Leading value axes of `value`.
};
Result<std::vector<ir::Axis>> BroadcastAxes(ir::Graph& graph, std::span<const ShapedOperand> operands);

// --- attributes -----------------------------------------------------------------------------------------------------
// The element type that the attribute `name` says; `null_is` for "null".
Result<DType> DTypeAttr(const ir::Op& op, std::string_view name);
Result<DType> DTypeAttr(const ir::Op& op, std::string_view name, DType null_is);
// Replaces the value of the attribute `name`.
void SetAttr(ir::Op& op, std::string_view name, ir::AttrValue value);
void SetInts(ir::Graph& graph, ir::Op& op, std::string_view name, const std::vector<int64_t>& values);
void SetExprs(ir::Graph& graph, ir::Op& op, std::string_view name, const std::vector<const ir::Expr*>& values);
// The attribute `shape` must have `rank` entries.
Status CheckCount(const ir::Op& op, std::string_view name, size_t count, size_t rank);

// --- the result -----------------------------------------------------------------------------------------------------
Status SetTensor(ir::Graph& graph, ir::Op& op, DType dtype, std::span<const ir::Axis> axes);

}  // namespace hir::fusion
