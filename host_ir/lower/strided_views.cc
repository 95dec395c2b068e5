#include "host_ir/lower/strided_views.h"

#include <algorithm>
#include <optional>

#include "csrc/base/dtype.h"
#include "csrc/codegen/library/abilities.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"
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
  const auto is_dense = [&](size_t axis) {
    return region.axes[axis].extent->IsConst(1) || region.axes[axis].stride->IsConst(1);
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
  return {.columns_are_dense = is_dense(rank - 1),
          .rows_are_dense = is_dense(rank - 2),
          .batches = StridesAlong(pool, region, rank - 2),
          .rows_go_on = StridesAlong(pool, region, rank - 1) <= 1,
          .is_aligned = is_aligned};
}

bool HasAxes(const Value& value, size_t least) { return ir::ValueAxes(*value.type).size() >= least; }

// Its matrices are one, for all rows of the other operand.
bool HasOneMatrix(const Op& product) { return !HasAxes(*product.operands[1], 3); }

bool TakesOperand(const codegen::Target& target, const Op& call, size_t operand, const Placing& placing) {
  using codegen::library::Provider;
  const bool is_gpu = target.kind == codegen::Target::Kind::kGpu;
  const FusionOp code = fusion::CodeOf(call);
  if (fusion::IsProduct(code)) {
    if (operand > 1 || !HasAxes(*call.operands[0], 2) || !HasAxes(*call.operands[1], 2)) return false;
    const bool joins_rows = operand == 0 && HasOneMatrix(call);
    return ReadsInPlace(is_gpu ? Provider::kCublasLt : Provider::kOneDnn, placing, joins_rows);
  }
  constexpr size_t kLse = 4, kMask = 6;
  const bool is_mask = operand == (code == FusionOp::kAttention ? 3 : kMask);
  return fusion::IsAttention(code) && operand != kLse && !is_mask && AttendsInPlace(is_gpu, placing);
}

bool WritesResult(const codegen::Target& target, const Op& call, const Placing& placing) {
  using codegen::library::Provider;
  const bool is_gpu = target.kind == codegen::Target::Kind::kGpu;
  const FusionOp code = fusion::CodeOf(call);
  if (fusion::IsProduct(code)) {
    // Biases and activations may be passes of their own, over all of the result's memory.
    const bool is_plain = call.operands.size() == 2 && call.Name("epilogue") == fusion::kNoEpilogue;
    return is_plain && HasAxes(*call.operands[0], 2) && HasAxes(*call.operands[1], 2) &&
           WritesInPlace(is_gpu ? Provider::kCublasLt : Provider::kOneDnn, placing, HasOneMatrix(call));
  }
  return fusion::IsAttention(code) && call.Name("result") != "lse" && AttendsInPlace(is_gpu, placing);
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
  if (readers.empty() || !HasAxes(result, 2)) return false;
  ir::ExprPool pool;
  std::optional<Region> region = WholeOf(pool, *views[0]->operands[0]);
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
    std::vector<Op*> readers = uses[static_cast<size_t>(output->id)];
    std::erase_if(readers, is_inside);
    return AreReadInPlace(views, readers);
  });
}

std::vector<std::vector<Op*>> ChainsOf(const segment::Group& group, const StridedViews& views) {
  std::vector<std::vector<Op*>> chains(group.inputs.size());
  for (Op* op : group.ops) {
    if (!views.IsView(*op)) return {};
    const auto goes_on = [&](const std::vector<Op*>& chain) {
      const Value* const end =
          chain.empty() ? group.inputs[static_cast<size_t>(&chain - chains.data())] : chain.back()->results[0];
      return end == op->operands[0];
    };
    const auto chain = std::ranges::find_if(chains, goes_on);
    if (chain == chains.end()) return {};
    chain->push_back(op);
  }
  const auto ends = [&](const std::vector<Op*>& chain) {
    return !chain.empty() && std::ranges::find(group.outputs, chain.back()->results[0]) != group.outputs.end();
  };
  return group.outputs.size() == chains.size() && std::ranges::all_of(chains, ends) ? chains
                                                                                    : std::vector<std::vector<Op*>>();
}

}  // namespace hir::host
