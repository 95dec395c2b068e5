// From a host program to Code: parameters, blocks, and which function compiles which op.
#include "host_ir/eval/compile.h"

#include "csrc/base/text.h"
#include "host_ir/shapes.h"

namespace hir::host {

Result<Code> Compile(const HostProgram& program, int64_t rank) { return Compiler(program, rank).Run(); }

Result<Code> Compiler::Run() {
  HIR_ASSIGN(code_.num_streams, CountStreams(graph_));
  for (std::string_view symbol : program_.symbols()) code_.symbols.push_back(code_.exprs.AddSymbol(symbol, 0));
  for (const auto& [symbol, value] : ClassOfOne(graph_, rank_).symbols) {
    code_.rank_symbols.emplace_back(code_.exprs.AddSymbol(symbol, 0), value);
  }
  HIR_TRY(CompileParams());
  HIR_TRY(CompileBlock(graph_.body));
  return std::move(code_);
}

Status Compiler::CompileParams() {
  for (const ir::Value* param : graph_.params) {
    TensorCode& tensor = code_.params.emplace_back();
    tensor.buffer = -1;
    if (param->type->kind != ir::TypeKind::kTensor) continue;
    buffers_.emplace(param, code_.num_buffers++);
    regions_.emplace(param, WholeOf(pool_, *param));
    HIR_ASSIGN(tensor, Tensor(*param));
  }
  code_.param_used.assign(graph_.params.size(), false);
  code_.param_written.assign(graph_.params.size(), false);
  code_.param_replaced.assign(graph_.params.size(), -1);
  for (const ir::Output& output : graph_.outputs) {
    if (output.alias != nullptr) code_.param_replaced[static_cast<size_t>(output.value->index)] = output.alias->index;
  }
  return {};
}

Status Compiler::CompileBlock(const ir::Block& block) {
  for (const ir::Op* op = block.first; op != nullptr; op = op->next) {
    if (Status s = CompileOp(*op); !s.ok()) return s.WithContext(op->info->name);
  }
  return {};
}

Status Compiler::CompileOp(const ir::Op& op) {
  switch (CodeOf(op)) {
    case HostOp::kAttention: return CompileAttention(op);
    case HostOp::kAlloc: return CompileAlloc(op);
    case HostOp::kCommunication: return CompileCommunication(op);
    case HostOp::kDealloc: return {};  // Its place in the pool was planned.
    case HostOp::kEvent:
      events_.emplace(op.results[0], static_cast<int>(code_.events.size()));
      code_.events.push_back(op.results[0]->type->count);
      return {};
    case HostOp::kFill: return CompileFill(op);
    case HostOp::kFor: return CompileFor(op);
    case HostOp::kGroup: return CompileGroup(op);
    case HostOp::kIf: return CompileIf(op);
    case HostOp::kLaunch: return CompileLaunch(op);
    case HostOp::kGroupedProduct: return CompileGroupedProduct(op);
    case HostOp::kIndexSum: return CompileCall(op, IndexSumCode{op.Int("axis")});
    case HostOp::kLibrary:
      return CompileCall(op, ProductCode{.op = std::string(op.Name("op")),
                                         .epilogue = std::string(op.Name("epilogue")),
                                         .tf32 = op.Name("precision") == "tf32"});
    case HostOp::kRecord: return CompileSync(op, Instr::Kind::kRecord);
    case HostOp::kViewPermute:
    case HostOp::kViewReshape:
    case HostOp::kViewSelect:
    case HostOp::kViewSlice: return CompileView(op);
    case HostOp::kWait: return CompileSync(op, Instr::Kind::kWait);
  }
  return Internal("a row without evaluation");
}

Status Compiler::Add(const ir::Op& op, Instr::Kind kind, size_t at, Instr** added) {
  Instr instr = {.kind = kind, .at = static_cast<int>(at), .op = &op};
  if (IsQueued(op)) {
    HIR_ASSIGN(instr.stream, Slot(op.ExprOf("stream")));
  }
  code_.instrs.push_back(instr);
  if (added != nullptr) *added = &code_.instrs.back();
  return {};
}

Result<int> Compiler::ProductSlot(std::span<const ir::Expr* const> factors) {
  const ir::Expr* product = pool_.Const(1);
  for (const ir::Expr* factor : factors) product = pool_.Mul(product, pool_.Import(factor));
  return Slot(product);
}

Result<TensorCode> Compiler::Tensor(const ir::Value& value) {
  TensorCode tensor = {.buffer = buffers_.at(&value), .dtype = value.type->dtype};
  for (const ir::Axis& axis : ir::ValueAxes(*value.type)) {
    HIR_ASSIGN(tensor.extents.emplace_back(), Slot(axis.extent));
  }
  for (const ViewAxis& axis : RegionOf(value).axes) {
    HIR_ASSIGN(tensor.strides.emplace_back(), Slot(axis.stride));
  }
  return tensor;
}

int Compiler::BufferOf(const ir::Op& op, size_t operand) {
  const ir::Value* base = BaseOf(op.operands[operand]);
  if (base->def == nullptr) {
    const auto param = static_cast<size_t>(base->index);
    code_.param_used[param] = true;
    if (Writes(AccessOf(op, static_cast<int>(operand)))) code_.param_written[param] = true;
  }
  return buffers_.at(op.operands[operand]);
}

}  // namespace hir::host
