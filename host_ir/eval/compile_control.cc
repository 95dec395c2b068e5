// Blocks, events, memory and views.
#include "csrc/base/text.h"
#include "host_ir/eval/compile.h"
#include "host_ir/shapes.h"

namespace hir::host {

using base::Cat;

Status Compiler::CompileIf(const ir::Op& op) {
  const Result<int64_t> known =
      ir::Evaluate(op.ExprOf("cond"), [this](std::string_view symbol) { return RankSymbol(graph_, symbol, rank_); });
  if (known.ok()) return *known == 0 ? Status() : CompileBlock(*op.blocks[0]);
  const size_t branch = code_.instrs.size();
  Instr* added = nullptr;
  HIR_TRY(Add(op, Instr::Kind::kBranch, 0, &added));
  HIR_ASSIGN(added->index, Slot(op.ExprOf("cond")));
  ++branch_depth_;
  HIR_TRY(CompileBlock(*op.blocks[0]));
  --branch_depth_;
  code_.instrs[branch].target = static_cast<int>(code_.instrs.size());
  return {};
}

Status Compiler::CompileFor(const ir::Op& op) {
  LoopCode loop = {.step = op.ExprOf("step")->value, .level = num_levels_++};
  HIR_ASSIGN(loop.begin, Slot(op.ExprOf("begin")));
  HIR_ASSIGN(loop.end, Slot(op.ExprOf("end")));
  const std::string symbol = Cat("%", op.blocks[0]->args[0]->name);
  loop.index = code_.exprs.AddSymbol(symbol, loop.level);
  const auto at = static_cast<int>(code_.loops.size());
  code_.loops.push_back(loop);
  const size_t head = code_.instrs.size();
  HIR_TRY(Add(op, Instr::Kind::kLoop, static_cast<size_t>(at)));
  ++loop_depth_;
  HIR_TRY(CompileBlock(*op.blocks[0]));
  --loop_depth_;
  code_.exprs.RemoveSymbol(symbol);
  HIR_TRY(Add(op, Instr::Kind::kNext, static_cast<size_t>(at)));
  code_.instrs.back().target = static_cast<int>(head) + 1;
  code_.instrs[head].target = static_cast<int>(code_.instrs.size());
  return {};
}

Status Compiler::CompileGroup(const ir::Op& op) {
  HIR_TRY(Add(op, Instr::Kind::kGroupBegin, 0));
  HIR_TRY(CompileBlock(*op.blocks[0]));
  return Add(op, Instr::Kind::kGroupEnd, 0);
}

Status Compiler::CompileSync(const ir::Op& op, Instr::Kind kind) {
  Instr* added = nullptr;
  HIR_TRY(Add(op, kind, static_cast<size_t>(events_.at(op.operands[0])), &added));
  HIR_ASSIGN(added->index, Slot(op.ExprOf("index")));
  return {};
}

Status Compiler::CompileAlloc(const ir::Op& op) {
  const ir::Value& value = *op.results[0];
  AllocCode alloc = {.buffer = code_.num_buffers++, .element_bytes = DTypeBytes(value.type->dtype), .op = &op};
  buffers_.emplace(&value, alloc.buffer);
  regions_.emplace(&value, WholeOf(pool_, value));
  HIR_ASSIGN(alloc.elements, ProductSlot(StoredExtents(pool_, *value.type)));
  code_.allocs.push_back(alloc);
  return {};
}

Status Compiler::CompileView(const ir::Op& op) {
  const ir::Value& from = *op.operands[0];
  const ir::Value& to = *op.results[0];
  const Region& region = RegionOf(from);
  ViewCode view = {.dst = code_.num_buffers++, .element_bytes = DTypeBytes(to.type->dtype), .op = &op};
  buffers_.emplace(&to, view.dst);
  view.base = buffers_.at(region.base);
  const HostOp code = CodeOf(op);
  Region seen;
  if (code == HostOp::kViewReshape) {
    std::vector<const ir::Expr*> before;
    for (const ViewAxis& axis : region.axes) before.push_back(axis.extent);
    const std::vector<const ir::Expr*> after = StoredExtents(pool_, *to.type);
    std::optional<Region> reshaped = Reshape(pool_, region, *to.type, after);
    if (!reshaped) {
      return Unimplemented(Cat("%", from.name, " is not seen to be contiguous for all values of the loops' indices"));
    }
    seen = *std::move(reshaped);
    HIR_ASSIGN(const int had, ProductSlot(before));
    HIR_ASSIGN(const int has, ProductSlot(after));
    if (had != has) view.equal.emplace_back(had, has);
  } else if (code == HostOp::kViewPermute) {
    seen = Permute(region, op.Ints("dims"));
  } else {
    const bool slice = code == HostOp::kViewSlice;
    const ir::Expr* begin = pool_.Import(op.ExprOf(slice ? "from" : "index"));
    const ir::Expr* end = slice ? pool_.Import(op.ExprOf("to")) : pool_.Add(begin, pool_.Const(1));
    const int64_t axis = op.Int("axis");
    seen = slice ? Slice(pool_, region, axis, begin, end) : Select(pool_, region, axis, begin);
    ViewCode::Check check;
    HIR_ASSIGN(check.from, Slot(begin));
    HIR_ASSIGN(check.to, Slot(end));
    HIR_ASSIGN(check.extent, Slot(ir::ValueAxes(*from.type)[static_cast<size_t>(axis)].extent));
    view.checks.push_back(check);
  }
  HIR_ASSIGN(view.offset, Slot(seen.offset));
  std::vector<const ir::Expr*> extents;
  for (const ViewAxis& axis : seen.axes) extents.push_back(axis.extent);
  HIR_ASSIGN(view.elements, ProductSlot(extents));
  regions_.emplace(&to, std::move(seen));
  code_.views.push_back(std::move(view));
  const size_t at = code_.views.size() - 1;
  if (loop_depth_ > 0 || branch_depth_ > 0) return Add(op, Instr::Kind::kView, at);
  code_.bind_views.push_back(static_cast<int>(at));
  return {};
}

}  // namespace hir::host
