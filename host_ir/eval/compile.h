// The compiler's state: one walk over a host program that fills in a Code. Private to compile*.cc.
#pragma once

#include <unordered_map>

#include "host_ir/eval/code.h"
#include "host_ir/host_ops.h"
#include "host_ir/region.h"

namespace hir::host {

class Compiler {
 public:
  Compiler(const HostProgram& program, int64_t rank) : program_(program), graph_(program.graph()), rank_(rank) {}
  Result<Code> Run();

 private:
  Status CompileParams();
  Status CompileBlock(const ir::Block& block);
  Status CompileOp(const ir::Op& op);

  // compile_control.cc
  Status CompileIf(const ir::Op& op);
  Status CompileFor(const ir::Op& op);
  Status CompileGroup(const ir::Op& op);
  Status CompileSync(const ir::Op& op, Instr::Kind kind);
  Status CompileView(const ir::Op& op);
  Status CompileAlloc(const ir::Op& op);

  // compile_work.cc
  Status CompileLaunch(const ir::Op& op);
  Status CompileCall(const ir::Op& op, CallCode what);
  Status CompileAttention(const ir::Op& op);
  Status CompileGroupedProduct(const ir::Op& op);
  Status CompileFill(const ir::Op& op);

  // compile_communication.cc
  Status CompileCommunication(const ir::Op& op);
  void FindWindow(const ir::Op& op, CommunicationCode& code);

  // Appends an instruction; fills in its stream when the op has one.
  Status Add(const ir::Op& op, Instr::Kind kind, size_t at, Instr** added = nullptr);
  Result<int> Slot(const ir::Expr* expr) { return code_.exprs.Slot(pool_.Import(expr)); }
  Result<int> ProductSlot(std::span<const ir::Expr* const> factors);
  Result<TensorCode> Tensor(const ir::Value& value);
  // The buffer slot of an operand; marks a parameter as used.
  int BufferOf(const ir::Op& op, size_t operand);
  const Region& RegionOf(const ir::Value& value) const { return regions_.at(&value); }

  const HostProgram& program_;
  const ir::Graph& graph_;
  const int64_t rank_;
  ir::ExprPool pool_;
  Code code_;
  std::unordered_map<const ir::Value*, int> buffers_, events_;
  std::unordered_map<const ir::Value*, Region> regions_;
  int num_levels_ = 1;
  int loop_depth_ = 0;
  int branch_depth_ = 0;
};

}  // namespace hir::host
