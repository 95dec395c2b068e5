// Which axes of a group's tensors run together.
#include <algorithm>

#include "csrc/codegen/structure.h"
#include "csrc/fusion/element.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/segment/price.h"

namespace hir::codegen {

using fusion::AxisLink;
using fusion::AxisRelation;
using fusion::Element;

namespace {

OpAxes::Reading ReadingOf(const ir::Op& op, int operand, const OpAxes::Facts& facts) {
  OpAxes::Reading reading;
  const ir::Value& result = *op.results[0];
  int innermost = -1;  // Of the result's logical axes.
  for (int axis = 0; IsTensor(result) && axis < std::ssize(result.type->axes); ++axis) {
    const ir::Axis& its = result.type->axes[static_cast<size_t>(axis)];
    if (its.kind != ir::AxisKind::kReduction && !IsSingle(its)) innermost = axis;
  }
  bool varies = innermost < 0;
  for (const AxisLink& link : facts.links) {
    if (link.operand != operand) continue;
    const bool keeps = link.relation == AxisRelation::kSame || link.relation == AxisRelation::kBroadcast ||
                       link.relation == AxisRelation::kReduced;
    reading.keeps_index = reading.keeps_index && keeps;
    reading.is_piece =
        reading.is_piece || link.relation == AxisRelation::kPadded || link.relation == AxisRelation::kConcatenated;
    varies = varies || link.relation == AxisRelation::kReduced ||
             (link.result_axis == innermost && link.relation != AxisRelation::kBroadcast);
  }
  if (!varies) reading.innermost = result.type->axes[static_cast<size_t>(innermost)].extent;
  return reading;
}

}  // namespace

const OpAxes::Facts& OpAxes::Of(const ir::Op& op) {
  const auto id = static_cast<size_t>(op.results[0]->id);
  if (facts_.size() <= id) facts_.resize(id + 1);
  if (facts_[id] != nullptr) return *facts_[id];
  Facts& facts = *(facts_[id] = std::make_unique<Facts>());
  facts.links = fusion::AxesOf(op);
  const bool makes_elements = !fusion::IsCommunication(fusion::CodeOf(op)) && (op.info->effects & ir::kLibrary) == 0;
  facts.is_pointwise = makes_elements && std::ranges::all_of(facts.links, [](const AxisLink& link) {
                         return link.relation == AxisRelation::kSame || link.relation == AxisRelation::kBroadcast;
                       });
  const auto is_loop = [](const AxisLink& link) { return link.relation == AxisRelation::kReduced; };
  if (makes_elements && std::ranges::any_of(facts.links, is_loop)) facts.loops = LoopsOf(op);
  for (size_t k = 0; k < op.operands.size(); ++k) facts.readings.push_back(ReadingOf(op, static_cast<int>(k), facts));
  if (makes_elements && !op.results.empty() && IsTensor(*op.results[0]))
    facts.price = segment::PriceOfElement(op).value_or(0);
  return facts;
}

AxisClasses::AxisClasses(const segment::GroupView& group, OpAxes& axes) : axes_(axes) {
  std::vector<int> parents;
  std::vector<const ir::Expr*> extents;
  const auto find = [&](int at) {
    while (parents[static_cast<size_t>(at)] != at) {
      at = parents[static_cast<size_t>(at)] = parents[static_cast<size_t>(parents[static_cast<size_t>(at)])];
    }
    return at;
  };
  const auto add = [&](const ir::Value* value) -> Place {
    if (!IsTensor(*value)) return {};
    const auto [at, is_new] = places_.try_emplace(value);
    if (!is_new) return at->second;
    at->second.begin = classes_.size();
    for (const ir::Axis& axis : value->type->axes) {
      if (axis.kind == ir::AxisKind::kReduction) continue;
      classes_.push_back(IsSingle(axis) ? -1 : static_cast<int>(parents.size()));
      if (IsSingle(axis)) continue;
      parents.push_back(classes_.back());
      extents.push_back(axis.extent);
    }
    at->second.count = classes_.size() - at->second.begin;
    return at->second;
  };
  std::vector<Place> operands, results;  // Of one op.
  for (const ir::Op* op : group.ops) {
    operands.clear();
    results.clear();
    for (const ir::Value* operand : op->operands) operands.push_back(add(operand));
    for (const ir::Value* result : op->results) results.push_back(add(result));
    for (const AxisLink& link : axes_.Of(*op).links) {
      const ir::Value* result = op->results[static_cast<size_t>(link.result)];
      const ir::Axis& axis = result->type->axes[static_cast<size_t>(link.result_axis)];
      if (link.relation != AxisRelation::kSame || axis.kind == ir::AxisKind::kReduction) continue;
      const auto before = std::count_if(result->type->axes.begin(), result->type->axes.begin() + link.result_axis,
                                        [](const ir::Axis& a) { return a.kind != ir::AxisKind::kReduction; });
      const int a =
          classes_[operands[static_cast<size_t>(link.operand)].begin + static_cast<size_t>(link.operand_axis)];
      const int b = classes_[results[static_cast<size_t>(link.result)].begin + static_cast<size_t>(before)];
      if (a < 0 || b < 0) continue;
      if (ir::Equal(extents[static_cast<size_t>(a)], extents[static_cast<size_t>(b)])) {
        parents[static_cast<size_t>(find(b))] = find(a);
      }
    }
  }
  // As values come in the program, so that numbers depend on the program alone.
  std::vector<int> numbers(parents.size(), -1);
  for (int& axis : classes_) {
    if (axis < 0) continue;
    int& number = numbers[static_cast<size_t>(find(axis))];
    if (number < 0) {
      number = static_cast<int>(extents_.size());
      extents_.push_back(extents[static_cast<size_t>(axis)]);
    }
    axis = number;
  }
}

std::span<const int> AxisClasses::Of(const ir::Value* value) const {
  const Place& place = places_.at(value);
  return std::span(classes_).subspan(place.begin, place.count);
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
