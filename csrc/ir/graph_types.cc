// Interned types, and the replacement of symbols throughout a graph.
#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/ir/graph.h"

namespace hir::ir {
namespace {

using base::Cat;

constexpr int64_t kReplaceWorkMax = int64_t{1} << 27;  // Terms looked at; about a second.

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
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Axis& x, const Axis& y) { return x.kind == y.kind && x.extent == y.extent; });
}

bool Contains(const Expr* expr, const Expr* symbol) {
  if (expr == symbol) return true;
  for (const Expr* arg : expr->args) {
    if (Contains(arg, symbol)) return true;
  }
  return false;
}

template <typename Visit>
void ForEachSymbol(const Expr* expr, const Visit& visit) {
  if (expr->kind == ExprKind::kSymbol) visit(expr);
  for (const Expr* arg : expr->args) ForEachSymbol(arg, visit);
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
  if (symbolic) {
    types_.push_back(type);
    for (const Axis& axis : type->axes) terms_ += axis.extent->nodes;
  }
  return type;
}

const Type* Graph::Scalar(DType dtype) { return New(Type{.kind = TypeKind::kScalar, .dtype = dtype}); }
const Type* Graph::Index() { return New(Type{.kind = TypeKind::kIndex}); }
const Type* Graph::Event(int64_t count) { return New(Type{.kind = TypeKind::kEvent, .count = count}); }

const Expr* Graph::Resolve(const Expr* expr) {
  if (replaced_.empty() || expr->IsConst()) return expr;
  const auto known = resolved_.find(expr);
  if (known != resolved_.end()) return known->second;
  const Expr* resolved = expr;
  // A replacement may hold symbols that were replaced later; each look-up shortens its own chain.
  for (;;) {
    std::unordered_map<std::string_view, const Expr*> map;
    ForEachSymbol(resolved, [&](const Expr* symbol) {
      const auto found = replaced_.find(symbol->symbol);
      if (found == replaced_.end()) return;
      for (const Expr* to = found->second; to->kind == ExprKind::kSymbol;) {
        const auto next = replaced_.find(to->symbol);
        if (next == replaced_.end()) break;
        to = found->second = next->second;
      }
      map.emplace(symbol->symbol, found->second);
    });
    if (map.empty()) break;
    resolved = exprs_.Substitute(resolved, map);
  }
  resolved_.emplace(expr, resolved);
  return resolved;
}

bool Graph::IsInputSize(const Expr* symbol) {
  for (; num_scanned_params_ < params.size(); ++num_scanned_params_) {
    for (const Axis& axis : params[num_scanned_params_]->type->axes) {
      if (axis.extent->kind == ExprKind::kSymbol) input_sizes_.insert(axis.extent);
    }
  }
  return input_sizes_.contains(symbol);
}

Status Graph::Spend(int64_t work) {
  replace_work_ += work;
  if (replace_work_ <= kReplaceWorkMax) return {};
  return ResourceExhausted(Cat("matching the sizes of this program takes more than ", kReplaceWorkMax, " steps"));
}

void Graph::CountTerms(const Attr& attr) {
  if (const auto* one = std::get_if<const Expr*>(&attr.value)) terms_ += (*one)->nodes;
  if (const auto* list = std::get_if<std::span<const Expr* const>>(&attr.value)) {
    for (const Expr* expr : *list) terms_ += expr->nodes;
  }
}

Status Graph::ReplaceSymbol(std::string_view name, const Expr* expr) {
  const Expr* symbol = exprs_.Symbol(name);
  expr = Resolve(expr);
  HIR_CHECK(!Contains(expr, symbol));
  HIR_TRY(Spend(terms_ + std::ssize(params) + std::ssize(types_) + std::ssize(expr_attrs_)));
  replaced_.emplace(symbol->symbol, expr);
  resolved_.clear();
  input_sizes_.clear();
  num_scanned_params_ = 0;
  terms_ = 0;
  const std::unordered_map<std::string_view, const Expr*> map = {{symbol->symbol, expr}};
  const auto replace = [&](const Expr* e) { return Contains(e, symbol) ? exprs_.Substitute(e, map) : e; };
  for (Type* type : types_) {
    const size_t old_hash = HashOf(type->dtype, type->axes);
    std::vector<Axis> axes(type->axes.begin(), type->axes.end());
    for (Axis& axis : axes) {
      axis.extent = replace(axis.extent);
      terms_ += axis.extent->nodes;
    }
    if (SameAxes(axes, type->axes)) continue;
    const auto [first, last] = interned_.equal_range(old_hash);
    interned_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == type; }));
    // In place: every value of this type sees it.
    std::copy(axes.begin(), axes.end(), const_cast<Axis*>(type->axes.data()));
    interned_.emplace(HashOf(type->dtype, type->axes), type);
    HIR_TRY(CheckType(*type));
  }
  for (Attr* attr : expr_attrs_) {
    if (auto* one = std::get_if<const Expr*>(&attr->value)) *one = replace(*one);
    if (auto* list = std::get_if<std::span<const Expr* const>>(&attr->value)) {
      for (const Expr* const& element : *list) const_cast<const Expr*&>(element) = replace(element);
    }
    CountTerms(*attr);
  }
  for (Guard& guard : guards) {
    guard.left = replace(guard.left);
    guard.right = replace(guard.right);
    terms_ += guard.left->nodes + guard.right->nodes;
  }
  HIR_TRY(exprs_.status());
  return CheckGuards();
}

namespace {

// Whether a guard always holds (true), never does (false), or depends on the sizes.
std::optional<bool> Decide(const ExprPool& pool, const Guard& guard) {
  const std::optional<int64_t> difference = pool.Difference(guard.left, guard.right);
  if (!difference) return std::nullopt;
  return guard.kind == Guard::Kind::kEqual ? *difference == 0 : *difference <= 0;
}

Status CannotHold(const Guard& guard) {
  const char* relation = guard.kind == Guard::Kind::kEqual ? " is not " : " is more than ";
  return InvalidArgument(Cat(guard.reason, ": ", ToString(guard.left), relation, ToString(guard.right)));
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
    if (known.kind == guard.kind && known.left == guard.left && known.right == guard.right) return {};
  }
  HIR_TRY(Spend(std::ssize(guards)));
  terms_ += guard.left->nodes + guard.right->nodes;
  guards.push_back(std::move(guard));
  return {};
}

}  // namespace hir::ir
