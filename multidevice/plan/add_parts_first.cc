// Less to communicate: what ranks add up is first made as small as it gets on each of them.
//
// Before: %a = allreduce(%p) {reduce=sum}   %b = allreduce(%q) {reduce=sum}   %c = add(%a, %b), which alone reads both
// After:  %c.partial = add(%p, %q)   %c = allreduce(%c.partial) {reduce=sum}
//
// Before: %a = reduce_scatter(%p) {reduce=sum}   %c = sum(%a) {axes=[0]}, which alone reads it; or of an allreduce
// After:  %c.partial = sum(%p) {axes=[1]}   %c = reduce_scatter(%c.partial) {reduce=sum}
//
// The gradient of an input of several products that are split by columns, queries, keys and values say, is a sum of the
// first kind: a third of the bytes. Those of keys that heads share are of the second. Right because addition is
// associative, up to rounding, which is the same on every rank, as before. What is made of it is found again: sums of
// three and more become one.
#include "multidevice/plan/add_parts_first.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/fusion/passes/stream_axes.h"
#include "csrc/ir/attr.h"
#include "csrc/ir/builder.h"
#include "multidevice/plan/emit_steps.h"

namespace hir::plan {
namespace {

using fusion::FusionOp;

// Whether a stream loop makes it: then it stays as the user said.
bool IsInLoop(const ir::Value& value) { return !fusion::StreamAxesOf(value)->empty(); }

bool IsSumOverRanks(const ir::Value& value) {
  return value.def != nullptr && fusion::CodeOf(*value.def) == FusionOp::kAllreduce &&
         value.def->Name("reduce") == "sum";
}

// Whether both have one shape and type, so that the addition expands and converts nothing.
bool AreAlike(const ir::Value& a, const ir::Value& b) {
  const auto stored = [](const ir::Value& value) {
    std::string text = base::Cat(DTypeName(value.type->dtype));
    for (const ir::Axis& axis : ir::ValueAxes(*value.type))
      base::Append(text, " ", axis.kind == ir::AxisKind::kBroadcast ? "b:" : "", ir::ToString(axis.extent));
    return text;
  };
  return stored(a) == stored(b);
}

class Sums {
 public:
  explicit Sums(LocalProgram& program) : program_(program), graph_(*program.graph) {
    readers_.resize(graph_.values().size(), 0);
    ir::ForEachOp(graph_.body, [&](const ir::Op* op) {
      for (const ir::Value* operand : op->operands) ++readers_[static_cast<size_t>(operand->id)];
    });
    for (const ir::Output& output : graph_.outputs) ++readers_[static_cast<size_t>(output.value->id)];
  }

  void Run() {
    fusion::Replacements replaced;
    for (ir::Op* op = graph_.body.first; op != nullptr;) {
      ir::Op* const next = op->next;
      replaced.Apply(*op);
      ir::Value* sum = Merged(*op);
      if (sum == nullptr) sum = SummedFirst(*op);
      if (sum != nullptr) {
        const ir::Value* const old = op->results[0];
        readers_.resize(graph_.values().size(), 0);
        readers_[static_cast<size_t>(sum->id)] = readers_[static_cast<size_t>(old->id)];
        replaced.Replace(old, sum);
        for (Boundary& output : program_.outputs) output.local = output.local == old ? sum : output.local;
        graph_.body.Erase(op);
      }
      op = next;
    }
    replaced.ApplyToOutputs(graph_);
    InProgramOrder();
  }

 private:
  // The value that stands for the result of `op`, in front of it; null: it is no such addition.
  ir::Value* Merged(ir::Op& op) {
    if (fusion::CodeOf(op) != FusionOp::kAdd) return nullptr;
    ir::Value* const a = op.operands[0];
    ir::Value* const b = op.operands[1];
    if (a == b || !IsSumOverRanks(*a) || !IsSumOverRanks(*b) || !ir::EqualAttrs(*a->def, *b->def)) return nullptr;
    const auto is_read_here_alone = [&](const ir::Value* value) {
      return readers_[static_cast<size_t>(value->id)] == 1;
    };
    if (!is_read_here_alone(a) || !is_read_here_alone(b)) return nullptr;
    if (IsInLoop(*a) || IsInLoop(*b) || IsInLoop(*op.results[0])) return nullptr;
    ir::Value* const parts[] = {a->def->operands[0], b->def->operands[0]};
    if (!AreAlike(*parts[0], *parts[1]) || !AreAlike(*a, *b) || !AreAlike(*a, *op.results[0])) return nullptr;
    ir::Builder builder(graph_, graph_.body, &op);
    ir::Value* const result = op.results[0];
    ir::Value* const partial = builder.Make("add", {parts[0], parts[1]}, {}, base::Cat(result->name, ".partial"));
    partial->layout = result->layout;
    std::erase_if(program_.communications, [&](const Communication& each) { return each.op == a->def; });
    graph_.body.Erase(a->def);
    return InPlaceOf(builder, *b->def, partial, *result);
  }

  // The same where `op` adds up along axes what the ranks have added up.
  ir::Value* SummedFirst(ir::Op& op) {
    if (fusion::CodeOf(op) != FusionOp::kSum) return nullptr;
    ir::Value* const a = op.operands[0];
    const bool scattered = a->def != nullptr && fusion::CodeOf(*a->def) == FusionOp::kReduceScatter;
    if (!scattered && !IsSumOverRanks(*a)) return nullptr;
    if (a->def->Name("reduce") != "sum" || readers_[static_cast<size_t>(a->id)] != 1) return nullptr;
    ir::Value* const result = op.results[0];
    ir::Value* const part = a->def->operands[0];
    if (a->type->dtype != result->type->dtype || IsInLoop(*a) || IsInLoop(*result)) return nullptr;
    std::vector<int64_t> axes(op.Ints("axes").begin(), op.Ints("axes").end());
    if (axes.empty()) {  // All of them, but for that of the ranks' chunks.
      for (size_t i = 0; i < ir::ValueAxes(*a->type).size(); ++i) axes.push_back(static_cast<int64_t>(i));
    }
    for (int64_t& axis : axes) axis += scattered ? 1 : 0;
    ir::Builder builder(graph_, graph_.body, &op);
    ir::Value* const partial = builder.Make("sum", {part},
                                            {{"axes", std::span<const int64_t>(axes)},
                                             {"keepdim", op.Bool("keepdim")},
                                             {"dtype", DTypeName(part->type->dtype)}},
                                            base::Cat(result->name, ".partial"));
    PlaceOn(graph_, *partial, a->layout->mesh);
    return InPlaceOf(builder, *a->def, partial, *result);
  }

  // The communication `old`, but of `partial`, for `result`.
  ir::Value* InPlaceOf(ir::Builder& builder, ir::Op& old, ir::Value* partial, ir::Value& result) {
    ir::Value* const sum = builder.Make(old.info->name, {partial},
                                        {{"mesh", old.MeshOf("mesh")}, {"dim", old.Name("dim")}, {"reduce", "sum"}},
                                        base::Cat(result.name, ".sum"));
    PlaceOn(graph_, *sum, old.results[0]->layout->mesh);
    graph_.TakeName(*sum, result);
    for (Communication& each : program_.communications) {
      if (each.op != &old) continue;
      each.op = sum->def;
      each.tensor = std::string(sum->name);
      each.bytes = StoredBytes(graph_.exprs(), *partial);
    }
    graph_.body.Erase(&old);
    return sum;
  }

  void InProgramOrder() {
    std::unordered_map<const ir::Op*, size_t> places;  // Lookups only.
    ir::ForEachOp(graph_.body, [&](const ir::Op* op) { places.emplace(op, places.size()); });
    std::ranges::stable_sort(program_.communications, {},
                             [&](const Communication& each) { return places.at(each.op); });
  }

  LocalProgram& program_;
  ir::Graph& graph_;
  std::vector<int> readers_;  // By value.
};

}  // namespace

void AddPartsFirst(LocalProgram& program) { Sums(program).Run(); }

}  // namespace hir::plan
