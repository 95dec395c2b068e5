// Interned types, and the replacement of symbols throughout a graph.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/graph.h"

namespace hir::ir {
namespace {

using base::Cat;

constexpr int64_t kReplaceWorkMax = int64_t{1}
                                    << 27;  // Types and attributes looked at; about a second.

size_t HashOf(DType dtype, std::span<const Axis> axes) {
  size_t hash = static_cast<size_t>(dtype);
  for (const Axis& axis : axes) {
    hash = (hash ^ static_cast<size_t>(axis.kind)) * 0x9e3779b97f4a7c15;
    hash = (hash ^ (reinterpret_cast<size_t>(axis.extent) >> 4)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

bool SameAxes(std::span<const Axis> a, std::span<const Axis> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Axis& x, const Axis& y) {
    return x.kind == y.kind && x.extent == y.extent;
  });
}

bool Contains(const Expr* expr, const Expr* symbol) {
  if (expr == symbol) return true;
  for (const Expr* arg : expr->args) {
    if (Contains(arg, symbol)) return true;
  }
  return false;
}

}  // namespace

const Type* Graph::Tensor(DType dtype, std::span<const Axis> axes) {
  std::vector<Axis> resolved(axes.begin(), axes.end());
  bool symbolic = false;
  for (Axis& axis : resolved) {
    axis.extent = Resolve(axis.extent);
    symbolic |= !axis.extent->IsConst();
  }
  const size_t hash = HashOf(dtype, resolved);
  const auto [first, last] = interned_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (it->second->dtype == dtype && SameAxes(it->second->axes, resolved)) return it->second;
  }
  Type* type = New(Type{.kind = TypeKind::kTensor, .dtype = dtype, .axes = Copy(resolved)});
  interned_.emplace(hash, type);
  if (symbolic) types_.push_back(type);
  return type;
}

const Type* Graph::Scalar(DType dtype) {
  return New(Type{.kind = TypeKind::kScalar, .dtype = dtype});
}
const Type* Graph::Index() { return New(Type{.kind = TypeKind::kIndex}); }
const Type* Graph::Event(int64_t count) {
  return New(Type{.kind = TypeKind::kEvent, .count = count});
}

const Expr* Graph::Resolve(const Expr* expr) {
  if (replaced_.empty() || expr->IsConst()) return expr;
  // A replacement may hold symbols that were replaced later; each lookup shortens its own chain.
  for (;;) {
    std::vector<std::string_view> symbols;
    CollectSymbols(expr, symbols);
    std::unordered_map<std::string_view, const Expr*> map;
    for (std::string_view symbol : symbols) {
      const auto found = replaced_.find(symbol);
      if (found == replaced_.end()) continue;
      for (const Expr* to = found->second; to->kind == ExprKind::kSymbol;) {
        const auto next = replaced_.find(to->symbol);
        if (next == replaced_.end()) break;
        to = found->second = next->second;
      }
      map.emplace(symbol, found->second);
    }
    if (map.empty()) return expr;
    expr = exprs_.Substitute(expr, map);
  }
}

Status Graph::ReplaceSymbol(std::string_view name, const Expr* expr) {
  const Expr* symbol = exprs_.Symbol(name);
  expr = Resolve(expr);
  HIR_CHECK(!Contains(expr, symbol));
  replace_work_ += static_cast<int64_t>(types_.size() + expr_attrs_.size() +
                                        guards.size() * (1 + params.size()));
  if (replace_work_ > kReplaceWorkMax) {
    return ResourceExhausted(
        Cat("matching the sizes of this program takes more than ", kReplaceWorkMax, " steps"));
  }
  replaced_.emplace(symbol->symbol, expr);
  const std::unordered_map<std::string_view, const Expr*> map = {{symbol->symbol, expr}};
  const auto replace = [&](const Expr* e) {
    return Contains(e, symbol) ? exprs_.Substitute(e, map) : e;
  };
  for (Type* type : types_) {
    if (std::none_of(type->axes.begin(), type->axes.end(),
                     [&](const Axis& a) { return Contains(a.extent, symbol); })) {
      continue;
    }
    const auto [first, last] = interned_.equal_range(HashOf(type->dtype, type->axes));
    interned_.erase(
        std::find_if(first, last, [&](const auto& entry) { return entry.second == type; }));
    std::vector<Axis> axes(type->axes.begin(), type->axes.end());
    for (Axis& axis : axes) axis.extent = replace(axis.extent);
    // In place: every value of this type sees it.
    std::copy(axes.begin(), axes.end(), const_cast<Axis*>(type->axes.data()));
    interned_.emplace(HashOf(type->dtype, type->axes), type);
    HIR_TRY(CheckType(*type));
  }
  for (Attr* attr : expr_attrs_) {
    if (auto* one = std::get_if<const Expr*>(&attr->value)) *one = replace(*one);
    if (auto* list = std::get_if<std::span<const Expr* const>>(&attr->value)) {
      for (size_t i = 0; i < list->size(); ++i)
        const_cast<const Expr*&>((*list)[i]) = replace((*list)[i]);
    }
  }
  for (Guard& guard : guards) {
    guard.left = replace(guard.left);
    guard.right = replace(guard.right);
  }
  HIR_TRY(exprs_.status());
  return CheckGuards();
}

namespace {

// Whether a guard always holds (true), never does (false), or depends on the sizes.
std::optional<bool> Decide(ExprPool& pool, const Guard& guard) {
  const Expr* difference = pool.Sub(guard.left, guard.right);
  if (!difference->IsConst()) return std::nullopt;
  return guard.kind == Guard::Kind::kEqual ? difference->value == 0 : difference->value <= 0;
}

Status CannotHold(const Guard& guard) {
  const char* relation = guard.kind == Guard::Kind::kEqual ? " is not " : " is more than ";
  return InvalidArgument(
      Cat(guard.reason, ": ", ToString(guard.left), relation, ToString(guard.right)));
}

}  // namespace

Status Graph::CheckGuards() {
  std::vector<Guard> kept;
  for (Guard& guard : guards) {
    const std::optional<bool> holds = Decide(exprs_, guard);
    if (holds == std::optional(false)) return CannotHold(guard);
    if (!holds) kept.push_back(std::move(guard));
  }
  guards = std::move(kept);
  return {};
}

Status Graph::AddGuard(Guard guard) {
  guard.left = Resolve(guard.left);
  guard.right = Resolve(guard.right);
  const std::optional<bool> holds = Decide(exprs_, guard);
  if (holds == std::optional(true)) return {};
  if (holds == std::optional(false)) return CannotHold(guard);
  for (const Guard& known : guards) {
    if (known.kind == guard.kind && known.left == guard.left && known.right == guard.right)
      return {};
  }
  replace_work_ += static_cast<int64_t>(guards.size());
  if (replace_work_ > kReplaceWorkMax) {
    return ResourceExhausted(
        Cat("matching the sizes of this program takes more than ", kReplaceWorkMax, " steps"));
  }
  guards.push_back(std::move(guard));
  return {};
}

}  // namespace hir::ir
