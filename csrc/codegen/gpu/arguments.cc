// Names of arguments, and expressions of them.
#include "csrc/codegen/gpu/arguments.h"

#include "csrc/base/check.h"
#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Cat;
using ir::ExprKind;

Arguments::Arguments(const LoopNest& nest) : nest_(nest) {
  for (size_t i = 0; i < nest.tensors.size(); ++i) {
    if (nest.tensors[i].role != Tensor::Role::kOutput) tensors_[nest.tensors[i].value] = static_cast<int>(i);
  }
  for (size_t i = 0; i < nest.symbols.size(); ++i) symbols_[nest.symbols[i]] = Cat("s", i);
  for (size_t i = 0; i < nest.scalars.size(); ++i) scalars_[nest.scalars[i]] = Cat("x", i);
}

void Arguments::Declare(Scopes& code) const {
  for (size_t i = 0; i < nest_.symbols.size(); ++i) code.Line("const ix s", i, " = (ix)a.s", i, ";");
  for (size_t i = 0; i < nest_.scalars.size(); ++i) {
    const DType dtype = nest_.scalars[i]->type->dtype;
    const DType passed = IsFloat(dtype) ? DType::kFloat64 : DType::kInt64;
    code.Line("const ", TypeText(dtype), " x", i, " = ", ConvertText(passed, dtype, Cat("a.x", i)), ";");
  }
}

int Arguments::TensorOf(const ir::Value* value) const {
  const auto known = tensors_.find(value);
  return known == tensors_.end() ? -1 : known->second;
}

std::string Arguments::SymbolText(const ir::Expr* expr) const {
  if (expr->IsConst()) return IntText(DType::kInt64, expr->value);
  if (expr->kind == ExprKind::kSymbol) return Cat("a.", symbols_.at(expr->symbol));
  std::vector<std::string> args;
  for (const ir::Expr* arg : expr->args) args.push_back(SymbolText(arg));
  const auto call = [&](std::string_view name) { return Cat(name, "<i64>(", args[0], ", ", args[1], ")"); };
  switch (expr->kind) {
    case ExprKind::kAdd: return Cat("(", base::Join(args, " + "), " + ", IntText(DType::kInt64, expr->value), ")");
    case ExprKind::kMul: return Cat("(", IntText(DType::kInt64, expr->value), " * ", base::Join(args, " * "), ")");
    case ExprKind::kMin: return call("mini");
    case ExprKind::kMax: return call("maxi");
    case ExprKind::kFloorDiv: return call("floor_div");
    case ExprKind::kMod: return call("floor_mod");
    case ExprKind::kCeilDiv: return call("ceil_div");
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  HIR_CHECK(false);
  return {};
}

}  // namespace hir::codegen::gpu
