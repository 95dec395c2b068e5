// Searches for loads below elements.
#include "csrc/codegen/gpu/loads.h"

#include <algorithm>
#include <optional>

namespace hir::codegen::gpu {

using fusion::Prim;

void Loads::Visit(const Element* element, int guard, Search& search) {
  if (!element->has_load) return;
  if (!search.seen.insert({element, guard}).second) return;
  if (element->kind == Element::Kind::kLoad) {
    if (!places_.IsInMemory(element)) return;
    for (const Element* arg : element->args) Visit(arg, guard, search);
    if (places_.IsVectorLoad({element, guard})) {
      search.found.push_back({element, guard});
    } else if (search.counts_misfits && dependences_.IsLane(dependences_.VarsOf(element) | guards_.VarsOf(guard)) &&
               !places_.IsAcrossVectors({element, guard})) {
      ++search.misfits;
    }
    return;
  }
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect) {
    const Element* condition = element->args[0];
    if (const std::optional<bool> decided = math_.Decide(condition)) {
      Visit(element->args[*decided ? 1 : 2], guard, search);
      return;
    }
    if (const std::optional<bool> known = guards_.Known(guard, condition)) {
      Visit(element->args[*known ? 1 : 2], guard, search);
      return;
    }
    if (math_.GuardsSides(element)) {
      if (condition->has_load) Visit(condition, guard, search);
      for (const bool holds : {true, false}) {
        const Element* side = element->args[holds ? 1 : 2];
        if (side->has_load) Visit(side, guards_.Add(guard, condition, holds), search);
      }
      return;
    }
  }
  for (const Element* arg : element->args) Visit(arg, guard, search);
}

std::vector<Access> Loads::Vectors(const std::vector<const Element*>& roots, int guard) {
  Search search;
  for (const Element* root : roots) Visit(root, guard, search);
  return std::move(search.found);
}

const ir::Expr* Loads::RowOffset(const Region& region, int variable) {
  std::vector<std::pair<const ir::Expr*, int>> counts;
  const auto count = [&](const Places::Offset& offset, int weight) {
    const auto split = offset.data.empty() ? math_.Split(offset.affine, variable) : std::nullopt;
    if (!split || !split->stride->IsConst(1) || !dependences_.HasAny(dependences_.VarsOf(split->base), region.grid))
      return;
    const auto known = std::ranges::find(counts, split->base, &std::pair<const ir::Expr*, int>::first);
    if (known != counts.end()) {
      known->second += weight;
    } else {
      counts.emplace_back(split->base, weight);
    }
  };
  std::set<const Element*> seen;
  const auto visit = [&](const auto& self, const Element* e) -> void {
    if (!e->has_load || !seen.insert(e).second) return;
    for (const Element* arg : e->args) self(self, arg);
    if (e->kind == Element::Kind::kLoad && places_.IsInMemory(e)) count(places_.OffsetOf({e, 0}), 1);
  };
  const bool is_of_grid = std::ranges::find(region.grid, variable, &Loop::variable) != region.grid.end();
  for (const Phase& phase : region.phases) {
    for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
    for (const Store& store : phase.stores) {
      visit(visit, store.value);
      if (!phase.loops.empty() || is_of_grid) count(places_.OffsetOf(store.tensor, store.index), 2);
    }
  }
  const auto most = std::ranges::max_element(counts, {}, &std::pair<const ir::Expr*, int>::second);
  return most == counts.end() ? nullptr : most->first;
}

int Loads::MisfitsOf(const Loop& loop) {
  if (loop.variable != vector_.variable()) return 0;
  ir::ExprPool& pool = math_.pool();
  const ir::Expr* begin = pool.Import(loop.begin);
  const int lanes = vector_.lanes();
  const bool ends = vector_.is_ragged() || conditions_.Divisible(pool.Sub(pool.Import(loop.end), begin), lanes);
  return !conditions_.Divisible(begin, lanes) || !ends ? 1000 : 0;
}

int Loads::MisfitsOf(const Store& store) {
  const Places::Offset offset = places_.OffsetOf(store.tensor, store.index);
  return places_.IsLane(offset) && !places_.IsVector(offset, store.tensor) ? 2 : 0;
}

int Loads::Misfits(const Region& region) {
  int misfits = 0;
  Search search = {.counts_misfits = true};
  conditions_.Probe([&] {
    for (const Loop& loop : region.grid) misfits += MisfitsOf(loop);
    for (const Loop& loop : region.serial) misfits += MisfitsOf(loop);
    for (const Phase& phase : region.phases) {
      for (const Loop& loop : phase.loops) misfits += MisfitsOf(loop);
      for (const Accumulator& accumulator : phase.accumulators) Visit(accumulator.body, 0, search);
      for (const Carried& carried : phase.carried) Visit(carried.accumulator.body, 0, search);
      for (const Nested& nested : phase.nested) Visit(nested.accumulator.body, 0, search);
      for (const Store& store : phase.stores) {
        Visit(store.value, 0, search);
        misfits += MisfitsOf(store);
      }
    }
  });
  return misfits + search.misfits;
}

void Loads::VisitScalars(const Element* element, std::span<const Loop> rows, std::span<const Loop> columns,
                         std::set<const Element*>& seen, std::vector<Access>& found) {
  if (!element->has_load || !seen.insert(element).second) return;
  if (element->kind == Element::Kind::kLoad) {
    if (places_.IsInMemory(element) && dependences_.VariesWith(element, rows) &&
        !dependences_.VariesWith(element, columns) && math_.ToExpr(element) == nullptr &&
        std::ranges::none_of(element->args, [&](const Element* arg) { return arg->has_load; }))
      found.push_back({element, 0});
    return;
  }
  // Sides that a condition may forbid are not looked at.
  if (element->kind == Element::Kind::kPrim && element->prim == Prim::kSelect && math_.GuardsSides(element)) return;
  for (const Element* arg : element->args) VisitScalars(arg, rows, columns, seen, found);
}

std::vector<Access> Loads::Scalars(const std::vector<const Element*>& roots, std::span<const Loop> rows,
                                   std::span<const Loop> columns) {
  std::vector<Access> found;
  std::set<const Element*> seen;
  for (const Element* root : roots) VisitScalars(root, rows, columns, seen, found);
  return found;
}

}  // namespace hir::codegen::gpu
