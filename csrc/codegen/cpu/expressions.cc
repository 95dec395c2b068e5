// Expressions as instructions, in one lane and in all: their terms that vary least come first.
#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/codegen/cpu/element_emitter.h"
#include "csrc/codegen/cpu/pairs.h"

namespace hir::codegen::cpu {

using ir::Expr;
using ir::ExprKind;

V ElementEmitter::EmitExpr(const Expr* expr) {
  if (expr->IsConst()) return IntConstant(Ty::kI64, expr->value);
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (const Dependences::Data* data = dependences_.DataOf(*expr)) return EmitElement(data->element, data->guard);
    if (variable < 0) return symbols_.at(expr->symbol);
    return lanes_.variable == variable ? lanes_.first : scopes_.ValueOf(variable);
  }
  const size_t level = scopes_.LevelOf(dependences_.Of(expr));
  const Scopes::Key key = {expr, 0, 0};
  if (const V* known = scopes_.Find(key, level)) return *known;
  V value;
  if (expr->kind == ExprKind::kAdd) {
    // The terms that vary least first, so that sums of them leave the inner loops.
    std::vector<const Expr*> terms(expr->args.begin(), expr->args.end());
    std::ranges::stable_sort(terms, {}, [&](const Expr* term) { return scopes_.LevelOf(dependences_.Of(term)); });
    const Expr* sum = terms[0];
    value = EmitExpr(sum);
    for (size_t i = 1; i <= terms.size(); ++i) {
      const bool last = i == terms.size();
      if (last && expr->value == 0) break;
      const Expr* term = last ? pool_.Const(expr->value) : terms[i];
      sum = pool_.Add(sum, term);
      const size_t at = scopes_.LevelOf(dependences_.Of(sum));
      if (const V* known = scopes_.Find({sum, 0, 0}, at)) {
        value = *known;
        continue;
      }
      const V right = EmitExpr(term);
      value = writer_.Binary(scopes_.CodeAt(at), "add", value, right);
      scopes_.Remember({sum, 0, 0}, at, value);
    }
    return value;
  }
  std::vector<V> args;
  for (const Expr* arg : expr->args) args.push_back(EmitExpr(arg));
  value = EmitExprNode(scopes_.CodeAt(level), *expr, args);
  return scopes_.Remember(key, level, value);
}

// One operation on all lanes of `args`.
V ElementEmitter::EmitExprNode(std::string& code, const Expr& expr, const std::vector<V>& args) {
  const int lanes = args[0].lanes;
  const auto constant = [&](int64_t value) { return IntConstant(Ty::kI64, value, lanes); };
  switch (expr.kind) {
    case ExprKind::kMul: {
      V product = args[0];
      for (size_t i = 1; i < args.size(); ++i) product = writer_.Binary(code, "mul", product, args[i]);
      return expr.value == 1 ? product : writer_.Binary(code, "mul", product, constant(expr.value));
    }
    case ExprKind::kAdd: {
      V sum = args[0];
      for (size_t i = 1; i < args.size(); ++i) sum = writer_.Binary(code, "add", sum, args[i]);
      return expr.value == 0 ? sum : writer_.Binary(code, "add", sum, constant(expr.value));
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const V less = writer_.Compare(code, "slt", args[0], args[1]);
      return expr.kind == ExprKind::kMin ? writer_.Select(code, less, args[0], args[1])
                                         : writer_.Select(code, less, args[1], args[0]);
    }
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kCeilDiv: {
      // Code in front of a loop may run for empty tensors: nothing divides by 0.
      V divisor = args[1];
      if (!expr.args[1]->IsConst()) divisor = writer_.Intrinsic(code, "smax", {divisor, constant(1)});
      V dividend = args[0];
      if (expr.kind == ExprKind::kCeilDiv) {
        const V more = writer_.Binary(code, "sub", divisor, constant(1));
        dividend = writer_.Binary(code, "add", dividend, more);
      }
      if (math_.NonNegative(expr.args[0])) {
        return writer_.Binary(code, expr.kind == ExprKind::kMod ? "urem" : "udiv", dividend, divisor);
      }
      const V remainder = writer_.Binary(code, "srem", dividend, divisor);
      const V below = writer_.Compare(code, "slt", remainder, constant(0));
      if (expr.kind == ExprKind::kMod) {
        const V wrapped = writer_.Binary(code, "add", remainder, divisor);
        return writer_.Select(code, below, wrapped, remainder);
      }
      const V quotient = writer_.Binary(code, "sdiv", dividend, divisor);
      const V lower = writer_.Binary(code, "sub", quotient, constant(1));
      return writer_.Select(code, below, lower, quotient);
    }
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  HIR_CHECK(false);
  return {};
}

V ElementEmitter::EmitExprLanes(const Expr* expr) {
  if (!Varies(dependences_.Of(expr))) return writer_.Splat(scopes_.Here(), EmitExpr(expr), lanes_.count);
  if (const auto affine = SplitLanes(expr); affine && !Varies(dependences_.Of(affine->stride))) {
    const V first = writer_.Splat(scopes_.Here(), EmitExpr(expr), lanes_.count);
    const V stride = writer_.Splat(scopes_.Here(), EmitExpr(affine->stride), lanes_.count);
    const V lane = lanes_.paired ? PairedIota(lanes_.count) : writer_.Iota(lanes_.count);
    const V steps = affine->stride->IsConst(1) ? lane : writer_.Binary(scopes_.Here(), "mul", lane, stride);
    return writer_.Binary(scopes_.Here(), "add", first, steps);
  }
  if (expr->kind == ExprKind::kSymbol)  // Data.
    return writer_.Splat(scopes_.Here(), EmitExpr(expr), lanes_.count);
  std::vector<V> args;
  for (const Expr* arg : expr->args) args.push_back(EmitExprLanes(arg));
  return EmitExprNode(scopes_.Here(), *expr, args);
}

bool ElementEmitter::HasVaryingData(const Expr* expr) {
  if (expr->kind == ExprKind::kSymbol) return dependences_.DataOf(*expr) != nullptr && Varies(dependences_.Of(expr));
  return std::ranges::any_of(expr->args, [this](const Expr* arg) { return HasVaryingData(arg); });
}

std::optional<IndexMath::Affine> ElementEmitter::SplitLanes(const Expr* expr) {
  if (HasVaryingData(expr)) return std::nullopt;
  return math_.Split(expr, lanes_.variable);
}

}  // namespace hir::codegen::cpu
