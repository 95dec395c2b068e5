// Which reductions are such, and what is computed for them. S - n * c is off by no more than S is, so that the term of
// a part is off by the squares of that.
#include "csrc/codegen/paired.h"

#include <algorithm>
#include <limits>
#include <set>

namespace hir::codegen {
namespace {

constexpr int64_t kElementsOfHead = 16;

using fusion::Element;
using fusion::Prim;
using fusion::ReduceKind;

bool IsPrim(const Element* e, Prim prim) { return e->kind == Element::Kind::kPrim && e->prim == prim; }
bool IsResultOf(const Element* e, const Accumulator& accumulator) {
  return e->kind == Element::Kind::kLoad && e->value == accumulator.value;
}

// Whether `e` is the same in all iterations of the loops.
bool IsInvariant(const Element* e, const std::vector<Loop>& loops, std::set<const Element*>& seen) {
  if (!seen.insert(e).second) return true;
  for (const int variable : VariablesOf(*e)) {
    if (std::ranges::find(loops, variable, &Loop::variable) != loops.end()) return false;
  }
  return std::ranges::all_of(e->args, [&](const Element* arg) { return IsInvariant(arg, loops, seen); });
}

// c of (x - c)^2, where `sum` adds up all x; else null.
const Element* CenterOf(const Phase& phase, const Accumulator& sum, const Element* body) {
  if (sum.kind != ReduceKind::kSum || !IsPrim(body, Prim::kMul) || body->args[0] != body->args[1]) return nullptr;
  const Element* deviation = body->args[0];
  if (!IsPrim(deviation, Prim::kSub)) return nullptr;
  const size_t of = deviation->args[0] == sum.body ? 0 : 1;
  const Element* center = deviation->args[1 - of];
  std::set<const Element*> seen;
  return deviation->args[of] == sum.body && IsInvariant(center, phase.loops, seen) ? center : nullptr;
}

// exp(x - max).
bool IsExponential(const Accumulator& maximum, const Element* body) {
  if (maximum.kind != ReduceKind::kMax || !IsPrim(body, Prim::kExp)) return false;
  const Element* below = body->args[0];
  return IsPrim(below, Prim::kSub) && below->args[0] == maximum.body && IsResultOf(below->args[1], maximum);
}

}  // namespace

std::optional<std::vector<Paired>> PairedOf(NestBuilder& builder, const Region& region, size_t first, size_t second) {
  const Phase& phase = region.phases[first];
  const Phase& other = region.phases[second];
  if (!std::ranges::equal(phase.loops, other.loops, {}, &Loop::variable, &Loop::variable)) return {};
  std::set<const ir::Value*> made, elsewhere;  // By phase `first`, and by others, which may not have been reduced.
  for (size_t p = 0; p < region.phases.size(); ++p) {
    for (const Accumulator& accumulator : region.phases[p].accumulators)
      (p == first ? made : elsewhere).insert(accumulator.value);
  }
  std::set<const ir::Value*> all_made = made;
  all_made.insert(elsewhere.begin(), elsewhere.end());
  if (std::ranges::any_of(other.stores, [&](const Store& s) { return builder.Reads(s.value, all_made); })) return {};
  std::vector<Paired> all;
  for (const Accumulator& accumulator : other.accumulators) {
    const bool is_float = accumulator.dtype == DType::kFloat32 || accumulator.dtype == DType::kFloat64;
    if (accumulator.kind != ReduceKind::kSum || !is_float) return {};
    std::optional<Paired> paired;
    for (size_t k = 0; k < phase.accumulators.size() && !paired; ++k) {
      const Accumulator& candidate = phase.accumulators[k];
      if (candidate.dtype != accumulator.dtype || candidate.value->type->dtype != accumulator.dtype) continue;
      const Element* center = CenterOf(phase, candidate, accumulator.body);
      if (center != nullptr && builder.Reads(center, made) && !builder.Reads(center, elsewhere)) {
        paired = {k, center};
      } else if (IsExponential(candidate, accumulator.body)) {
        paired = {k, nullptr};
      }
    }
    if (!paired) return {};
    all.push_back(*paired);
  }
  return all;
}

Deviations DeviationsOfPart(NestBuilder& builder, const Accumulator& first, const Element* head_count,
                            const Element* count) {
  fusion::ElementBuilder& elements = builder.nest().elements;
  const DType dtype = first.dtype;
  const auto sum_of = [&](const Element* body) {
    return Accumulator{builder.MakeValue(dtype, {}, "of_part"), ReduceKind::kSum, dtype, body};
  };
  const auto result_of = [&](const Accumulator& accumulator) { return elements.MakeLoad(accumulator.value, {}); };
  Deviations made;
  made.head = sum_of(first.body);
  const Element* mean = elements.Apply(Prim::kDiv, {result_of(made.head), head_count});
  const Element* deviation = elements.Apply(Prim::kSub, {first.body, mean});
  made.shifted[0] = sum_of(deviation);
  made.shifted[1] = sum_of(elements.Apply(Prim::kMul, {deviation, deviation}));
  const Element* shift = result_of(made.shifted[0]);
  const Element* at_least_1 = elements.Apply(Prim::kMax, {count, elements.Float(dtype, 1)});
  const Element* less = elements.Apply(Prim::kMul, {shift, elements.Apply(Prim::kDiv, {shift, at_least_1})});
  const Element* squares = elements.Apply(Prim::kSub, {result_of(made.shifted[1]), less});
  made.result = elements.Apply(Prim::kMax, {squares, elements.Float(dtype, 0)});  // Rounding may leave less.
  return made;
}

const Element* TermOfPart(NestBuilder& builder, const Paired& paired, const Accumulator& second,
                          const Element* first_part, const Element* second_part, const Element* count) {
  fusion::ElementBuilder& elements = builder.nest().elements;
  const DType dtype = second.dtype;
  const Element* zero = elements.Float(dtype, 0);
  // A part of nothing adds nothing, though the whole be infinite.
  const auto of_elements = [&](const Element* term) {
    return elements.Select(elements.Apply(Prim::kGt, {count, zero}), term, zero);
  };
  if (paired.center != nullptr) {
    const Element* off = elements.Apply(Prim::kSub, {first_part, elements.Apply(Prim::kMul, {count, paired.center})});
    const Element* shift = elements.Apply(Prim::kMul, {off, elements.Apply(Prim::kDiv, {off, count})});
    return of_elements(elements.Apply(Prim::kAdd, {second_part, shift}));
  }
  // A part of nothing but -inf has a sum of NaN, and counts for nothing beside others: the exponential is 0.
  const Element* least = elements.Float(dtype, -std::numeric_limits<double>::infinity());
  const Element* sum = elements.Select(elements.Apply(Prim::kGt, {first_part, least}), second_part, zero);
  const Element* below = elements.Apply(Prim::kSub, {first_part, second.body->args[0]->args[1]});
  return of_elements(elements.Apply(Prim::kMul, {sum, elements.Apply(Prim::kExp, {below})}));
}

void ReadOnce(NestBuilder& builder, Region& region, size_t first, size_t second) {
  const auto paired = PairedOf(builder, region, first, second);
  const auto is_exponential = [](const Paired& pair) { return pair.center == nullptr; };
  if (!paired || std::ranges::any_of(*paired, is_exponential)) return;
  fusion::ElementBuilder& elements = builder.nest().elements;
  ir::ExprPool& pool = builder.nest().exprs;
  // The head is cut from the longest loop.
  Phase head;
  head.loops = region.phases[first].loops;
  const auto longest = std::ranges::max_element(
      head.loops, {}, [&](const Loop& loop) { return builder.facts().ValueOf(loop.end).value_or(0); });
  const auto count_of = [&](DType dtype) {
    const ir::Expr* trips = pool.Const(1);
    for (const Loop& loop : head.loops) trips = pool.Mul(trips, loop.end);
    return elements.Convert(dtype, elements.Extent(trips));
  };
  const std::vector<Accumulator> sums = region.phases[first].accumulators;
  std::vector<Accumulator> squares = region.phases[second].accumulators;
  std::vector<const Element*> counts;
  for (const Accumulator& accumulator : squares) counts.push_back(count_of(accumulator.dtype));
  // The head ends with a whole vector, where the range has one.
  const int64_t unit = builder.facts().AtLeast(longest->end, kElementsOfHead, true) ? kElementsOfHead : 1;
  longest->end = pool.Mul(pool.CeilDiv(longest->end, pool.Const(kHeads * unit)), pool.Const(unit));
  for (size_t k = 0; k < squares.size(); ++k) {
    const Paired& pair = (*paired)[k];
    const Accumulator& sum = sums[pair.first];
    Deviations of_all = DeviationsOfPart(builder, sum, count_of(squares[k].dtype), counts[k]);
    head.accumulators.push_back(of_all.head);
    std::vector<Accumulator>& together = region.phases[first].accumulators;
    together.insert(together.end(), std::begin(of_all.shifted), std::end(of_all.shifted));
    const Element* own = elements.MakeLoad(sum.value, builder.RowIndex(sum.value));
    squares[k].body = TermOfPart(builder, pair, squares[k], own, of_all.result, counts[k]);
  }
  // One term is left to add.
  region.phases[second].accumulators = std::move(squares);
  region.phases[second].loops = {{builder.NewVariable(), pool.Const(0), pool.Const(1)}};
  region.phases.insert(region.phases.begin() + static_cast<std::ptrdiff_t>(first), std::move(head));
}

}  // namespace hir::codegen
