#include "host_ir/eval/expr_code.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::host {
namespace {

using ir::ExprKind;

bool Apply(ExprKind kind, int64_t a, int64_t b, int64_t* out) {
  switch (kind) {
    case ExprKind::kAdd: return !__builtin_add_overflow(a, b, out);
    case ExprKind::kMul: return !__builtin_mul_overflow(a, b, out);
    case ExprKind::kMin: *out = std::min(a, b); return true;
    case ExprKind::kMax: *out = std::max(a, b); return true;
    case ExprKind::kFloorDiv:
    case ExprKind::kMod:
    case ExprKind::kCeilDiv:
      if (b < 0 || a == INT64_MIN) return false;  // Divisors are extents.
      if (b == 0) {                               // Of an empty tensor, then; nothing will be touched.
        *out = 0;
        return true;
      }
      *out = kind == ExprKind::kFloorDiv ? base::FloorDiv(a, b)
             : kind == ExprKind::kMod    ? base::FloorMod(a, b)
                                         : base::CeilDiv(a, b);
      return true;
    case ExprKind::kConst:
    case ExprKind::kSymbol: break;
  }
  return false;
}

}  // namespace

int ExprCode::AddSymbol(std::string_view name, int level) {
  const int slot = num_slots();
  level_of_.push_back(level);
  symbols_.insert_or_assign(std::string(name), slot);
  return slot;
}

void ExprCode::RemoveSymbol(std::string_view name) { symbols_.erase(std::string(name)); }

int ExprCode::AddNode(Node node, int level) {
  node.dst = num_slots();
  level_of_.push_back(level);
  if (levels_.size() <= static_cast<size_t>(level)) levels_.resize(static_cast<size_t>(level) + 1);
  levels_[static_cast<size_t>(level)].push_back(node);
  return node.dst;
}

Result<int> ExprCode::Slot(const ir::Expr* expr) {
  if (expr->kind == ExprKind::kSymbol) {
    const auto found = symbols_.find(std::string(expr->symbol));
    if (found == symbols_.end()) return InvalidArgument(base::Cat("extent ", expr->symbol, " has no value"));
    return found->second;
  }
  if (const auto found = slots_.find(expr); found != slots_.end()) return found->second;
  int slot = 0;
  const bool nary = expr->kind == ExprKind::kAdd || expr->kind == ExprKind::kMul;
  if (expr->kind == ExprKind::kConst || nary) {
    slot = AddNode({.kind = ExprKind::kConst, .value = expr->value}, 0);
  }
  for (size_t i = 0; i < expr->args.size(); ++i) {
    HIR_ASSIGN(const int arg, Slot(expr->args[i]));
    if (i == 0 && !nary) {
      slot = arg;
      continue;
    }
    slot = AddNode({.kind = expr->kind, .a = slot, .b = arg}, std::max(LevelOf(slot), LevelOf(arg)));
  }
  slots_.emplace(expr, slot);
  return slot;
}

bool ExprCode::Evaluate(int level, std::span<int64_t> values) const {
  bool ok = true;
  if (levels_.size() <= static_cast<size_t>(level)) return ok;
  for (const Node& node : levels_[static_cast<size_t>(level)]) {
    int64_t value = node.value;
    if (node.kind != ExprKind::kConst &&
        !Apply(node.kind, values[static_cast<size_t>(node.a)], values[static_cast<size_t>(node.b)], &value)) {
      value = 0;
      ok = false;
    }
    values[static_cast<size_t>(node.dst)] = value;
  }
  return ok;
}

}  // namespace hir::host
