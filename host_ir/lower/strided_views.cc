#include "host_ir/lower/strided_views.h"

#include <algorithm>
#include <optional>

#include "csrc/base/dtype.h"
#include "csrc/codegen/library/abilities.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
#include "host_ir/lower/products.h"
#include "host_ir/lower/storage.h"
#include "host_ir/region.h"
#include "host_ir/shapes.h"

namespace hir::host {
namespace {

using codegen::library::Placing;
using fusion::FusionOp;
using ir::Op;
using ir::Value;

bool IsPlainSlice(const Op& op) {
  return fusion::CodeOf(op) == FusionOp::kSlice &&
         std::ranges::all_of(op.Ints("strides"), [](int64_t step) { return step == 1; });
}

std::optional<Region> Through(ir::ExprPool& pool, const Region& region, const Op& op) {
  if (fusion::CodeOf(op) == FusionOp::kPermute) return Permute(region, op.Ints("dims"));
  if (!IsPlainSlice(op)) return Reshape(pool, region, *op.results[0]->type, StoredExtents(pool, *op.results[0]->type));
  Region part = region;
  for (size_t axis = 0; axis < region.axes.size(); ++axis) {
    const ir::Expr* const from = pool.Import(op.Exprs("start")[axis]);
    const ir::Expr* const to = pool.Import(op.Exprs("end")[axis]);
    if (from->IsConst(0) && to == region.axes[axis].extent) continue;
    part = Slice(pool, part, static_cast<int64_t>(axis), from, to);
  }
  return part;
}

// From the result to the operand.
std::optional<Region> BackThrough(ir::ExprPool& pool, const Region& region, const Op& op) {
  if (fusion::CodeOf(op) == FusionOp::kPermute) return Permute(region, InverseOf(op.Ints("dims")));
  if (IsPlainSlice(op)) return std::nullopt;  // The rest would have no place.
  const ir::Type& type = *op.operands[0]->type;
  return Reshape(pool, region, type, StoredExtents(pool, type));
}

// So many strides lead from element to element along axes [0, end): axes that go on in each other have one.
size_t StridesAlong(ir::ExprPool& pool, const Region& region, size_t end) {
  size_t strides = 0;
  const ViewAxis* inner = nullptr;
  for (size_t i = end; i-- > 0;) {
    const ViewAxis& axis = region.axes[i];
    if (axis.extent->IsConst(1)) continue;
    if (inner == nullptr || axis.stride != pool.Mul(inner->stride, inner->extent)) ++strides;
    inner = &axis;
  }
  return strides;
}

// The tensor has two axes or more, the last two a matrix.
Placing PlacingOf(ir::ExprPool& pool, const Region& region, DType dtype) {
  const size_t rank = region.axes.size();
  const ViewAxis &rows = region.axes[rank - 2], &columns = region.axes[rank - 1];
  // One row, or one column, is a matrix that lies densely where it does itself.
  const auto is_dense = [](const ViewAxis& axis, const ViewAxis& other) {
    if (!axis.extent->IsConst(1)) return axis.stride->IsConst(1);
    return other.extent->IsConst(1) || other.stride->IsConst(1);
  };
  // A vector of 16 bytes, as GPUs load them; of sizes that are not known it is not known.
  const ir::Expr* const vector = pool.Const(std::max<int64_t>(16 / DTypeBytes(dtype), 1));
  const auto is_askew = [&](const ir::Expr* elements) {
    const ir::Expr* const rest = pool.Mod(elements, vector);
    return rest->IsConst() && !rest->IsConst(0);
  };
  bool is_aligned = !is_askew(region.offset);
  for (size_t axis = 0; axis < rank; ++axis) {
    if (region.axes[axis].extent->IsConst(1)) continue;
    is_aligned &= region.axes[axis].stride->IsConst(1) || !is_askew(region.axes[axis].stride);
  }
  return {.columns_are_dense = is_dense(columns, rows),
          .rows_are_dense = is_dense(rows, columns),
          .batches = StridesAlong(pool, region, rank - 2),
          .rows_go_on = StridesAlong(pool, region, rank - 1) <= 1,
          .is_aligned = is_aligned};
}

bool HasAxes(const Value& value, size_t least) { return ir::ValueAxes(*value.type).size() >= least; }

// Whether rows of several of the left operand's matrices are multiplied by one matrix: then they are one product, if
// they are evenly apart.
bool JoinsRows(const Op& product) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*product.operands[1]->type);
  if (axes.size() < 3) return true;
  const ir::Axis& inner = axes[axes.size() - 3];
  return inner.extent->IsConst(1) || inner.kind == ir::AxisKind::kBroadcast;
}

// Whether all of one row, or of one column, is one element in memory.
bool IsStoredOnce(const Value& value) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value.type);
  return std::ranges::any_of(std::span(axes).last(2), [](const ir::Axis& axis) {
    return axis.kind == ir::AxisKind::kBroadcast && !axis.extent->IsConst(1);
  });
}

// A part smaller than this share of a computed tensor is copied: else the rest stays in memory as long as the part.
constexpr int64_t kLeastShare = 8;

bool TakesOperand(const codegen::Target& target, const Op& call, size_t operand, const Placing& placing) {
  const codegen::library::Provider provider = ProviderOf(target);
  const FusionOp code = fusion::CodeOf(call);
  if (fusion::IsProduct(code)) {
    if (operand > 1 || !HasAxes(*call.operands[0], 2) || !HasAxes(*call.operands[1], 2)) return false;
    const bool joins_rows = operand == 0 && JoinsRows(call);
    return ReadsInPlace(provider, placing, joins_rows);
  }
  constexpr size_t kLse = 4, kMask = 6;
  const bool is_mask = operand == (code == FusionOp::kAttention ? 3 : kMask);
  return fusion::IsAttention(code) && operand != kLse && !is_mask && AttendsInPlace(provider, placing);
}

bool WritesResult(const codegen::Target& target, const Op& call, const Placing& placing) {
  const codegen::library::Provider provider = ProviderOf(target);
  const FusionOp code = fusion::CodeOf(call);
  if (fusion::IsProduct(code)) {
    // Biases and activations may be passes of their own, over all of the result's memory.
    const bool is_plain = call.operands.size() == 2 && call.Name("epilogue") == fusion::kNoEpilogue;
    return is_plain && HasAxes(*call.operands[0], 2) && HasAxes(*call.operands[1], 2) &&
           WritesInPlace(provider, placing, JoinsRows(call));
  }
  return fusion::IsAttention(code) && call.Name("result") != "lse" && AttendsInPlace(provider, placing);
}

}  // namespace

std::vector<int64_t> InverseOf(std::span<const int64_t> dims) {
  std::vector<int64_t> inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) inverse[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
  return inverse;
}

bool StridedViews::IsView(const Op& op) const {
  if (op.operands.size() != 1 || op.operands[0]->type->kind != ir::TypeKind::kTensor) return false;
  if (strides_.contains(op.operands[0]) || strides_.contains(op.results[0])) return false;
  return host::IsView(op) || fusion::CodeOf(op) == FusionOp::kPermute || IsPlainSlice(op);
}

bool StridedViews::AreReadInPlace(std::span<Op* const> views, std::span<Op* const> readers) const {
  const Value& result = *views.back()->results[0];
  if (readers.empty() || !HasAxes(result, 2) || IsStoredOnce(result)) return false;
  const Value& whole = *views[0]->operands[0];
  if (whole.def != nullptr && segment::StorageBytes(result) < segment::StorageBytes(whole) / kLeastShare) return false;
  ir::ExprPool pool;
  std::optional<Region> region = WholeOf(pool, whole);
  for (const Op* view : views) {
    region = Through(pool, *region, *view);
    if (!region) return false;
  }
  const Placing placing = PlacingOf(pool, *region, result.type->dtype);
  if (pool.overflowed()) return false;
  return std::ranges::all_of(readers, [&](const Op* reader) {
    for (size_t i = 0; i < reader->operands.size(); ++i) {
      if (reader->operands[i] == &result && !TakesOperand(target_, *reader, i, placing)) return false;
    }
    return true;
  });
}

bool StridedViews::AreWrittenInPlace(std::span<Op* const> views) const {
  const Value& made = *views[0]->operands[0];
  if (made.def == nullptr || !HasAxes(made, 2)) return false;
  ir::ExprPool pool;
  std::optional<Region> region = WholeOf(pool, *views.back()->results[0]);
  for (size_t i = views.size(); i-- > 0;) {
    region = BackThrough(pool, *region, *views[i]);
    if (!region) return false;
  }
  const Placing placing = PlacingOf(pool, *region, made.type->dtype);
  return !pool.overflowed() && WritesResult(target_, *made.def, placing);
}

bool StridedViews::IsReadInPlace(const segment::Group& group, std::span<const std::vector<Op*>> uses) const {
  if (!std::ranges::all_of(group.ops, [this](const Op* op) { return IsView(*op); })) return false;
  const auto is_inside = [&](const Op* op) { return std::ranges::find(group.ops, op) != group.ops.end(); };
  return std::ranges::all_of(group.outputs, [&](const Value* output) {
    std::vector<Op*> views;
    for (const Value* value = output; value->def != nullptr && is_inside(value->def); value = value->def->operands[0])
      views.insert(views.begin(), value->def);
    if (std::ranges::all_of(views, [](const Op* view) { return host::IsView(*view); })) return true;
    std::vector<Op*> readers = uses[static_cast<size_t>(output->id)];
    std::erase_if(readers, is_inside);
    return AreReadInPlace(views, readers);
  });
}

bool IsChain(const segment::Group& group, const StridedViews& views) {
  if (group.inputs.size() != 1 || group.outputs.size() != 1) return false;
  const Value* from = group.inputs[0];
  for (const Op* op : group.ops) {
    if (!views.IsView(*op) || op->operands[0] != from) return false;
    from = op->results[0];
  }
  return from == group.outputs[0];
}

}  // namespace hir::host
