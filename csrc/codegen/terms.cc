#include "csrc/codegen/terms.h"

#include <algorithm>

namespace hir::codegen {

using fusion::Element;
using fusion::Prim;

namespace {

constexpr size_t kTermsMax = 4;

std::vector<Term> Split(const Element* body, const std::function<bool(const Element*)>& is_fast) {
  if (!is_fast(body)) return {{{body}, {}}};
  const std::vector<Term> whole = {{{}, {body}}};
  if (body->kind != Element::Kind::kPrim || body->dtype != DType::kFloat32) return whole;
  if (body->prim != Prim::kAdd && body->prim != Prim::kMul) return whole;
  const std::vector<Term> a = Split(body->args[0], is_fast), b = Split(body->args[1], is_fast);
  std::vector<Term> terms;
  if (body->prim == Prim::kAdd) {
    terms = a;
    terms.insert(terms.end(), b.begin(), b.end());
  } else {
    for (const Term& x : a) {
      for (const Term& y : b) {
        Term& term = terms.emplace_back(x);
        term.slow.insert(term.slow.end(), y.slow.begin(), y.slow.end());
        term.fast.insert(term.fast.end(), y.fast.begin(), y.fast.end());
      }
    }
  }
  const bool pays = std::ranges::any_of(terms, [](const Term& term) { return !term.slow.empty(); });
  return pays && terms.size() <= kTermsMax ? terms : whole;
}

}  // namespace

std::vector<Term> TermsOf(const Element* body, const std::function<bool(const Element*)>& is_fast) {
  std::vector<Term> terms = Split(body, is_fast);
  const bool ok = std::ranges::all_of(terms, [](const Term& term) { return !term.fast.empty(); });
  return ok ? terms : std::vector<Term>{{{}, {body}}};
}

}  // namespace hir::codegen
