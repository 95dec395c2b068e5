// Reductions of a few elements that do not lie side by side, such as the mean of two planes, are part of what reads
// them: each result is an expression of those elements, and the kernel is a pointwise one, whose threads have several
// results each.
#include <string_view>
#include <unordered_map>

#include "csrc/codegen/schedules.h"
#include "csrc/codegen/walks.h"

namespace hir::codegen {
namespace {

using fusion::Element;
using fusion::Prim;

// The variables of `loops` in trip number `trip` of all.
std::unordered_map<int, int64_t> PlaceOf(const std::vector<Loop>& loops, int64_t trip) {
  std::unordered_map<int, int64_t> place;
  for (size_t i = loops.size(); i-- > 0;) {
    place[loops[i].variable] = trip % loops[i].end->value;
    trip /= loops[i].end->value;
  }
  return place;
}

// The trips of all, where those are known and few; else 0.
int64_t FewTrips(const std::vector<Loop>& loops, int64_t most) {
  int64_t trips = 1;
  for (const Loop& loop : loops) {
    if (!loop.begin->IsConst(0) || !loop.end->IsConst() || loop.end->value > most) return 0;
    trips *= loop.end->value;
  }
  return trips <= most ? trips : 0;
}

}  // namespace

void InlineShortReductions(NestBuilder& builder, Region& region) {
  const int64_t most = WalksOf(builder.target()).inlined_trips;
  if (most == 0 || region.phases.empty() || !region.serial.empty() || ReducesInnermost(builder)) return;
  for (size_t p = 0; p < region.phases.size(); ++p) {
    const Phase& phase = region.phases[p];
    const bool is_last = p + 1 == region.phases.size();
    if (!phase.carried.empty() || !phase.nested.empty() || phase.loops.empty() != is_last) return;
    if (!is_last && (!phase.stores.empty() || FewTrips(phase.loops, most) == 0)) return;
    for (const Accumulator& accumulator : phase.accumulators) {
      if (!IsFloat(accumulator.dtype)) return;  // Others are reduced in types of their own.
    }
  }
  fusion::ElementBuilder& elements = builder.nest().elements;
  ir::ExprPool& pool = builder.nest().exprs;
  std::unordered_map<const ir::Value*, const Element*> results;
  const auto result_of = [&](const Element* e) -> const Element* {
    const auto made = e->kind == Element::Kind::kLoad ? results.find(e->value) : results.end();
    return made == results.end() ? nullptr : made->second;
  };
  for (Phase& phase : region.phases) {
    const int64_t trips = phase.loops.empty() ? 0 : FewTrips(phase.loops, most);
    for (const Accumulator& accumulator : phase.accumulators) {
      const Element* all = nullptr;
      for (int64_t trip = 0; trip < trips; ++trip) {
        const std::unordered_map<int, int64_t> place = PlaceOf(phase.loops, trip);
        std::unordered_map<std::string_view, const ir::Expr*> symbols;
        for (const auto& [variable, at] : place)
          symbols.emplace(pool.Symbol(VariableSymbol(variable))->symbol, pool.Const(at));
        const Element* own = builder.Rewrite(accumulator.body, [&](const Element* e) -> const Element* {
          if (const Element* made = result_of(e)) return made;
          if (e->kind == Element::Kind::kIndex) {
            const auto at = place.find(static_cast<int>(e->integer));
            return at == place.end() ? nullptr : elements.Int(DType::kInt64, at->second);
          }
          if (e->kind != Element::Kind::kExtent || !HasVariable(e->extent)) return nullptr;
          return elements.Extent(pool.Substitute(pool.Import(e->extent), symbols));
        });
        all = all == nullptr ? own : elements.Apply(fusion::InfoOf(accumulator.kind).combine, {all, own});
      }
      results[accumulator.value] = elements.Convert(accumulator.value->type->dtype, all);
    }
  }
  Phase last = std::move(region.phases.back());
  for (Store& store : last.stores) store.value = builder.Rewrite(store.value, result_of);
  region.phases.clear();
  region.phases.push_back(std::move(last));
}

}  // namespace hir::codegen
