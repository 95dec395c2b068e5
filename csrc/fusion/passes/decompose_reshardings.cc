// Splits each op that reshards into an op that every rank computes on its own, and `set` ops that reshard.
//
// Before: %y: f32[i0, 4, r:8] {mesh=@m} = linear(%x, %w, %b)              // %x and %w split along the contracted axis
// After:  %y.partial: f32[i0, 4, r:8] {mesh=@m, outer_split(2, 2), parallelize(2, mesh_x)} = linear(%x, %w)
//         %y.sum: f32[i0, 4] {mesh=@m} = set(%y.partial)                  // an all-reduce
//         %y: f32[i0, 4] {mesh=@m} = add(%y.sum, %b)                      // not once per rank
//
// choose_execution.h says how an op is computed; a set goes before each operand that lies otherwise (one for all
// readers that want the same), and one behind the op when its result should lie otherwise. Partial results never reach
// another op: the set that reduces them follows at once. A set that the user wrote reduces them itself when it is their
// only reader.
#include "csrc/fusion/passes/decompose_reshardings.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/choose_execution.h"
#include "csrc/fusion/passes/ready.h"
#include "csrc/ir/builder.h"

namespace hir::fusion {
namespace {

using base::Cat;

Result<std::vector<Placement>> OperandPlacements(const ir::Op& op) {
  std::vector<Placement> placements(op.operands.size());
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!IsTensor(*op.operands[i])) continue;
    HIR_ASSIGN(placements[i], PlacementOf(*op.operands[i]));
  }
  return placements;
}

bool KeepsAxes(const ir::Op& op) { return IsReduction(CodeOf(op)) && op.Bool("keepdim"); }
bool HasBias(const ir::Op& op) { return CodeOf(op) == FusionOp::kLinear && op.operands.size() == 3; }

class Decomposition {
 public:
  explicit Decomposition(ir::Graph& graph) : graph_(graph) {}

  Status Run() {
    uses_ = ir::UsesOf(graph_);
    for (ir::Op* op = graph_.body.first; op != nullptr;) {
      for (ir::Value*& operand : op->operands) operand = Current(operand);
      if (!IsTensor(*op->results[0]) || CodeOf(*op) == FusionOp::kSet) {
        op = op->next;
        continue;
      }
      HIR_ASSIGN(ir::Op* const next, Decompose(op));
      op = next;
    }
    for (ir::Output& output : graph_.outputs) output.value = Current(output.value);
    return {};
  }

 private:
  // Makes `op` one that does not reshard. Returns where to go on: after it, or at the op that took its place.
  Result<ir::Op*> Decompose(ir::Op* op) {
    ir::Value* result = op->results[0];
    HIR_ASSIGN(const Placement wanted, PlacementOf(*result));
    HIR_ASSIGN(const std::vector<StreamAxis> streams, StreamAxesOf(*result));
    HIR_ASSIGN(const std::vector<Placement> operands, OperandPlacements(*op));
    const AxisMap map(*op);
    const Placement execution = ChooseExecution(map, operands, WithoutPartial(*result->type, wanted));
    if (IsPartial(map, execution) && KeepsAxes(*op)) return WithoutKeepdim(op, wanted);
    const bool in_chunks = std::ranges::any_of(
        streams, [&](const StreamAxis& s) { return map.IsReduced(static_cast<size_t>(s.axes[0])); });
    if ((IsPartial(map, execution) || in_chunks) && HasBias(*op)) return WithoutBias(op, wanted);
    std::set<const ir::Value*> made;  // Lookups only.
    for (const int i : map.tensors()) {
      ir::Value*& operand = op->operands[static_cast<size_t>(i)];
      const Placement required = FromValueTypes(*operand->type, execution.mesh, map.Required(i, execution));
      if (required != operands[static_cast<size_t>(i)]) made.insert(operand = SetBefore(op, operand, required));
    }
    CarryStreamsBack(graph_, *result, [&](const ir::Value& value) { return made.contains(&value); });
    if (execution == wanted && !HasPartial(*result->type, wanted)) return op->next;
    std::vector<StreamAxis> executed = StreamsWithin(execution, streams);
    std::erase_if(executed, [&](const StreamAxis& stream) {  // Turns are whole of what the result has on a rank.
      return stream.kind == StreamAxis::Kind::kDealt && !AreCutAlike(wanted, stream.axes, execution, stream.axes);
    });
    result->layout = LayoutFor(graph_, *result->type, execution, executed);
    if (ReducedBySetOfTheUser(*result)) return op->next;
    return SetBehind(op, WithoutPartial(*result->type, wanted), streams)->next;
  }

  static bool IsPartial(const AxisMap& map, const Placement& execution) {
    for (size_t i = 0; i < execution.axes.size(); ++i) {
      if (map.IsReduced(i) && !execution.axes[i].empty()) return true;
    }
    return false;
  }

  bool ReducedBySetOfTheUser(const ir::Value& value) const {
    if (static_cast<size_t>(value.id) >= uses_.size()) return false;  // Made here.
    const std::vector<ir::Op*>& readers = uses_[static_cast<size_t>(value.id)];
    const bool returned = std::ranges::any_of(graph_.outputs, [&](const ir::Output& o) { return o.value == &value; });
    return !returned && readers.size() == 1 && CodeOf(*readers[0]) == FusionOp::kSet;
  }

  // `value`, copied to lie as `placement` says, before `op`.
  ir::Value* SetBefore(ir::Op* op, ir::Value* value, const Placement& placement) {
    for (const auto& [known, set] : copies_[value->id]) {
      if (known == placement) return set;
    }
    ir::Builder builder(graph_, graph_.body, op);
    ir::Value* set = builder.Make("set", {value}, {}, Cat(value->name, ".copy"));
    set->layout = LayoutOfSet(*set, *value, placement);
    set->def->location = op->location;
    copies_[value->id].push_back({placement, set});
    return set;
  }

  // A set behind `op` that takes over name, layout and readers of its result.
  ir::Op* SetBehind(ir::Op* op, const Placement& placement, const std::vector<StreamAxis>& streams) {
    ir::Value* result = op->results[0];
    ir::Builder builder(graph_, graph_.body, op->next);
    ir::Value* set = builder.Make("set", {result});
    replaced_.emplace(result, set);
    Finish(*result, *set, placement, streams, op->location);
    return set->def;
  }

  // `placement` is of `value`; its set has no reduction axes of its own. `streams`: those of the set.
  const ir::Layout* LayoutOfSet(const ir::Value& set, const ir::Value& value, const Placement& placement,
                                const std::vector<StreamAxis>& streams = {}) {
    return LayoutFor(graph_, *set.type, FromValueTypes(*set.type, placement.mesh, ValueTypes(*value.type, placement)),
                     streams);
  }

  // `now` stands in for `before`, whose name becomes "y.partial" or "y.local".
  void Finish(ir::Value& before, ir::Value& now, const Placement& placement, const std::vector<StreamAxis>& streams,
              std::string_view location) {
    const std::string name(before.name);
    const bool partial =
        std::ranges::any_of(before.type->axes, [](const ir::Axis& a) { return a.kind == ir::AxisKind::kReduction; });
    graph_.Rename(before, Cat(name, partial ? ".partial" : ".local"));
    graph_.Rename(now, name);
    now.layout = LayoutOfSet(now, before, placement, StreamsOfElements(before, streams));
    now.def->location = location;
  }

  // Puts `core`, `rest` in the place of `op`, where rest computes from core's result what op did. Both stand before op.
  ir::Op* Replace(ir::Op* op, ir::Value* core, ir::Value* rest, const Placement& core_placement,
                  std::string_view suffix) {
    core->layout = LayoutFor(graph_, *core->type, core_placement, *StreamAxesOf(*op->results[0]));
    rest->layout = op->results[0]->layout;
    core->def->location = rest->def->location = op->location;
    replaced_.emplace(op->results[0], rest);
    const std::string name(op->results[0]->name);
    graph_.body.Erase(op);
    graph_.Rename(*rest, name);
    graph_.Rename(*core, Cat(name, suffix));
    return core->def;
  }

  // sum(x) {keepdim=true} as broadcast(sum(x) {keepdim=false}): a partial result needs its reduction axis.
  Result<ir::Op*> WithoutKeepdim(ir::Op* op, const Placement& wanted) {
    ir::Builder builder(graph_, graph_.body, op);
    ir::Value* core = builder.Make(op->info->name, {op->operands[0]},
                                   {{"axes", op->Ints("axes")}, {"keepdim", false}, {"dtype", op->Name("dtype")}});
    std::vector<int64_t> flags(op->results[0]->type->axes.size(), 0);
    for (const int64_t axis : op->Ints("axes")) flags[static_cast<size_t>(axis)] = 1;
    ir::Value* rest = builder.Make("broadcast", {core}, {{"is_broadcast_dim", std::span<const int64_t>(flags)}});
    return Replace(op, core, rest, wanted, ".reduced");
  }

  // linear(x, w, b) as add(linear(x, w), b): every rank's partial result would hold the bias.
  Result<ir::Op*> WithoutBias(ir::Op* op, const Placement& wanted) {
    ir::Builder builder(graph_, graph_.body, op);
    ir::Value* core =
        builder.Make("linear", {op->operands[0], op->operands[1]}, {{"precision", op->Name("precision")}});
    ir::Value* rest = builder.Make("add", {core, op->operands[2]});
    const Placement core_placement = WithoutPartial(*core->type, wanted);
    ir::Op* next = Replace(op, core, rest, core_placement, ".sum");
    // The sum has no reduction axis of its own.
    rest->layout = LayoutOfSet(*rest, *core, core_placement, StreamsOfElements(*core, *StreamAxesOf(*core)));
    return next;
  }

  // What later ops read in the place of `value`.
  ir::Value* Current(ir::Value* value) const {
    for (auto found = replaced_.find(value); found != replaced_.end(); found = replaced_.find(value)) {
      value = found->second;
    }
    return value;
  }

  ir::Graph& graph_;
  std::vector<std::vector<ir::Op*>> uses_;                               // By value id; as the user wrote them.
  std::unordered_map<const ir::Value*, ir::Value*> replaced_;            // Lookups only.
  std::map<int, std::vector<std::pair<Placement, ir::Value*>>> copies_;  // By value id.
};

}  // namespace

bool IsResharding(const ir::Op& op) {
  if (!IsTensor(*op.results[0])) return false;
  const Result<Placement> wanted = PlacementOf(*op.results[0]);
  const Result<std::vector<Placement>> operands = OperandPlacements(op);
  HIR_CHECK(wanted.ok() && operands.ok());
  const AxisMap map(op);
  for (size_t i = 0; i < (*wanted).axes.size(); ++i) {
    if (!map.Fits(i, *(*wanted).mesh, (*wanted).axes[i])) return true;
  }
  return std::ranges::any_of(map.tensors(), [&](int i) {
    const auto k = static_cast<size_t>(i);
    return FromValueTypes(*op.operands[k]->type, (*wanted).mesh, map.Required(i, *wanted)) != (*operands)[k];
  });
}

std::string_view ReduceName(const ir::Op& op) { return IsReduction(CodeOf(op)) ? op.info->name : "sum"; }

Status DecomposeReshardings(ir::Graph& graph) {
  HIR_TRY(CheckHasLayouts(graph));
  return Decomposition(graph).Run();
}

}  // namespace hir::fusion
