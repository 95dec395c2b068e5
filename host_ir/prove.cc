// The proofs of region.h. All symbols are extents, coordinates or loop bounds: >= 0.
#include <algorithm>

#include "csrc/base/checked.h"
#include "host_ir/region.h"
#include "host_ir/shapes.h"

namespace hir::host {
namespace {

using ir::Expr;
using ir::ExprKind;

struct Term {
  std::vector<const Expr*> atoms;
  int64_t coefficient = 0;
};

std::vector<Term> TermsOf(const Expr* sum) {
  std::vector<Term> terms;
  const auto add = [&terms](const Expr* e) {
    if (e->kind == ExprKind::kMul) {
      terms.push_back({{e->args.begin(), e->args.end()}, e->value});
    } else {
      terms.push_back({{e}, 1});
    }
  };
  if (sum->kind == ExprKind::kAdd) {
    for (const Expr* term : sum->args) add(term);
  } else if (sum->kind != ExprKind::kConst) {
    add(sum);
  }
  return terms;
}

bool NonNegative(ir::ExprPool& pool, const Expr* e, int depth);

// floor(n/c) >= floor(m/d) follows from n*d >= m*c.
bool QuotientAtLeast(ir::ExprPool& pool, const Expr* a, const Expr* b, int depth) {
  const bool quotients = a->kind == ExprKind::kFloorDiv && b->kind == ExprKind::kFloorDiv;
  if (!quotients || !a->args[1]->IsConst() || !b->args[1]->IsConst()) return false;
  const Expr* left = pool.Mul(a->args[0], b->args[1]);
  const Expr* right = pool.Mul(b->args[0], a->args[1]);
  return a->args[1]->value > 0 && b->args[1]->value > 0 && NonNegative(pool, pool.Sub(left, right), depth + 1);
}

// a >= b, factor by factor: all but one are equal, and that one is a larger quotient; or b lacks
// nothing but it.
bool ProductAtLeast(ir::ExprPool& pool, const std::vector<const Expr*>& a, const std::vector<const Expr*>& b,
                    int depth) {
  std::vector<const Expr*> more = a, less;
  for (const Expr* atom : b) {
    const auto at = std::find(more.begin(), more.end(), atom);
    if (at == more.end()) {
      less.push_back(atom);
    } else {
      more.erase(at);
    }
  }
  if (more.size() != 1 || less.size() != 1) return false;
  for (const Expr* atom : a) {
    if (atom != more[0] && !NonNegative(pool, atom, depth + 1)) return false;
  }
  if (QuotientAtLeast(pool, more[0], less[0], depth)) return true;
  // x >= floor(x / c), for x >= 0.
  const bool part = less[0]->kind == ExprKind::kFloorDiv && less[0]->args[1]->IsConst() && less[0]->args[1]->value > 0;
  return part && NonNegative(pool, pool.Sub(pool.Mul(more[0], less[0]->args[1]), less[0]->args[0]), depth + 1);
}

bool NonNegativeSum(ir::ExprPool& pool, const Expr* e, int depth) {
  const int64_t constant = e->kind == ExprKind::kAdd || e->kind == ExprKind::kConst ? e->value : 0;
  if (constant < 0) return false;
  std::vector<Term> terms = TermsOf(e);
  for (const Term& term : terms) {
    for (const Expr* atom : term.atoms) {
      if (atom->kind != ExprKind::kSymbol && !NonNegative(pool, atom, depth + 1)) return false;
    }
  }
  for (Term& negative : terms) {  // Each is paid for by larger positive ones.
    for (Term& positive : terms) {
      if (negative.coefficient >= 0) break;
      if (positive.coefficient <= 0 || !ProductAtLeast(pool, positive.atoms, negative.atoms, depth)) continue;
      const int64_t paid = std::min(positive.coefficient, -negative.coefficient);
      positive.coefficient -= paid;
      negative.coefficient += paid;
    }
    if (negative.coefficient < 0) return false;
  }
  return true;
}

bool NonNegative(ir::ExprPool& pool, const Expr* e, int depth) {
  if (depth > 8) return false;
  switch (e->kind) {
    case ExprKind::kConst: return e->value >= 0;
    case ExprKind::kSymbol: return true;
    case ExprKind::kFloorDiv:
    case ExprKind::kCeilDiv:
      return NonNegative(pool, e->args[0], depth + 1) && NonNegative(pool, e->args[1], depth + 1);
    case ExprKind::kMod: return NonNegative(pool, e->args[1], depth + 1);
    case ExprKind::kMin: return NonNegative(pool, e->args[0], depth + 1) && NonNegative(pool, e->args[1], depth + 1);
    case ExprKind::kMax: return NonNegative(pool, e->args[0], depth + 1) || NonNegative(pool, e->args[1], depth + 1);
    case ExprKind::kMul:
    case ExprKind::kAdd: return NonNegativeSum(pool, e, depth);
  }
  return false;
}

bool Equal(const Interval& a, const Interval& b) { return a.from == b.from && a.to == b.to; }

bool SameRoot(const Region& a, const Region& b) { return a.root_offset == b.root_offset && a.root == b.root; }

// Whether intervals of `parts`, put in a row, cover `whole`, which does not reach beyond `end`, or before 0: what binds
// later is checked then.
bool ChainCovers(ir::ExprPool& pool, const Interval& whole, const Expr* end, std::vector<Interval> parts) {
  const Expr* reached = whole.from;
  for (bool moved = true; moved;) {
    if (ProveLessEqual(pool, whole.to, reached)) return true;
    moved = false;
    for (Interval& part : parts) {
      if (part.from == nullptr || (!part.from->IsConst(0) && !ProveLessEqual(pool, part.from, reached))) continue;
      if (part.to == end) return true;
      if (!ProveLessEqual(pool, reached, part.to)) continue;
      reached = part.to;
      part = {};
      moved = true;
      break;
    }
  }
  return false;
}

using Box = std::vector<Interval>;  // One interval an axis of a root.

// Whether `part` reaches at least as far as `region`, whose root it is in, along `axis`.
bool Spans(ir::ExprPool& pool, const Box& part, const Region& region, size_t axis) {
  const Interval& have = part[axis];
  const Interval& want = region.box[axis];
  if (have.from->IsConst(0) && have.to == region.root[axis]) return true;
  return ProveLessEqual(pool, have.from, want.from) && ProveLessEqual(pool, want.to, have.to);
}

// Whether those of `boxes` that agree with `region`, or reach further, in all axes but one, lie side by side along that
// one and cover it.
bool RowCovers(ir::ExprPool& pool, const Region& region, const std::vector<Box>& boxes) {
  for (size_t axis = 0; axis < region.box.size(); ++axis) {
    std::vector<Interval> along;
    for (const Box& box : boxes) {
      bool spans = true;
      for (size_t i = 0; spans && i < box.size(); ++i) spans = i == axis || Spans(pool, box, region, i);
      if (spans) along.push_back(box[axis]);
    }
    if (ChainCovers(pool, region.box[axis], region.root[axis], along)) return true;
  }
  return false;
}

// Makes one box of two that lie side by side along `axis` and agree in the others, as long as there are such.
bool JoinAlong(size_t axis, std::vector<Box>& boxes) {
  const auto side_by_side = [axis](const Box& a, const Box& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (i != axis && !Equal(a[i], b[i])) return false;
    }
    return a[axis].to == b[axis].from;
  };
  bool joined = false;
  for (size_t i = 0; i < boxes.size(); ++i) {
    for (size_t j = 0; j < boxes.size();) {
      if (i == j || !side_by_side(boxes[i], boxes[j])) {
        ++j;
        continue;
      }
      boxes[i][axis].to = boxes[j][axis].to;
      boxes.erase(boxes.begin() + static_cast<ptrdiff_t>(j));
      if (j < i) --i;
      j = 0;
      joined = true;
    }
  }
  return joined;
}

// Whether `parts` of one root with `region` cover it: in a row, or as a grid, of which each row is joined first.
bool BoxesCover(ir::ExprPool& pool, const Region& region, std::span<const Region* const> parts) {
  std::vector<Box> boxes;
  for (const Region* part : parts) {
    if (part->base == region.base && part->exact && SameRoot(*part, region)) boxes.push_back(part->box);
  }
  while (!RowCovers(pool, region, boxes)) {
    bool joined = false;
    for (size_t axis = region.box.size(); !joined && axis-- > 0;) joined = JoinAlong(axis, boxes);
    if (!joined) return false;
  }
  return true;
}

// All of the array that `region` is a part of.
Region RootOf(ir::ExprPool& pool, const Region& region) {
  Region root = region;
  for (size_t i = 0; i < root.box.size(); ++i) root.box[i] = {pool.Const(0), root.root[i]};
  return root;
}

}  // namespace

bool ProveLessEqual(ir::ExprPool& pool, const Expr* a, const Expr* b) {
  return a == b || (NonNegative(pool, pool.Sub(b, a), 0) && !pool.overflowed());
}

bool Identical(const Region& a, const Region& b) {
  return a.exact && b.exact && a.base == b.base && SameRoot(a, b) &&
         std::equal(a.box.begin(), a.box.end(), b.box.begin(), b.box.end(), Equal);
}

bool ProveDisjoint(ir::ExprPool& pool, const Region& a, const Region& b) {
  if (a.base != b.base) return true;
  const Interval x = Flat(pool, a), y = Flat(pool, b);
  if (ProveLessEqual(pool, x.to, y.from) || ProveLessEqual(pool, y.to, x.from)) return true;
  if (!SameRoot(a, b)) return false;
  for (size_t i = 0; i < a.box.size(); ++i) {
    if (ProveLessEqual(pool, a.box[i].to, b.box[i].from) || ProveLessEqual(pool, b.box[i].to, a.box[i].from))
      return true;
  }
  return false;
}

bool ProveSame(ir::ExprPool& pool, const Region& a, const Region& b) {
  if (a.base != b.base) return false;
  if (Identical(a, b)) return true;
  return IsContiguous(pool, a) && IsContiguous(pool, b) && Equal(Flat(pool, a), Flat(pool, b));
}

bool ProveCovered(ir::ExprPool& pool, const Region& region, std::span<const Region* const> parts) {
  // An array that is covered is a part of what it was reshaped from, beside others of its kind: of loops in loops.
  std::vector<const Region*> known(parts.begin(), parts.end());
  std::vector<Interval> flat;
  for (size_t k = 0; k < known.size(); ++k) {
    const Region& part = *known[k];
    if (part.base != region.base) continue;
    if (ProveSame(pool, region, part)) return true;
    const bool is_whole = IsWhole(part);
    if (is_whole || IsContiguous(pool, part)) flat.push_back(Flat(pool, part));
    const Region root = RootOf(pool, part);
    const bool is_covered = is_whole || BoxesCover(pool, root, known);
    if (is_covered && !is_whole) flat.push_back(Flat(pool, root));
    const Region* const outer = part.of.get();
    const auto is_known = [&](const Region* other) { return Identical(*outer, *other); };
    if (is_covered && outer != nullptr && std::ranges::none_of(known, is_known)) known.push_back(outer);
  }
  if (ChainCovers(pool, Flat(pool, region), StorageElements(pool, *region.base->type), flat)) {
    return true;
  }
  return BoxesCover(pool, region, known);
}

}  // namespace hir::host
