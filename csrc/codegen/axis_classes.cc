// Which axes of a group's tensors run together.
#include <algorithm>

#include "csrc/codegen/structure.h"
#include "csrc/fusion/element.h"

namespace hir::codegen {

using fusion::AxisLink;
using fusion::AxisRelation;
using fusion::Element;

AxisClasses::AxisClasses(const segment::GroupView& group) {
  std::vector<int> parents;
  std::vector<const ir::Expr*> extents;
  const auto find = [&](int at) {
    while (parents[static_cast<size_t>(at)] != at) {
      at = parents[static_cast<size_t>(at)] = parents[static_cast<size_t>(parents[static_cast<size_t>(at)])];
    }
    return at;
  };
  const auto add = [&](const ir::Value* value) {
    if (!IsTensor(value) || classes_.contains(value)) return;
    std::vector<int>& axes = classes_[value];
    for (const ir::Axis& axis : ir::ValueAxes(*value->type)) {
      if (IsSingle(axis)) {
        axes.push_back(-1);
        continue;
      }
      axes.push_back(static_cast<int>(parents.size()));
      parents.push_back(axes.back());
      extents.push_back(axis.extent);
    }
  };
  for (const ir::Op* op : group.ops) {
    for (const ir::Value* operand : op->operands) add(operand);
    for (const ir::Value* result : op->results) add(result);
    const std::vector<AxisLink>& links = links_[op] = fusion::AxesOf(*op);
    for (const AxisLink& link : links) {
      const ir::Value* operand = op->operands[static_cast<size_t>(link.operand)];
      const ir::Value* result = op->results[static_cast<size_t>(link.result)];
      const ir::Axis& axis = result->type->axes[static_cast<size_t>(link.result_axis)];
      if (link.relation != AxisRelation::kSame || axis.kind == ir::AxisKind::kReduction) continue;
      const auto before = std::count_if(result->type->axes.begin(), result->type->axes.begin() + link.result_axis,
                                        [](const ir::Axis& a) { return a.kind != ir::AxisKind::kReduction; });
      const int a = classes_[operand][static_cast<size_t>(link.operand_axis)];
      const int b = classes_[result][static_cast<size_t>(before)];
      if (a < 0 || b < 0) continue;
      if (ir::Equal(extents[static_cast<size_t>(a)], extents[static_cast<size_t>(b)])) {
        parents[static_cast<size_t>(find(b))] = find(a);
      }
    }
  }
  std::vector<int> numbers(parents.size(), -1);
  for (const ir::Op* op : group.ops) {  // In program order, so that numbers depend on the program alone.
    const auto renumber = [&](const ir::Value* value) {
      if (!IsTensor(value)) return;
      for (const int axis : classes_[value]) {
        if (axis < 0 || numbers[static_cast<size_t>(find(axis))] >= 0) continue;
        numbers[static_cast<size_t>(find(axis))] = static_cast<int>(extents_.size());
        extents_.push_back(extents[static_cast<size_t>(axis)]);
      }
    };
    for (const ir::Value* operand : op->operands) renumber(operand);
    for (const ir::Value* result : op->results) renumber(result);
  }
  for (auto& [value, axes] : classes_) {
    for (int& axis : axes) {
      if (axis >= 0) axis = numbers[static_cast<size_t>(find(axis))];
    }
  }
}

ReductionLoops LoopsOf(const ir::Op& op) {
  fusion::ElementBuilder builder;
  ReductionLoops loops;
  const Element* loaded = nullptr;
  builder.set_load([&](const ir::Value* value, std::span<const Element* const> index) {
    return loaded = builder.MakeLoad(value, index);
  });
  std::vector<const Element*> index;
  for (size_t i = 0; i < ir::ValueAxes(*op.results[0]->type).size(); ++i) {
    index.push_back(builder.Index(static_cast<int>(i)));
  }
  fusion::Define(builder, op, 0, index);
  std::vector<std::pair<int64_t, int>> trips;
  for (size_t axis = 0; loaded != nullptr && axis < loaded->args.size(); ++axis) {
    if (loaded->args[axis]->kind == Element::Kind::kReduceIndex) {
      trips.emplace_back(loaded->args[axis]->integer, static_cast<int>(axis));
    }
  }
  std::ranges::sort(trips);
  for (const auto& [variable, axis] : trips) loops.operand_axes.push_back(axis);
  return loops;
}

}  // namespace hir::codegen
