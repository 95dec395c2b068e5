// Placements carried through ops, by Axes alone: which placements of operands go with which placement of the result, so
// that every rank computes its share without another rank.
#pragma once

#include <optional>
#include <vector>

#include "csrc/fusion/axes.h"
#include "csrc/fusion/passes/placement.h"

namespace hir::fusion {

// The axes of one op, asked many times. The op outlives it.
class AxisMap {
 public:
  explicit AxisMap(const ir::Op& op);

  const ir::Op& op() const { return *op_; }
  // Tensor operands, by number, ascending.
  const std::vector<int>& tensors() const { return tensors_; }

  // Whether the op can be computed with logical axis `axis` of the result split `ways` ways. False also for constant
  // extents that would not be even where elements change places; symbolic ones are left to guards.
  bool CanSplit(size_t axis, int64_t ways) const;
  // Whether it can be computed with the elements of that axis dealt `ways` ways: where elements meet by their place
  // alone, or by data, but not where an op knows which place is whose.
  bool CanDeal(size_t axis, int64_t ways) const;
  // Both, for what `split` says on `mesh`.
  bool Fits(size_t axis, const ir::Mesh& mesh, const Types& split) const;

  // The logical axis of the result that is split when value axis `axis` of operand `operand` is, or nothing where the
  // op needs the whole axis. A reduced axis that is kept with extent 1 counts: the result is partial then.
  std::optional<size_t> ResultAxis(int operand, size_t axis) const;
  // Whether the result is partial where logical axis `axis` is split.
  bool IsReduced(size_t axis) const { return reduced_[axis]; }

  // What must split each value axis of `operand` when the result is computed as `placement` says.
  std::vector<Types> Required(int operand, const Placement& placement) const;

  // The placement of the result that follows from the operands' when nothing else is said: operand `first`, where one
  // is named, then the most divided one; a later one adds what is still free. Operands without a layout, and partial
  // results of operands, do not count. Nothing when no operand has a layout.
  std::optional<Placement> Forward(const std::vector<std::optional<Placement>>& operands,
                                   std::optional<int> first = {}) const;
  // What splits the value axes of `operand` where the result is placed so.
  std::vector<Types> Backward(int operand, const Placement& placement) const;

 private:
  const ir::Axis& OperandAxis(const AxisLink& link) const;
  const ir::Axis& ResultAxisOf(const AxisLink& link) const;
  bool Stretches(const AxisLink& link) const;  // From extent 1: the operand is whole on every rank.
  // The outermost part of `types` for which CanSplit(axis, its ways); in natural order where it cannot be dealt.
  Types Fitting(size_t axis, const ir::Mesh& mesh, const Types& types) const;

  const ir::Op* op_;
  std::vector<AxisLink> links_;
  std::vector<int> tensors_;
  std::vector<std::vector<ir::Axis>> operand_axes_;  // Value axes; empty for scalars.
  std::vector<bool> reduced_;
};

}  // namespace hir::fusion
