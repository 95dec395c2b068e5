// Expressions, conditions, trips.
#include "csrc/codegen/gpu/indices.h"

#include "csrc/base/check.h"
#include "csrc/codegen/gpu/scalar.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Element;
using ir::ExprKind;

std::string Indices::Text(const ir::Expr* expr, bool is_lane) {
  if (expr->IsConst()) return IntText(is_narrow_ ? DType::kInt32 : DType::kInt64, expr->value);
  if (expr->kind == ExprKind::kSymbol) {
    const int variable = VariableOf(expr->symbol);
    if (variable < 0) return arguments_.SymbolOf(expr->symbol);
    const std::string& text = code_.TextOf(variable);
    return is_lane && variable == vector_.variable() ? Cat("(", text, " + e)") : text;
  }
  const uint64_t vars = dependences_.VarsOf(expr);
  is_lane = is_lane && dependences_.IsLane(vars);
  const size_t level = dependences_.LevelOf(vars, is_lane);
  const Scopes::Key key = {expr, -1, is_lane};
  if (const std::string* known = code_.Find(level, key)) return *known;
  std::vector<std::string> args;
  for (const ir::Expr* arg : expr->args) args.push_back(Text(arg, is_lane));
  return code_.Named(key, level, "ix", NodeText(*expr, args));
}

std::string Indices::NodeText(const ir::Expr& expr, const std::vector<std::string>& args) {
  const auto constant = [&](int64_t value) { return Text(math_.pool().Const(value)); };
  switch (expr.kind) {
    case ExprKind::kAdd:
      return Cat(base::Join(args, " + "), expr.value != 0 ? " + " : "", expr.value != 0 ? constant(expr.value) : "");
    case ExprKind::kMul:
      return Cat(expr.value != 1 ? constant(expr.value) : "", expr.value != 1 ? " * " : "", base::Join(args, " * "));
    case ExprKind::kMin: return Cat("mini(", args[0], ", ", args[1], ")");
    case ExprKind::kMax: return Cat("maxi(", args[0], ", ", args[1], ")");
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      const bool mod = expr.kind == ExprKind::kMod;
      if (expr.args[1]->IsConst() && expr.args[1]->value > 0 && math_.NonNegative(expr.args[0]))
        return Cat("(ix)((ux)", args[0], mod ? " % " : " / ", "(ux)", args[1], ")");
      return Cat(mod ? "floor_mod<ix>(" : "floor_div<ix>(", args[0], ", ", args[1], ")");
    }
    case ExprKind::kCeilDiv: return Cat("ceil_div<ix>(", args[0], ", ", args[1], ")");
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  HIR_CHECK(false);
  return {};
}

std::string Indices::ConditionText(const Element* condition) {
  if (condition->kind == Element::Kind::kInt) return IntText(DType::kBool, condition->integer);
  const uint64_t vars = dependences_.VarsOf(condition);
  const bool is_lane = dependences_.IsLane(vars) && !guards_.IsUniform(condition);
  const size_t level = dependences_.LevelOf(vars, is_lane);
  const Scopes::Key key = {condition, -2, is_lane};
  if (const std::string* known = code_.Find(level, key)) return *known;
  std::vector<std::string> args;
  const bool compares = fusion::IsComparison(condition->prim);
  for (const Element* arg : condition->args)
    args.push_back(compares ? Text(math_.ToExpr(arg), is_lane) : ConditionText(arg));
  const DType dtype = compares ? DType::kInt64 : DType::kBool;
  return code_.Named(key, level, "bool", PrimText(condition->prim, dtype, args, false));
}

const ir::Expr* Indices::TripsOf(std::span<const Loop> loops) {
  ir::ExprPool& pool = math_.pool();
  const ir::Expr* trips = pool.Const(1);
  for (const Loop& loop : loops) {
    const ir::Expr* own = pool.Sub(pool.Import(loop.end), pool.Import(loop.begin));
    if (!pool.Import(loop.begin)->IsConst(0)) own = pool.Max(own, pool.Const(0));
    if (loop.variable == vector_.variable() && vector_.lanes() > 1) {
      if (!vector_.is_ragged() && !conditions_.Divisible(own, vector_.lanes()))
        code_.Fail(Internal("vectors along a loop that they do not divide"));
      own = pool.FloorDiv(own, pool.Const(vector_.lanes()));
    }
    trips = pool.Mul(trips, own);
  }
  return trips;
}

void Indices::Decode(std::span<const Loop> loops, const std::string& k) {
  std::string rest = k;
  for (size_t i = loops.size(); i-- > 0;) {
    const Loop& loop = loops[i];
    std::string at = rest;
    if (i > 0) {
      const std::string trips = Text(TripsOf(loops.subspan(i, 1)));
      const std::string quotient = code_.NewName("q");
      at = code_.NewName("r");
      code_.Line("const ix ", quotient, " = (ix)((ux)", rest, " / (ux)", trips, ");");
      code_.Line("const ix ", at, " = ", rest, " - ", quotient, " * ", trips, ";");
      rest = quotient;
    }
    const ir::Expr* begin = math_.pool().Import(loop.begin);
    std::string text = at;
    if (loop.variable == vector_.variable() && vector_.lanes() > 1) text = Cat(text, " * ", vector_.lanes());
    if (!begin->IsConst(0)) text = Cat(Text(begin), " + ", text);
    const std::string name = Cat("v", loop.variable, code_.NewName("_"));
    code_.Line("const ix ", name, " = ", text, ";");
    code_.Define(loop.variable, name);
  }
}

}  // namespace hir::codegen::gpu
