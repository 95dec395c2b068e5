#include "csrc/fusion/check_program.h"

#include <set>
#include <string_view>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/fusion/epilogue.h"
#include "csrc/fusion/fusion_ops.h"

namespace hir::fusion {
namespace {

std::string Located(const ir::Op& op, std::string message) {
  std::string text = base::Cat(op.info->name, ": ", message);
  if (!op.location.empty()) base::Append(text, " (", op.location, ")");
  return text;
}

// Those of the attributes that hold extents.
void CollectSymbols(const ir::Op& op, std::vector<std::string_view>& symbols) {
  for (const ir::Attr& attr : op.attrs) {
    if (const auto* expr = std::get_if<const ir::Expr*>(&attr.value)) ir::CollectSymbols(*expr, symbols);
    if (const auto* exprs = std::get_if<std::span<const ir::Expr* const>>(&attr.value)) {
      for (const ir::Expr* expr : *exprs) ir::CollectSymbols(expr, symbols);
    }
  }
}

// Whether clients may write `op`, or planning alone makes it so.
Status CheckMadeByPlanning(const ir::Op& op) {
  if (IsPlanned(CodeOf(op)) && !IsCommunication(CodeOf(op))) {
    return InvalidArgument(Located(op, "planning makes it of stream axes; a program cannot hold it"));
  }
  if (IsCommunication(CodeOf(op))) {
    return InvalidArgument(Located(op, "communications come from shardings; a program cannot hold them"));
  }
  if (IsProduct(CodeOf(op))) {
    // Planning makes these of the ops behind a product.
    if (op.Name("epilogue") != kNoEpilogue) {
      return InvalidArgument(
          Located(op, base::Cat("write ", op.Name("epilogue"), " behind it; an epilogue is made by planning")));
    }
    if (CodeOf(op) == FusionOp::kMatmul && op.operands.size() > 2) {
      return InvalidArgument(Located(op, "add the bias behind it; matmul with a bias is made by planning"));
    }
    if (CodeOf(op) == FusionOp::kMatmul && op.Name("transposed") != kNotTransposed) {
      return InvalidArgument(
          Located(op, "permute the operand in front of it; transposed operands are made by planning"));
    }
  }
  if (CodeOf(op) == FusionOp::kGroupedMatmul && op.Name("transposed") != kNotTransposed) {
    return InvalidArgument(
        Located(op, "permute the matrices in front of it; transposed operands are made by planning"));
  }
  return {};
}

}  // namespace

Status CheckOutputs(const ir::Graph& graph) {
  for (const ir::Output& output : graph.outputs) {
    if (output.value->type->kind == ir::TypeKind::kTensor) continue;
    return InvalidArgument(base::Cat("output %", output.value->name, " is a host scalar; outputs are tensors"));
  }
  return {};
}

Status CheckUserProgram(const ir::Graph& graph) {
  if (graph.outputs.empty()) {
    return InvalidArgument(base::Cat("program @", graph.name(),
                                     " has 0 outputs; a run would compute nothing: return at least "
                                     "1 tensor (in Python: add_output)"));
  }
  std::set<std::string_view> bound;
  for (const ir::Value* param : graph.params) {
    for (size_t k = 0; k < param->type->axes.size(); ++k) {
      const ir::Axis& axis = param->type->axes[k];
      if (axis.kind == ir::AxisKind::kReduction) {
        return InvalidArgument(base::Cat("input %", param->name, ": axis ", k,
                                         " is reduced; only the op that reduced it leaves such an axis: leave it out"));
      }
      if (axis.extent->kind == ir::ExprKind::kSymbol) bound.insert(axis.extent->symbol);
    }
  }
  const auto check = [&](const ir::Value& value) -> Status {
    std::vector<std::string_view> symbols;
    for (const ir::Axis& axis : value.type->axes) ir::CollectSymbols(axis.extent, symbols);
    if (value.def != nullptr) CollectSymbols(*value.def, symbols);
    for (std::string_view symbol : symbols) {
      if (symbol.starts_with('@')) {
        return InvalidArgument(
            base::Cat("%", value.name, ": ", symbol, " is a mesh coordinate; extents of a program have none"));
      }
      if (!bound.contains(symbol)) {
        return InvalidArgument(
            base::Cat("%", value.name, ": extent ", symbol, " is not the extent of an axis of any input"));
      }
    }
    return {};
  };
  for (const ir::Value* param : graph.params) HIR_TRY(check(*param));
  Status status;
  ir::ForEachOp(graph.body, [&](const ir::Op* op) {
    if (!status.ok()) return;
    status = CheckMadeByPlanning(*op);
    if (!status.ok()) return;
    for (const ir::Value* result : op->results) {
      if (status.ok()) status = check(*result);
    }
    if (!status.ok()) status = InvalidArgument(Located(*op, std::string(status.message())));
  });
  return status;
}

}  // namespace hir::fusion
