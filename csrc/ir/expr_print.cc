// The canonical text of extents.
#include "csrc/base/text.h"
#include "csrc/ir/expr.h"

namespace hir::ir {

namespace {

// Binding strength: sums 0, mod 1, products and quotients 2, atoms 3.
int Strength(const Expr* expr) {
  switch (expr->kind) {
    case ExprKind::kAdd: return 0;
    case ExprKind::kMod: return 1;
    case ExprKind::kMul:
    case ExprKind::kFloorDiv: return 2;
    case ExprKind::kConst: return expr->value < 0 ? 0 : 3;
    case ExprKind::kSymbol:
    case ExprKind::kCeilDiv:
    case ExprKind::kMin:
    case ExprKind::kMax: return 3;
  }
  return 3;
}

void Print(std::string& out, const Expr* expr, int at_least);

void PrintSum(std::string& out, const Expr* expr) {
  for (size_t i = 0; i < expr->args.size(); ++i) {
    const Expr* term = expr->args[i];
    const bool negative = term->kind == ExprKind::kMul && term->value < 0 && term->value != INT64_MIN;
    if (i > 0) out += negative ? " - " : " + ";
    if (i > 0 && negative) {
      Expr positive = *term;
      positive.value = -term->value;
      if (positive.value == 1 && positive.args.size() == 1) {
        Print(out, positive.args[0], 2);
      } else {
        Print(out, &positive, 2);
      }
    } else {
      Print(out, term, 1);
    }
  }
  if (expr->value > 0) base::Append(out, " + ", expr->value);
  if (expr->value < 0) base::Append(out, " - ", std::to_string(expr->value).substr(1));
}

void Print(std::string& out, const Expr* expr, int at_least) {
  const bool wrap = Strength(expr) < at_least;
  if (wrap) out += '(';
  switch (expr->kind) {
    case ExprKind::kConst: base::Append(out, expr->value); break;
    case ExprKind::kSymbol: out += expr->symbol; break;
    case ExprKind::kAdd: PrintSum(out, expr); break;
    case ExprKind::kMul:
      if (expr->value == -1) {
        out += "-1*";
      } else if (expr->value != 1) {
        base::Append(out, expr->value, '*');
      }
      for (size_t i = 0; i < expr->args.size(); ++i) {
        if (i > 0) out += '*';
        Print(out, expr->args[i], 3);
      }
      break;
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
      Print(out, expr->args[0], 3);
      out += expr->kind == ExprKind::kMod ? " mod " : " / ";
      Print(out, expr->args[1], 3);
      break;
    case ExprKind::kCeilDiv:
    case ExprKind::kMin:
    case ExprKind::kMax:
      out += expr->kind == ExprKind::kCeilDiv ? "ceildiv(" : expr->kind == ExprKind::kMin ? "min(" : "max(";
      Print(out, expr->args[0], 0);
      out += ", ";
      Print(out, expr->args[1], 0);
      out += ')';
      break;
  }
  if (wrap) out += ')';
}

}  // namespace

std::string ToString(const Expr* expr) {
  std::string out;
  Print(out, expr, 0);
  return out;
}

}  // namespace hir::ir
