#include "csrc/fusion/interpret/interpret.h"

#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/interpret/lanes.h"
#include "csrc/ir/print.h"

namespace hir::fusion {
namespace {

Result<Array> RunOp(const ir::Op& op, const SymbolValues& symbols, const ArrayOf& array_of) {
  if (IsPlanned(CodeOf(op))) {
    return Unimplemented(base::Cat(op.info->name, ": the interpreter runs programs of one rank"));
  }
  const ir::Type& type = *op.results[0]->type;
  HIR_ASSIGN(std::vector<int64_t> shape, ShapeOf(type, symbols));
  ElementBuilder builder;
  std::vector<const Element*> index;
  for (size_t i = 0; i < shape.size(); ++i) index.push_back(builder.Index(static_cast<int>(i)));
  Array result(type.dtype, std::move(shape));
  const Element* element = Define(builder, op, 0, index);
  if (Status s = Evaluate(element, symbols, array_of, result); !s.ok()) return s.WithContext(ir::Print(op));
  return result;
}

}  // namespace

Result<std::vector<HostTensor>> Interpret(const ir::Graph& graph, std::span<const HostTensor> inputs,
                                          SymbolValues known) {
  HIR_ASSIGN(const SymbolValues symbols, BindSymbols(graph, inputs, std::move(known)));
  std::unordered_map<const ir::Value*, Array> arrays;  // Lookups only.
  for (size_t i = 0; i < inputs.size(); ++i) arrays.emplace(graph.params[i], inputs[i]);
  std::vector<int> uses(graph.values().size());
  const auto count = [&](const ir::Value* value, int more) { return uses[static_cast<size_t>(value->id)] += more; };
  ir::ForEachOp(graph.body, [&](const ir::Op* op) {
    for (const ir::Value* operand : op->operands) count(operand, 1);
  });
  for (const ir::Output& output : graph.outputs) count(output.value, 1);
  const ArrayOf array_of = [&](const ir::Value* value) -> const Array& { return arrays.at(value); };
  for (const ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    if (op->results[0]->type->kind == ir::TypeKind::kScalar) continue;  // Inlined where it is used.
    HIR_ASSIGN(Array result, RunOp(*op, symbols, array_of));
    arrays.emplace(op->results[0], std::move(result));
    for (const ir::Value* operand : op->operands) {
      const bool last = count(operand, -1) == 0;
      if (last && operand->type->kind == ir::TypeKind::kTensor) arrays.erase(operand);
    }
  }
  std::vector<HostTensor> outputs;
  for (const ir::Output& output : graph.outputs) outputs.push_back(arrays.at(output.value).ToTensor());
  return outputs;
}

Result<HostTensor> InterpretOp(const ir::Op& op, const SymbolValues& symbols,
                               const std::function<const HostTensor&(const ir::Value*)>& tensor_of) {
  std::unordered_map<const ir::Value*, Array> arrays;  // Lookups only.
  HIR_ASSIGN(const Array result, RunOp(op, symbols, [&](const ir::Value* value) -> const Array& {
               return arrays.try_emplace(value, tensor_of(value)).first->second;
             }));
  return result.ToTensor();
}

}  // namespace hir::fusion
