// Gives every tensor without a mesh a layout, so that as little as possible has to be communicated.
//
// Before: fusion @f(%x: f32[i0, 8] {mesh=@m, outer_split(0, 2), parallelize(0, mesh_x)}, %b: f32[8]) {
//           %y: f32[i0, 8] = add(%x, %b)
//           %s: f32[i0, r:8] = sum(%y) {axes=[1], keepdim=false, dtype=null}
// After:    %b {mesh=@m}, %y and %s {mesh=@m, outer_split(0, 2), parallelize(0, mesh_x)}
//
// In this order, each step looking only at what is still null:
//   0. an output that takes over an input's memory lies as that input does, and the input as the output, whichever
//      of them is known; again after each of the others;
//   1. forwards: a result follows its operands (AxisMap::Forward), a gradient first of all the operand that it is of;
//      a reduced axis that is split makes a partial result;
//   2. backwards: an operand follows the result of the op that reads it, the most divided one first; inputs
//      are replicated over that mesh;
//   3. forwards again, for what only inputs of step 2 lead to;
//   4. the rest is replicated over the program's first mesh; without one, over device 0.
// What the user set never changes. Any placement of the others is right: decompose_reshardings inserts what they need.
#include "csrc/fusion/passes/propagate_shardings.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/fusion/attention.h"
#include "csrc/fusion/passes/axis_map.h"
#include "csrc/fusion/passes/placement.h"
#include "csrc/fusion/passes/ready.h"
#include "csrc/ir/builder.h"

namespace hir::fusion {
namespace {

class Propagation {
 public:
  explicit Propagation(ir::Graph& graph) : graph_(graph), placements_(graph.values().size()) {}

  Status Run() {
    HIR_TRY(ReadLayouts());
    TieAliases();
    Forwards();
    TieAliases();
    Backwards();
    TieAliases();
    Forwards();
    TieAliases();
    if (const ir::Mesh* mesh = AnyMesh(); mesh != nullptr) {
      for (const ir::Value* param : graph_.params) {
        if (IsTensor(*param) && !Of(*param)) Of(*param) = Replicated(mesh, *param->type);
      }
      TieAliases();
      Forwards(mesh);
    }
    for (ir::Value* param : graph_.params) WriteLayout(*param);
    for (const ir::Op* op = graph_.body.first; op != nullptr; op = op->next) WriteLayout(*op->results[0]);
    return {};
  }

 private:
  std::optional<Placement>& Of(const ir::Value& value) { return placements_[static_cast<size_t>(value.id)]; }

  Status ReadLayouts() {
    const auto read = [&](const ir::Value& value) -> Status {
      if (!IsTensor(value) || value.layout == nullptr) return {};
      HIR_TRY(StreamAxesOf(value).status());
      if (value.layout->mesh == nullptr) return {};
      HIR_ASSIGN(Of(value), PlacementOf(value));
      return {};
    };
    for (const ir::Value* param : graph_.params) HIR_TRY(read(*param));
    for (const ir::Op* op = graph_.body.first; op != nullptr; op = op->next) {
      HIR_TRY(ir::WithLocation(read(*op->results[0]), op->location));
    }
    return {};
  }

  void TieAliases() {
    for (const ir::Output& output : graph_.outputs) {
      if (output.alias == nullptr) continue;
      TieTo(*output.alias, *output.value);
      TieTo(*output.value, *output.alias);
    }
  }

  // `value` lies as `other` does, when only that is known, and it has as many axes: it takes over memory, whatever that
  // was. Partial results are nobody's memory.
  void TieTo(const ir::Value& other, const ir::Value& value) {
    if (Of(value) || !Of(other) || ir::ValueAxes(*value.type).size() != ir::ValueAxes(*other.type).size()) return;
    Of(value) = FromValueTypes(*value.type, Of(other)->mesh, ValueTypes(*other.type, *Of(other)));
  }

  // A result whose operands have no placement either stays null, or, with `otherwise`, is replicated over that mesh.
  void Forwards(const ir::Mesh* otherwise = nullptr) {
    for (const ir::Op* op = graph_.body.first; op != nullptr; op = op->next) {
      const ir::Value& result = *op->results[0];
      if (!IsTensor(result) || Of(result)) continue;
      std::vector<std::optional<Placement>> operands;
      for (const ir::Value* operand : op->operands) operands.push_back(Of(*operand));
      Of(result) = AxisMap(*op).Forward(operands, OperandOfGradient(*op));
      if (!Of(result) && otherwise != nullptr) Of(result) = Replicated(otherwise, *result.type);
    }
  }

  void Backwards() {
    const std::vector<std::vector<ir::Op*>> uses = ir::UsesOf(graph_);
    std::vector<const ir::Value*> values;
    for (const ir::Op* op = graph_.body.last; op != nullptr; op = op->prev) values.push_back(op->results[0]);
    for (const ir::Value* value : values) {
      if (IsTensor(*value) && !Of(*value)) Of(*value) = FromUses(*value, uses[static_cast<size_t>(value->id)]);
    }
    TieAliases();
    for (const ir::Value* param : graph_.params) {
      if (!IsTensor(*param) || Of(*param)) continue;
      const std::vector<ir::Op*>& readers = uses[static_cast<size_t>(param->id)];
      const auto reader =
          std::ranges::find_if(readers, [&](const ir::Op* op) { return Of(*op->results[0]).has_value(); });
      if (reader != readers.end()) Of(*param) = Replicated(Of(*(*reader)->results[0])->mesh, *param->type);
    }
  }

  // The most divided placement that an op reading `value` asks for.
  std::optional<Placement> FromUses(const ir::Value& value, const std::vector<ir::Op*>& readers) {
    std::optional<Placement> best;
    for (const ir::Op* op : readers) {
      const std::optional<Placement>& result = Of(*op->results[0]);
      if (!result) continue;
      const AxisMap map(*op);
      for (const int i : map.tensors()) {
        if (op->operands[static_cast<size_t>(i)] != &value) continue;
        Placement wanted = FromValueTypes(*value.type, result->mesh, map.Backward(i, *result));
        if (!best || Shares(wanted) > Shares(*best)) best = std::move(wanted);
      }
    }
    return best;
  }

  // The program's first mesh; null where no tensor needs one.
  const ir::Mesh* AnyMesh() {
    const auto needs = [&](const ir::Value& value) { return IsTensor(value) && !Of(value); };
    bool needed = std::ranges::any_of(graph_.params, [&](const ir::Value* v) { return needs(*v); });
    for (const ir::Op* op = graph_.body.first; op != nullptr; op = op->next) needed |= needs(*op->results[0]);
    if (!needed) return nullptr;
    if (!graph_.meshes().empty()) return &graph_.meshes().front();
    return graph_.AddMesh(*mesh::DeviceMesh::Make({1}, {0}), "m");
  }

  void WriteLayout(ir::Value& value) {
    if (!IsTensor(value) || (value.layout != nullptr && value.layout->mesh != nullptr)) return;
    // How a value is computed changes nothing about where it lies.
    value.layout = LayoutFor(graph_, *value.type, *Of(value), StreamsWithin(*Of(value), *StreamAxesOf(value)));
  }

  ir::Graph& graph_;
  std::vector<std::optional<Placement>> placements_;  // By value id; the user's and the new ones.
};

}  // namespace

Status PropagateShardings(ir::Graph& graph) {
  HIR_TRY(CheckHasAxes(graph));
  return Propagation(graph).Run();
}

}  // namespace hir::fusion
