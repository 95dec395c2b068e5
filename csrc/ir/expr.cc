#include "csrc/ir/expr.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::ir {

using base::CheckedAdd;
using base::CheckedMul;

int Compare(const Expr* a, const Expr* b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (const int order = a->symbol.compare(b->symbol); order != 0) return order;
  for (size_t i = 0; i < std::min(a->args.size(), b->args.size()); ++i) {
    if (const int order = Compare(a->args[i], b->args[i]); order != 0) return order;
  }
  if (a->args.size() != b->args.size()) return a->args.size() < b->args.size() ? -1 : 1;
  if (a->value != b->value) return a->value < b->value ? -1 : 1;
  return 0;
}

namespace {

bool AtomsLess(std::span<const Expr* const> a, std::span<const Expr* const> b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (const int order = Compare(a[i], b[i]); order != 0) return order < 0;
  }
  return a.size() < b.size();
}

size_t Mix(size_t hash, size_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29); }

}  // namespace

ExprPool::ExprPool() { one_ = Intern(ExprKind::kConst, 1, {}, {}); }

const Expr* ExprPool::Fail(Fault fault) {
  if (fault_ == Fault::kNone) fault_ = fault;
  return one_;
}

Status ExprPool::status() const {
  switch (fault_) {
    case Fault::kNone: return {};
    case Fault::kOverflow: return InvalidArgument("an extent overflows 64 bits");
    case Fault::kDivisionByZero: return InvalidArgument("an extent divides by zero");
    case Fault::kNodes:
      return ResourceExhausted(base::Cat("an extent has more than ", kExprNodesMax, " terms and factors"));
    case Fault::kDepth: return ResourceExhausted(base::Cat("an extent is nested deeper than ", kExprDepthMax));
    case Fault::kPool:
      return ResourceExhausted(
          base::Cat("the extents of one program take more than ", kExprPoolBytesMax >> 20, " MiB"));
  }
  HIR_CHECK(false);
  return {};
}

// INT64_MIN is left out, so that every constant can be negated.
int64_t ExprPool::Checked(std::optional<int64_t> value) {
  if (value && *value != INT64_MIN) return *value;
  Fail(Fault::kOverflow);
  return 1;
}

const Expr* ExprPool::Intern(ExprKind kind, int64_t value, std::string_view symbol, std::span<const Expr* const> args) {
  size_t hash = Mix(static_cast<size_t>(kind), static_cast<size_t>(value));
  if (!symbol.empty()) hash = Mix(hash, std::hash<std::string_view>()(symbol));
  for (const Expr* arg : args) hash = Mix(hash, reinterpret_cast<size_t>(arg));  // Lookup only, never order.
  const auto [first, last] = interned_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Expr* found = it->second;
    if (found->kind == kind && found->value == value && found->symbol == symbol &&
        std::equal(args.begin(), args.end(), found->args.begin(), found->args.end())) {
      return found;
    }
  }
  uint32_t nodes = 1;
  uint32_t depth = 1;
  for (const Expr* arg : args) {
    nodes += arg->nodes;
    depth = std::max(depth, arg->depth + 1);
    if (nodes > kExprNodesMax) return Fail(Fault::kNodes);
  }
  if (depth > kExprDepthMax) return Fail(Fault::kDepth);
  bytes_ += sizeof(Expr) + 64 + symbol.size() + args.size() * sizeof(Expr*);
  if (bytes_ > kExprPoolBytesMax) return Fail(Fault::kPool);
  auto* name = static_cast<char*>(arena_.allocate(symbol.size() + 1, 1));
  std::copy(symbol.begin(), symbol.end(), name);  // Not memcpy: symbol may be null and empty.
  auto* copy = static_cast<const Expr**>(arena_.allocate((args.size() + 1) * sizeof(Expr*), alignof(Expr*)));
  std::copy(args.begin(), args.end(), copy);
  auto* expr = new (arena_.allocate(sizeof(Expr), alignof(Expr))) Expr{.kind = kind,
                                                                       .value = value,
                                                                       .symbol = {name, symbol.size()},
                                                                       .args = {copy, args.size()},
                                                                       .nodes = nodes,
                                                                       .depth = depth};
  copy[args.size()] = expr;  // One past the arguments: the node as a lone atom, for ToPoly.
  interned_.emplace(hash, expr);
  if (kind == ExprKind::kSymbol) {
    symbol_order_.emplace(expr, symbols_.size());
    symbols_.push_back(expr);
  }
  return expr;
}

const Expr* ExprPool::Const(int64_t value) { return Intern(ExprKind::kConst, Checked(value), {}, {}); }
const Expr* ExprPool::Symbol(std::string_view name) { return Intern(ExprKind::kSymbol, 0, name, {}); }

ExprPool::Poly ExprPool::ToPoly(const Expr* expr) const {
  Poly poly;
  const auto term = [](const Expr* e) -> std::pair<Atoms, int64_t> {
    if (e->kind == ExprKind::kMul) return {e->args, e->value};
    return {Atoms(e->args.data() + e->args.size(), 1), 1};  // See Intern.
  };
  if (expr->kind == ExprKind::kConst) {
    poly.constant = expr->value;
  } else if (expr->kind == ExprKind::kAdd) {
    poly.constant = expr->value;
    for (const Expr* arg : expr->args) poly.terms.push_back(term(arg));
  } else {
    poly.terms.push_back(term(expr));
  }
  return poly;
}

void ExprPool::AddTerm(Poly& poly, Atoms atoms, int64_t coefficient) {
  if (coefficient == 0) return;
  const auto at = std::lower_bound(poly.terms.begin(), poly.terms.end(), atoms,
                                   [](const auto& t, Atoms a) { return AtomsLess(t.first, a); });
  if (at == poly.terms.end() || AtomsLess(atoms, at->first)) {
    poly.terms.insert(at, {atoms, coefficient});
    return;
  }
  at->second = Checked(CheckedAdd(at->second, coefficient));
  if (at->second == 0) poly.terms.erase(at);
}

void ExprPool::JoinQuotients(Poly& poly) {
  const auto is = [](const std::pair<Atoms, int64_t>& term, ExprKind kind) {
    return term.first.size() == 1 && term.first[0]->kind == kind && term.first[0]->args[1]->IsConst();
  };
  for (bool joined = true; joined;) {  // Where x is a quotient itself, there may be another pair.
    joined = false;
    for (size_t i = 0; i < poly.terms.size() && !joined; ++i) {
      if (!is(poly.terms[i], ExprKind::kMod)) continue;
      const auto [atoms, coefficient] = poly.terms[i];
      const Expr* rest = atoms[0];
      const auto scaled = CheckedMul(coefficient, rest->args[1]->value);
      const Expr* quotient = nullptr;
      for (const auto& term : poly.terms) {
        if (!is(term, ExprKind::kFloorDiv) || term.second != scaled) continue;
        if (quotient == nullptr) quotient = FloorDiv(rest->args[0], rest->args[1]);
        joined = joined || term.first[0] == quotient;
      }
      if (!joined) continue;
      std::erase_if(poly.terms, [&](const auto& term) {
        return term.first.size() == 1 && (term.first[0] == quotient || term.first[0] == rest);
      });
      const Poly whole = ToPoly(rest->args[0]);
      const int64_t constant = Checked(CheckedMul(coefficient, whole.constant));
      poly.constant = Checked(CheckedAdd(poly.constant, constant));
      for (const auto& [of_whole, count] : whole.terms)
        AddTerm(poly, of_whole, Checked(CheckedMul(coefficient, count)));
    }
  }
}

const Expr* ExprPool::FromPoly(Poly poly) {
  JoinQuotients(poly);
  std::vector<const Expr*> terms;
  terms.reserve(poly.terms.size());
  for (const auto& [atoms, coefficient] : poly.terms) {
    const bool lone = coefficient == 1 && atoms.size() == 1;
    terms.push_back(lone ? atoms[0] : Intern(ExprKind::kMul, coefficient, {}, atoms));
  }
  if (terms.empty()) return Const(poly.constant);
  if (terms.size() == 1 && poly.constant == 0) return terms[0];
  return Intern(ExprKind::kAdd, poly.constant, {}, terms);
}

const Expr* ExprPool::Add(const Expr* a, const Expr* b) {
  if (a->IsConst(0)) return b;
  if (b->IsConst(0)) return a;
  Poly sum = ToPoly(a);
  Poly other = ToPoly(b);
  sum.constant = Checked(CheckedAdd(sum.constant, other.constant));
  for (const auto& [atoms, coefficient] : other.terms) AddTerm(sum, atoms, coefficient);
  return FromPoly(std::move(sum));
}

const Expr* ExprPool::Sub(const Expr* a, const Expr* b) { return Add(a, Mul(Const(-1), b)); }

const Expr* ExprPool::Mul(const Expr* a, const Expr* b) {
  if (b->IsConst()) std::swap(a, b);
  if (a->IsConst(0) || b->IsConst(1)) return a;
  if (a->IsConst(1)) return b;
  Poly right = ToPoly(b);
  if (a->IsConst()) {  // The terms keep their order.
    right.constant = Checked(CheckedMul(a->value, right.constant));
    for (auto& [atoms, coefficient] : right.terms) coefficient = Checked(CheckedMul(a->value, coefficient));
    return FromPoly(std::move(right));
  }
  Poly left = ToPoly(a);
  if ((left.terms.size() + 1) * (right.terms.size() + 1) > kExprNodesMax) return Fail(Fault::kNodes);
  for (Poly* poly : {&left, &right}) {  // The constant as a term without atoms.
    if (poly->constant != 0) poly->terms.push_back({{}, poly->constant});
  }
  Poly product;
  std::vector<std::vector<const Expr*>> merged;  // Keeps the atoms of `product`.
  merged.reserve(left.terms.size() * right.terms.size());
  for (const auto& [x, cx] : left.terms) {
    for (const auto& [y, cy] : right.terms) {
      const int64_t coefficient = Checked(CheckedMul(cx, cy));
      if (x.empty() && y.empty()) {
        product.constant = Checked(CheckedAdd(product.constant, coefficient));
        continue;
      }
      std::vector<const Expr*>& atoms = merged.emplace_back();
      atoms.reserve(x.size() + y.size());
      std::merge(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(atoms),
                 [](const Expr* p, const Expr* q) { return Compare(p, q) < 0; });
      AddTerm(product, atoms, coefficient);
    }
  }
  return FromPoly(std::move(product));
}

const Expr* ExprPool::Binary(ExprKind kind, const Expr* a, const Expr* b) {
  const Expr* args[] = {a, b};
  return Intern(kind, 0, {}, args);
}

const Expr* ExprPool::FloorDiv(const Expr* a, const Expr* b) {
  if (b->IsConst(0)) return Fail(Fault::kDivisionByZero);
  if (b->IsConst(1)) return a;
  if (a->IsConst(0)) return a;
  if (a == b) return Const(1);  // Extents are divided by positive extents only.
  if (!b->IsConst() || b->value < 0) return Binary(ExprKind::kFloorDiv, a, b);
  // c*q + r over c is q + r/c: split off the terms whose coefficient c divides.
  const int64_t c = b->value;
  Poly poly = ToPoly(a);
  Poly quotient, rest;
  quotient.constant = base::FloorDiv(poly.constant, c);
  rest.constant = base::FloorMod(poly.constant, c);
  for (const auto& [atoms, coefficient] : poly.terms) {
    if (coefficient % c == 0) {
      AddTerm(quotient, atoms, coefficient / c);
    } else {
      AddTerm(rest, atoms, coefficient);
    }
  }
  if (rest.terms.empty()) return FromPoly(std::move(quotient));
  const Expr* remainder = FromPoly(std::move(rest));
  if (remainder->kind == ExprKind::kFloorDiv && remainder->args[1]->IsConst()) {  // (x / c1) / c2 is x / (c1*c2)
    if (const auto both = CheckedMul(remainder->args[1]->value, c)) {
      return Add(FromPoly(std::move(quotient)), FloorDiv(remainder->args[0], Const(*both)));
    }
  }
  return Add(FromPoly(std::move(quotient)), Binary(ExprKind::kFloorDiv, remainder, b));
}

const Expr* ExprPool::Mod(const Expr* a, const Expr* b) {
  if (b->IsConst(0)) return Fail(Fault::kDivisionByZero);
  if (b->IsConst(1) || a == b || a->IsConst(0)) return Const(0);
  if (!b->IsConst() || b->value < 0) return Binary(ExprKind::kMod, a, b);
  const int64_t c = b->value;
  Poly poly = ToPoly(a);
  Poly rest;
  rest.constant = base::FloorMod(poly.constant, c);
  for (const auto& [atoms, coefficient] : poly.terms) {
    if (coefficient % c != 0) AddTerm(rest, atoms, base::FloorMod(coefficient, c));
  }
  if (rest.terms.empty()) return Const(rest.constant);
  return Binary(ExprKind::kMod, FromPoly(std::move(rest)), b);
}

const Expr* ExprPool::CeilDiv(const Expr* a, const Expr* b) {
  if (b->IsConst(0)) return Fail(Fault::kDivisionByZero);
  if (b->IsConst(1)) return a;
  if (a->IsConst() && b->IsConst() && b->value > 0) return Const(base::CeilDiv(a->value, b->value));
  if (b->IsConst() && Mod(a, b)->IsConst(0)) return FloorDiv(a, b);
  return Binary(ExprKind::kCeilDiv, a, b);
}

std::optional<int64_t> ExprPool::Difference(const Expr* a, const Expr* b) const {
  const Poly left = ToPoly(a);
  const Poly right = ToPoly(b);
  const bool same_terms = std::equal(
      left.terms.begin(), left.terms.end(), right.terms.begin(), right.terms.end(), [](const auto& x, const auto& y) {
        return x.second == y.second && std::equal(x.first.begin(), x.first.end(), y.first.begin(), y.first.end());
      });
  return same_terms ? base::CheckedSub(left.constant, right.constant) : std::nullopt;
}

const Expr* ExprPool::Min(const Expr* a, const Expr* b) {
  if (const auto difference = Difference(a, b)) return *difference <= 0 ? a : b;
  return Compare(a, b) < 0 ? Binary(ExprKind::kMin, a, b) : Binary(ExprKind::kMin, b, a);
}

const Expr* ExprPool::Max(const Expr* a, const Expr* b) {
  if (const auto difference = Difference(a, b)) return *difference >= 0 ? a : b;
  return Compare(a, b) < 0 ? Binary(ExprKind::kMax, a, b) : Binary(ExprKind::kMax, b, a);
}

namespace {

bool Mentions(const Expr* expr, const std::unordered_map<std::string_view, const Expr*>& symbols) {
  if (expr->kind == ExprKind::kSymbol) return symbols.contains(expr->symbol);
  return std::any_of(expr->args.begin(), expr->args.end(), [&](const Expr* arg) { return Mentions(arg, symbols); });
}

}  // namespace

const Expr* ExprPool::Substitute(const Expr* expr, const std::unordered_map<std::string_view, const Expr*>& symbols) {
  std::vector<const Expr*> args;
  args.reserve(expr->args.size());
  if (symbols.empty() || !Mentions(expr, symbols)) {  // The canonical form is the same in every pool.
    for (const Expr* arg : expr->args) args.push_back(Substitute(arg, {}));
    return Intern(expr->kind, expr->value, expr->symbol, args);
  }
  for (const Expr* arg : expr->args) args.push_back(Substitute(arg, symbols));
  switch (expr->kind) {
    case ExprKind::kConst: break;
    case ExprKind::kSymbol: return Import(symbols.at(expr->symbol));
    case ExprKind::kFloorDiv: return FloorDiv(args[0], args[1]);
    case ExprKind::kMod: return Mod(args[0], args[1]);
    case ExprKind::kCeilDiv: return CeilDiv(args[0], args[1]);
    case ExprKind::kMin: return Min(args[0], args[1]);
    case ExprKind::kMax: return Max(args[0], args[1]);
    case ExprKind::kMul: {
      const Expr* product = Const(expr->value);
      for (const Expr* arg : args) product = Mul(product, arg);
      return product;
    }
    case ExprKind::kAdd: {
      Poly sum;  // All at once: partial sums would be interned, each as long as the whole.
      sum.constant = expr->value;
      for (const Expr* arg : args) {
        const Poly term = ToPoly(arg);
        sum.constant = Checked(CheckedAdd(sum.constant, term.constant));
        for (const auto& [atoms, coefficient] : term.terms) AddTerm(sum, atoms, coefficient);
      }
      return FromPoly(std::move(sum));
    }
  }
  HIR_CHECK(false);
  return nullptr;
}

}  // namespace hir::ir
