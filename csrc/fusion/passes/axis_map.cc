#include "csrc/fusion/passes/axis_map.h"

#include <algorithm>

namespace hir::fusion {
namespace {

using mesh::ParallelType;

// Whether shards of `ways` blocks are even, or may be for some sizes.
bool Divides(int64_t ways, const ir::Expr* extent) { return !extent->IsConst() || extent->value % ways == 0; }

bool MayBeEqual(const ir::Expr* a, const ir::Expr* b) { return !a->IsConst() || !b->IsConst() || a->value == b->value; }

}  // namespace

AxisMap::AxisMap(const ir::Op& op) : op_(&op), links_(AxesOf(op)), reduced_(op.results[0]->type->axes.size(), false) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    operand_axes_.emplace_back();
    if (!IsTensor(*op.operands[i])) continue;
    tensors_.push_back(static_cast<int>(i));
    operand_axes_.back() = ir::ValueAxes(*op.operands[i]->type);
  }
  for (const AxisLink& link : links_) {
    if (link.relation == AxisRelation::kReduced || link.relation == AxisRelation::kContracted) {
      reduced_[static_cast<size_t>(link.result_axis)] = true;
    }
  }
}

const ir::Axis& AxisMap::OperandAxis(const AxisLink& link) const {
  return operand_axes_[static_cast<size_t>(link.operand)][static_cast<size_t>(link.operand_axis)];
}

const ir::Axis& AxisMap::ResultAxisOf(const AxisLink& link) const {
  return op_->results[0]->type->axes[static_cast<size_t>(link.result_axis)];
}

bool AxisMap::Stretches(const AxisLink& link) const {
  const bool same = link.relation == AxisRelation::kSame || link.relation == AxisRelation::kBroadcast;
  return same && OperandAxis(link).extent->IsConst(1) && !ResultAxisOf(link).extent->IsConst(1);
}

bool AxisMap::CanSplit(size_t axis, int64_t ways) const {
  if (ways == 1) return true;
  // Elements keep their places in uneven blocks, too, as long as they are the operands' elements, or their reduction.
  const bool uneven = !reduced_[axis] && !Divides(ways, op_->results[0]->type->axes[axis].extent);
  for (const AxisLink& link : links_) {
    if (static_cast<size_t>(link.result_axis) != axis || Stretches(link)) continue;
    const ir::Expr* operand = OperandAxis(link).extent;
    switch (link.relation) {
      case AxisRelation::kSame:
      case AxisRelation::kBroadcast:
        // Unequal extents are possible where a reshape has no elements at all.
        if (!MayBeEqual(operand, ResultAxisOf(link).extent)) return false;
        break;
      case AxisRelation::kReduced: break;
      case AxisRelation::kContracted:
      case AxisRelation::kSplitOuter:
      case AxisRelation::kMergedOuter:
        if (uneven || !Divides(ways, operand)) return false;
        break;
      case AxisRelation::kMergedInner:  // Whole on every rank; the outermost one is split.
      case AxisRelation::kGathered:     // Whole on every rank; the indices are split.
        if (uneven) return false;
        break;
      case AxisRelation::kSliced:
      case AxisRelation::kPadded:
      case AxisRelation::kConcatenated:
      case AxisRelation::kSplitInner:
      case AxisRelation::kOpaque: return false;
    }
  }
  return true;
}

bool AxisMap::CanDeal(size_t axis, int64_t ways) const {
  // One element a device, or none: dealt and in blocks at once, and blocks are the normal form.
  const auto in_blocks = [&](const ir::Expr* extent) { return extent->IsConst(ways) || extent->IsConst(0); };
  if (in_blocks(op_->results[0]->type->axes[axis].extent)) return false;
  if (CountsAlong(*op_, axis)) return false;
  return std::ranges::all_of(links_, [&](const AxisLink& link) {
    if (static_cast<size_t>(link.result_axis) != axis) return true;
    switch (link.relation) {
      case AxisRelation::kSame:
      case AxisRelation::kBroadcast:
      case AxisRelation::kReduced:
      case AxisRelation::kContracted: return !in_blocks(OperandAxis(link).extent);
      case AxisRelation::kGathered: return true;
      case AxisRelation::kSliced:
      case AxisRelation::kPadded:
      case AxisRelation::kConcatenated:
      case AxisRelation::kSplitOuter:
      case AxisRelation::kSplitInner:
      case AxisRelation::kMergedOuter:
      case AxisRelation::kMergedInner:
      case AxisRelation::kOpaque: return false;
    }
    return false;
  });
}

bool AxisMap::Fits(size_t axis, const ir::Mesh& mesh, const Types& split) const {
  return CanSplit(axis, Ways(mesh, split)) && (!split.is_dealt() || CanDeal(axis, split.dealt));
}

std::optional<size_t> AxisMap::ResultAxis(int operand, size_t axis) const {
  for (const AxisLink& link : links_) {
    if (link.operand != operand || static_cast<size_t>(link.operand_axis) != axis || Stretches(link)) continue;
    switch (link.relation) {
      case AxisRelation::kSame:
      case AxisRelation::kBroadcast:
      case AxisRelation::kReduced:
      case AxisRelation::kContracted:
      case AxisRelation::kSplitOuter:
      case AxisRelation::kMergedOuter: return static_cast<size_t>(link.result_axis);
      case AxisRelation::kMergedInner:
      case AxisRelation::kSliced:
      case AxisRelation::kPadded:
      case AxisRelation::kConcatenated:
      case AxisRelation::kSplitInner:
      case AxisRelation::kGathered:
      case AxisRelation::kOpaque: break;
    }
  }
  return std::nullopt;
}

std::vector<Types> AxisMap::Required(int operand, const Placement& placement) const {
  std::vector<Types> required(operand_axes_[static_cast<size_t>(operand)].size());
  for (size_t axis = 0; axis < required.size(); ++axis) {
    if (const std::optional<size_t> to = ResultAxis(operand, axis)) required[axis] = placement.axes[*to];
  }
  return required;
}

Types AxisMap::Fitting(size_t axis, const ir::Mesh& mesh, const Types& types) const {
  Types fitting;
  int64_t ways = 1;
  for (const ParallelType type : types) {
    ways *= mesh.mesh.Size(type);
    if (!CanSplit(axis, ways)) break;
    fitting.push_back(type);
  }
  if (types.is_dealt() && !fitting.empty() && CanDeal(axis, types.dealt)) fitting.dealt = types.dealt;
  return fitting;
}

std::optional<Placement> AxisMap::Forward(const std::vector<std::optional<Placement>>& operands,
                                          std::optional<int> first) const {
  std::vector<int> order;
  for (const int i : tensors_) {
    if (operands[static_cast<size_t>(i)]) order.push_back(i);
  }
  if (order.empty()) return std::nullopt;
  std::ranges::stable_sort(order, std::greater(),
                           [&](int i) { return std::pair(i == first, Shares(*operands[static_cast<size_t>(i)])); });
  const ir::Value& result = *op_->results[0];
  const ir::Mesh* mesh = operands[static_cast<size_t>(order[0])]->mesh;
  Placement placement = Replicated(mesh, *result.type);
  Types used;
  for (const int i : order) {
    const Placement& from = *operands[static_cast<size_t>(i)];
    if (from.mesh != mesh) continue;
    const std::vector<Types> types = ValueTypes(*op_->operands[static_cast<size_t>(i)]->type, from);
    for (size_t axis = 0; axis < types.size(); ++axis) {
      const std::optional<size_t> to = ResultAxis(i, axis);
      if (!to || !placement.axes[*to].empty()) continue;
      if (result.type->axes[*to].kind != ir::AxisKind::kReduction && IsReduced(*to)) continue;  // Kept with extent 1.
      Types fitting = Fitting(*to, *mesh, types[axis]);
      const auto taken = std::ranges::find_if(fitting, [&](ParallelType t) { return std::ranges::count(used, t) > 0; });
      fitting.erase(taken, fitting.end());
      if (fitting.empty()) fitting = {};
      used.insert(used.end(), fitting.begin(), fitting.end());
      placement.axes[*to] = std::move(fitting);
    }
  }
  return placement;
}

std::vector<Types> AxisMap::Backward(int operand, const Placement& placement) const {
  const std::vector<ir::Axis>& axes = operand_axes_[static_cast<size_t>(operand)];
  std::vector<Types> types(axes.size());
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (const std::optional<size_t> to = ResultAxis(operand, axis)) {
      types[axis] = Fitting(*to, *placement.mesh, placement.axes[*to]);
    }
  }
  return types;
}

}  // namespace hir::fusion
