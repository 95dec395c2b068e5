#include "csrc/segment/sink_reshapes.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/fusion/axes.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/clone.h"

namespace hir::segment {
namespace {

using fusion::AxisRelation;
using fusion::FusionOp;
using ir::Axis;
using ir::Op;
using ir::Value;

bool IsStretched(const Axis& axis) { return axis.kind == ir::AxisKind::kBroadcast && !axis.extent->IsConst(1); }

// How many axes of the one side each of the other stands for, of a reshape that joins neighbours, or splits them, and
// does nothing else. Else empty.
std::vector<size_t> CountsOf(const Op& op, bool splits) {
  if (fusion::CodeOf(op) != FusionOp::kReshape) return {};
  std::vector<Axis> axes = ir::ValueAxes(*op.operands[0]->type);
  std::vector<Axis> joined = ir::ValueAxes(*op.results[0]->type);
  if (splits) std::swap(axes, joined);
  if (joined.size() >= axes.size()) return {};
  if (std::ranges::any_of(axes, IsStretched) || std::ranges::any_of(joined, IsStretched)) return {};
  const std::array<AxisRelation, 2> relations =
      splits ? std::array{AxisRelation::kSplitOuter, AxisRelation::kSplitInner}
             : std::array{AxisRelation::kMergedOuter, AxisRelation::kMergedInner};
  std::vector<size_t> counts(joined.size());
  for (const fusion::AxisLink& link : fusion::AxesOf(op)) {
    if (link.relation != AxisRelation::kSame && std::ranges::find(relations, link.relation) == relations.end())
      return {};
    ++counts[static_cast<size_t>(splits ? link.operand_axis : link.result_axis)];
  }
  size_t all = 0;
  for (const size_t count : counts) all += count;
  const bool whole = all == axes.size() && std::ranges::find(counts, size_t{0}) == counts.end();
  return whole ? counts : std::vector<size_t>();
}

std::vector<size_t> JoinedAxes(const Op& op) { return CountsOf(op, false); }
std::vector<size_t> SplitAxes(const Op& op) { return CountsOf(op, true); }

// In whose operands each element lies where it does in the result.
bool KeepsPlaces(const Op& op) {
  if (!fusion::IsPointwise(fusion::CodeOf(op)) || op.info->effects != ir::kPure) return false;
  if (op.results.size() != 1 || !IsTensor(*op.results[0])) return false;
  const size_t rank = ir::ValueAxes(*op.results[0]->type).size();
  for (size_t axis = 0; axis < rank; ++axis) {
    if (fusion::CountsAlong(op, axis)) return false;
  }
  return std::ranges::all_of(op.operands, [rank](const Value* operand) {
    return !IsTensor(*operand) || ir::ValueAxes(*operand->type).size() == rank;
  });
}

bool Reduces(const Op& op) {
  return std::ranges::any_of(fusion::AxesOf(op),
                             [](const fusion::AxisLink& link) { return link.relation == AxisRelation::kReduced; });
}

// The values that depend on a reduction through ops that kernels hold.
class Reduced {
 public:
  bool Has(const Value* value) const { return values_.contains(value); }
  void Visit(const Op& op) {
    if (op.info->effects != ir::kPure) return;
    const bool depends = std::ranges::any_of(op.operands, [this](const Value* operand) { return Has(operand); });
    if (depends || Reduces(op)) values_.insert(op.results.begin(), op.results.end());
  }

 private:
  std::unordered_set<const Value*> values_;  // Lookups only.
};

class Sinking {
 public:
  explicit Sinking(ir::Graph& graph) : graph_(graph) {
    ir::ForEachOp(graph.body, [this](Op* op) {
      for (const Value* operand : op->operands) uses_[operand].push_back(op);
    });
    for (const ir::Output& output : graph.outputs) returned_.insert(output.value);
  }

  Status Run() {
    for (Op* op = graph_.body.first; op != nullptr;) {
      Op* next = op->next;
      if (MayReduceSource(*op)) {
        HIR_ASSIGN(op, ReduceSource(op));
      }
      if (MaySplitSource(*op)) {
        HIR_ASSIGN(op, SplitSource(op));
        next = op->next;
      }
      Value* const reshaped = Sinkable(*op);
      if (reshaped == nullptr) {
        reduced_.Visit(*op);
      } else {
        HIR_TRY(Sink(op, reshaped));
      }
      op = next;
    }
    return {};
  }

 private:
  // Whether `op` reduces all of each axis that a reshape in front of it joins, if it reduces any of that.
  bool MayReduceSource(const Op& op) const {
    if (!fusion::IsReduction(fusion::CodeOf(op)) || op.operands[0]->def == nullptr) return false;
    const std::vector<size_t> counts = JoinedAxes(*op.operands[0]->def);
    const Value* const source = counts.empty() ? nullptr : op.operands[0]->def->operands[0];
    if (source == nullptr || !reduced_.Has(source) || !AreOnOneMesh(*source, *op.results[0])) return false;
    const std::span<const int64_t> axes = op.Ints("axes");
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 1 && std::ranges::find(axes, static_cast<int64_t>(i)) == axes.end()) return false;
    }
    return true;
  }

  // The reduction in the place of `op`, of what was reshaped.
  Result<Op*> ReduceSource(Op* op) {
    Value* const reshaped = op->operands[0];
    Value* const source = reshaped->def->operands[0];
    const std::vector<size_t> counts = JoinedAxes(*reshaped->def);
    const std::span<const int64_t> joined = op->Ints("axes");
    std::vector<int64_t> axes, is_reduced(counts.size());
    int64_t at = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      is_reduced[i] = std::ranges::find(joined, static_cast<int64_t>(i)) == joined.end() ? 0 : 1;
      for (size_t k = 0; k < counts[i]; ++k, ++at) {
        if (is_reduced[i] != 0) axes.push_back(at);
      }
    }
    ir::Builder builder(graph_, graph_.body, op);
    const ir::Layout* const layout = op->results[0]->layout;
    Value* const reduced = WithLayout(
        builder.Make(op->info->name, {source},
                     {{"axes", std::span<const int64_t>(axes)}, {"keepdim", false}, {"dtype", op->Name("dtype")}}),
        layout);
    Op* const reduction = reduced->def;
    Value* made = reduced;
    if (op->Bool("keepdim")) {
      const std::span<const int64_t> is_new = is_reduced;
      made = WithLayout(builder.Make("broadcast", {reduced}, {{"is_broadcast_dim", is_new}}), layout);
      uses_[reduced].push_back(made->def);
    }
    // The value keeps its name and its readers.
    Op* const last = made->def;
    Value* const kept = op->results[0];
    std::swap(kept->type, made->type);
    std::swap(kept->layout, made->layout);
    std::swap(kept->def, made->def);
    std::swap(op->results[0], last->results[0]);
    reduction->location = last->location = op->location;
    std::erase(uses_[reshaped], op);
    uses_[source].push_back(reduction);
    graph_.body.Erase(op);
    if (uses_[reshaped].empty() && !returned_.contains(reshaped)) {
      std::erase(uses_[source], reshaped->def);
      graph_.body.Erase(reshaped->def);
    }
    reduced_.Visit(*reduction);
    return last;
  }

  // Whether `op` splits axes, for a reduction, of what a pointwise op makes for it and for the program's results alone.
  bool MaySplitSource(const Op& op) {
    const Op* const maker = fusion::CodeOf(op) == FusionOp::kReshape ? op.operands[0]->def : nullptr;
    if (maker == nullptr || SplitAxes(op).empty() || !KeepsPlaces(*maker)) return false;
    const Value* const source = op.operands[0];
    // Counted once: an answer for one of several that split it is that for all.
    const auto [at, is_new] = others_.try_emplace(source, 0);
    if (is_new) {
      at->second =
          std::ranges::count_if(ReadersOf(source), [&](const Op* reader) { return !IsReturnedOf(*source, *reader); });
    }
    const bool is_alone = at->second == 1 && (returned_.contains(source) || ReadersOf(source).size() > 1);
    if (!is_alone || reduced_.Has(source) || !AreOnOneMesh(*source, *op.results[0]) || !IsReduced(op.results[0]))
      return false;
    const std::vector<Axis> axes = ir::ValueAxes(*source->type);
    return std::ranges::all_of(maker->operands, [&](const Value* each) { return FitsInto(*each, axes); });
  }

  // Whether `op` makes of `source` alone what the program returns, and nothing else.
  bool IsReturnedOf(const Value& source, const Op& op) const {
    return KeepsPlaces(op) && returned_.contains(op.results[0]) && ReadersOf(op.results[0]).empty() &&
           AreOnOneMesh(source, *op.results[0]) &&
           std::ranges::all_of(op.operands, [&](const Value* operand) { return operand == &source; });
  }

  // Whether a reduction needs it, past pure ops.
  bool IsReduced(const Value* value) {
    if (!leads_) {
      leads_.emplace();
      for (const Op* op = graph_.body.last; op != nullptr; op = op->prev) {
        const auto leads = [&](const Value* result) { return leads_->contains(result); };
        if (op->info->effects == ir::kPure && (Reduces(*op) || std::ranges::any_of(op->results, leads)))
          leads_->insert(op->operands.begin(), op->operands.end());
      }
    }
    return leads_->contains(value);
  }

  // The op that makes the source, in the place of `op`, of operands that are split. Results are what that joins.
  Result<Op*> SplitSource(Op* op) {
    Value* const source = op->operands[0];
    Op* const maker = source->def;
    const std::vector<size_t> counts = SplitAxes(*op);
    const std::vector<Axis> axes = ir::ValueAxes(*op->results[0]->type);
    const ir::Layout* const layout = op->results[0]->layout;
    ir::Builder builder(graph_, graph_.body, op);
    std::unordered_map<const Value*, Value*> values;
    for (Value* operand : maker->operands) {
      if (!values.contains(operand)) values[operand] = SplitAs(builder, operand, counts, axes, layout);
    }
    HIR_ASSIGN(Op * copy, ir::CloneOp(*maker, builder, values));
    // What `op` has made keeps its name and its readers.
    std::swap(op->results[0]->def, copy->results[0]->def);
    std::swap(op->results[0], copy->results[0]);
    for (Value* operand : copy->operands) uses_[operand].push_back(copy);
    const std::vector<Op*> readers = std::exchange(uses_[source], {});
    for (Op* reader : readers) {
      if (reader == op) continue;
      values = {{source, copy->results[0]}};
      HIR_ASSIGN(Op * own, ir::CloneOp(*reader, builder, values));
      own->results[0]->layout = layout;
      for (Value* operand : own->operands) uses_[operand].push_back(own);
      JoinAs(builder, own->results[0], reader);
    }
    if (returned_.contains(source)) {
      JoinAs(builder, copy->results[0], maker);
    } else {
      for (Value* operand : maker->operands) std::erase(uses_[operand], maker);
      graph_.body.Erase(maker);
    }
    graph_.body.Erase(op);
    return copy;
  }

  // Makes the result of `old`, which keeps its name, of `split` by joining its axes. `old` goes.
  void JoinAs(ir::Builder& builder, Value* split, Op* old) {
    Value* const kept = old->results[0];
    std::vector<const ir::Expr*> shape;
    for (const Axis& axis : ir::ValueAxes(*kept->type)) shape.push_back(axis.extent);
    Op* const join = Reshaped(builder, split, shape, kept->layout)->def;
    std::swap(kept->def, join->results[0]->def);
    std::swap(old->results[0], join->results[0]);
    uses_[split].push_back(join);
    for (Value* operand : old->operands) std::erase(uses_[operand], old);
    graph_.body.Erase(old);
  }

  // On the mesh of `layout`, if there is one.
  Value* WithLayout(Value* value, const ir::Layout* layout) {
    if (layout == nullptr) return value;
    const std::vector<mesh::ParallelType> serial(value->type->axes.size(), mesh::ParallelType::kSerial);
    value->layout = graph_.New(ir::Layout{.mesh = layout->mesh, .parallel = graph_.Copy(serial)});
    return value;
  }

  static bool AreOnOneMesh(const Value& a, const Value& b) {
    return a.layout != nullptr && b.layout != nullptr ? a.layout->mesh == b.layout->mesh : a.layout == b.layout;
  }

  // The operand of `op` whose reshape goes behind it; null: none.
  Value* Sinkable(const Op& op) {
    const bool may_be = std::ranges::any_of(op.operands, [](const Value* operand) {
      return operand->def != nullptr && fusion::CodeOf(*operand->def) == FusionOp::kReshape;
    });
    if (!may_be || !KeepsPlaces(op)) return nullptr;
    for (Value* operand : op.operands) {
      if (operand->def == nullptr || returned_.contains(operand) || JoinedAxes(*operand->def).empty()) continue;
      // Readers that have gone leave others with operands of the same types: the first one's answer is that of all.
      const auto [at, is_new] = takes_source_.try_emplace(operand, false);
      if (is_new) at->second = TakeItsSource(*operand);
      if (at->second) return operand;
    }
    return nullptr;
  }

  // Whether all that read a reshape may read what it reshapes: one that needs it as it is would have it stay.
  bool TakeItsSource(const Value& reshaped) const {
    const Value* const source = reshaped.def->operands[0];
    const std::vector<Axis> axes = ir::ValueAxes(*reshaped.type);
    const auto is_broadcast = [](const Axis& axis) { return axis.kind == ir::AxisKind::kBroadcast; };
    if (!reduced_.Has(source) || std::ranges::any_of(axes, is_broadcast)) return false;
    return std::ranges::all_of(ReadersOf(&reshaped), [&](const Op* reader) {
      return KeepsPlaces(*reader) && AreOnOneMesh(*source, *reader->results[0]) &&
             std::ranges::all_of(reader->operands, [&](const Value* other) { return FitsInto(*other, axes); });
    });
  }

  static bool FitsInto(const Value& value, const std::vector<Axis>& axes) {
    if (!IsTensor(value)) return true;
    const std::vector<Axis> own = ir::ValueAxes(*value.type);
    for (size_t i = 0; i < own.size(); ++i) {
      if (IsStretched(own[i])) return false;
      if (own[i].kind != ir::AxisKind::kBroadcast && own[i].extent != axes[i].extent) return false;
    }
    return true;
  }

  Status Sink(Op* op, Value* reshaped) {
    const std::vector<size_t> counts = JoinedAxes(*reshaped->def);
    Value* const source = reshaped->def->operands[0];
    const std::vector<Axis> axes = ir::ValueAxes(*source->type);
    ir::Builder builder(graph_, graph_.body, op);
    std::unordered_map<const Value*, Value*> values;
    for (Value* operand : op->operands) {
      if (values.contains(operand)) continue;
      values[operand] = operand == reshaped ? source : SplitAs(builder, operand, counts, axes, source->layout);
    }
    HIR_ASSIGN(Op * copy, ir::CloneOp(*op, builder, values));
    copy->results[0]->layout = source->layout;
    reduced_.Visit(*copy);
    std::vector<const ir::Expr*> shape;
    for (const Axis& axis : ir::ValueAxes(*op->results[0]->type)) shape.push_back(axis.extent);
    Value* const result = Reshaped(builder, copy->results[0], shape, op->results[0]->layout);
    reduced_.Visit(*result->def);
    for (Op* reader : ReadersOf(op->results[0])) {
      std::ranges::replace(reader->operands, op->results[0], result);
      uses_[result].push_back(reader);
    }
    for (ir::Output& output : graph_.outputs) {
      if (output.value != op->results[0]) continue;
      output.value = result;
      returned_.insert(result);
    }
    std::vector<Value*> operands;  // Each once.
    for (Value* operand : op->operands) {
      if (std::ranges::find(operands, operand) == operands.end()) operands.push_back(operand);
    }
    for (Value* operand : operands) std::erase(uses_[operand], op);
    for (Value* operand : copy->operands) uses_[operand].push_back(copy);
    uses_[copy->results[0]].push_back(result->def);
    graph_.body.Erase(op);
    for (Value* operand : operands) {
      Op* const reshape = operand->def;
      if (reshape == nullptr || JoinedAxes(*reshape).empty() || !uses_[operand].empty() || returned_.contains(operand))
        continue;
      std::erase(uses_[reshape->operands[0]], reshape);
      graph_.body.Erase(reshape);
    }
    return {};
  }

  // `operand` with each of its axes split into so many, which are `axes`; itself, where it is no tensor.
  Value* SplitAs(ir::Builder& builder, Value* operand, const std::vector<size_t>& counts, const std::vector<Axis>& axes,
                 const ir::Layout* layout) {
    if (!IsTensor(*operand)) return operand;
    std::vector<const ir::Expr*> shape;
    size_t at = 0;
    const std::vector<Axis> own = ir::ValueAxes(*operand->type);
    for (size_t i = 0; i < own.size(); ++i) {
      for (size_t k = 0; k < counts[i]; ++k, ++at) {
        const bool is_one = own[i].kind == ir::AxisKind::kBroadcast;
        shape.push_back(is_one ? graph_.exprs().Const(1) : axes[at].extent);
      }
    }
    return IsJoined(*operand, shape, layout) ? operand->def->operands[0] : Split(builder, operand, shape, layout);
  }

  // Whether `value` is a tensor of `shape`, on the mesh of `layout`, with neighbouring axes joined.
  static bool IsJoined(const Value& value, const std::vector<const ir::Expr*>& shape, const ir::Layout* layout) {
    if (value.def == nullptr || JoinedAxes(*value.def).empty() || value.def->operands[0]->layout != layout)
      return false;
    return std::ranges::equal(ir::ValueAxes(*value.def->operands[0]->type), shape, {}, &Axis::extent);
  }

  static Value* Reshaped(ir::Builder& builder, Value* value, const std::vector<const ir::Expr*>& shape,
                         const ir::Layout* layout) {
    Value* const reshaped = builder.Make("reshape", {value}, {{"shape", std::span<const ir::Expr* const>(shape)}});
    reshaped->layout = layout;
    return reshaped;
  }

  // The same for all that read one value so.
  Value* Split(ir::Builder& builder, Value* value, const std::vector<const ir::Expr*>& shape,
               const ir::Layout* layout) {
    for (const auto& [known, split] : split_[value]) {
      if (known == shape && split->layout == layout) return split;
    }
    Value* const split = Reshaped(builder, value, shape, layout);
    split_[value].emplace_back(shape, split);
    uses_[value].push_back(split->def);
    return split;
  }

  const std::vector<Op*>& ReadersOf(const Value* value) const {
    static const std::vector<Op*> kNone;
    const auto found = uses_.find(value);
    return found == uses_.end() ? kNone : found->second;
  }

  ir::Graph& graph_;
  // Lookups only, as all of these.
  std::unordered_map<const Value*, std::vector<Op*>> uses_;
  std::unordered_map<const Value*, std::vector<std::pair<std::vector<const ir::Expr*>, Value*>>> split_;
  std::unordered_set<const Value*> returned_;
  std::unordered_map<const Value*, bool> takes_source_;
  std::unordered_map<const Value*, std::ptrdiff_t> others_;  // Readers for which it has to be as it is, or split.
  std::optional<std::unordered_set<const Value*>> leads_;    // To a reduction; made with the first question.
  Reduced reduced_;
};

}  // namespace

Status SinkReshapes(ir::Graph& graph) { return Sinking(graph).Run(); }

LateReshapes::LateReshapes(const ir::Graph& graph) {
  Reduced reduced;
  const std::vector<std::vector<Op*>> uses = ir::UsesOf(graph);
  std::unordered_set<const Value*> returned;
  for (const ir::Output& output : graph.outputs) returned.insert(output.value);
  for (const Op* op = graph.body.first; op != nullptr; op = op->next) {
    reduced.Visit(*op);
    if (JoinedAxes(*op).empty() || !reduced.Has(op->operands[0]) || returned.contains(op->operands[0])) continue;
    if (uses[static_cast<size_t>(op->operands[0]->id)].size() != 1) continue;
    const bool is_computed_with =
        std::ranges::any_of(uses[static_cast<size_t>(op->results[0]->id)],
                            [](const Op* reader) { return reader->info->effects == ir::kPure; });
    if (!is_computed_with) late_.insert(op);
  }
}

}  // namespace hir::segment
