#include "csrc/codegen/cpu/saved.h"

#include <algorithm>
#include <unordered_set>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/pairs.h"

namespace hir::codegen::cpu {
namespace {

using fusion::Element;
using fusion::Prim;

constexpr int64_t kSavedTripsMax = 8192;       // With the row itself they stay in the second-level cache.
constexpr int64_t kSavedBytesMax = 256 << 10;  // All of them, a quarter of that cache.

bool IsCostly(const Element* element) {
  return element->kind == Element::Kind::kPrim && InfoOf(element->prim).cost > fusion::PrimCost::kRoot;
}

void Collect(const Element* element, std::unordered_set<const Element*>& seen) {
  if (!seen.insert(element).second) return;
  for (const Element* arg : element->args) Collect(arg, seen);
}

std::unordered_set<const Element*> ElementsOf(const Phase& phase) {
  std::unordered_set<const Element*> seen;
  for (const Accumulator& accumulator : phase.accumulators) Collect(accumulator.body, seen);
  for (const Carried& carried : phase.carried) Collect(carried.accumulator.body, seen);
  for (const Nested& nested : phase.nested) Collect(nested.accumulator.body, seen);
  for (const Store& store : phase.stores) Collect(store.value, seen);
  return seen;
}

// Slower than a load: worth hoisting out of a loop.
bool IsSlow(const Element* element) {
  const bool divides = element->kind == Element::Kind::kPrim && element->prim == Prim::kDiv;
  const bool computes = element->kind == Element::Kind::kPrim && fusion::IsFunction(element->prim);
  return IsFloat(element->dtype) && (divides || computes);
}

bool HasCost(const Element* element, std::unordered_map<const Element*, bool>& known) {
  const auto found = known.find(element);
  if (found != known.end()) return found->second;
  bool has = IsCostly(element);
  for (const Element* arg : element->args) has = has || HasCost(arg, known);
  return known[element] = has;
}

}  // namespace

void SavedElements::Choose(const Region& region) {
  saved_.clear();
  saved_order_.clear();
  if (region.columns) {
    ChooseColumns(region);
    return;
  }
  std::unordered_map<const Element*, bool> costs;
  int64_t bytes = 0;  // Of those saved.
  std::vector<std::unordered_set<const Element*>> elements;
  for (const Phase& phase : region.phases) elements.push_back(ElementsOf(phase));
  for (size_t q = 1; q < region.phases.size(); ++q) {
    for (size_t p = 0; p < q; ++p) {
      const Phase& first = region.phases[p];
      const Phase& later = region.phases[q];
      if (first.loops.size() != 1 || later.loops.size() != 1) continue;
      const Loop& loop = first.loops[0];
      if (loop.variable != later.loops[0].variable || !loop.begin->IsConst(0) || !loop.end->IsConst() ||
          loop.end->value > kSavedTripsMax) {
        continue;
      }
      // Under a condition an element may not be computed at every trip.
      const auto is_guarded = [&](const Element* e) {
        return e->kind == Element::Kind::kPrim && e->prim == Prim::kSelect && elements_.math().GuardsSides(e);
      };
      if (std::ranges::any_of(elements[p], is_guarded) || std::ranges::any_of(elements[q], is_guarded)) continue;
      std::unordered_set<const Element*> seen;
      const auto visit = [&](const auto& self, const Element* e) -> void {
        if (!seen.insert(e).second || !HasCost(e, costs) || saved_.contains(e)) return;
        const bool fits = elements[p].contains(e) && e->dtype != DType::kBool &&
                          elements_.math().ToExpr(e) == nullptr && e->kind != Element::Kind::kLoad &&
                          (elements_.dependences().Of(e) & elements_.scopes().BitOf(loop.variable)) != 0;
        if (!fits) {
          for (const Element* arg : e->args) self(self, arg);
          return;
        }
        const int64_t lanes = widths_.LanesFor(loop);
        const int64_t size = (loop.end->value + lanes - 1) / lanes * lanes;
        if (bytes + size * DTypeBytes(e->dtype) > kSavedBytesMax) return;
        bytes += size * DTypeBytes(e->dtype);
        saved_[e] = {p, loop.variable, elements_.writer().Alloca(TypeOf(e->dtype), size)};
        saved_order_.push_back(e);
      };
      for (const Accumulator& accumulator : later.accumulators) visit(visit, accumulator.body);
      for (const Carried& carried : later.carried) visit(visit, carried.accumulator.body);
      for (const Store& store : later.stores) visit(visit, store.value);
    }
  }
  elements_.dependences().ForgetElements();  // Results of accumulators were not known yet.
}

void SavedElements::ChooseColumns(const Region& region) {
  std::unordered_map<const ir::Value*, size_t> made;  // Results, by phase.
  int64_t bytes = 0;                                  // Of those saved.
  for (size_t q = 0; q < region.phases.size(); ++q) {
    const Phase& phase = region.phases[q];
    for (const Accumulator& accumulator : phase.accumulators) made[accumulator.value] = q;
    const std::unordered_set<const Element*> elements = ElementsOf(phase);
    const bool is_guarded = std::ranges::any_of(elements, [&](const Element* e) {
      return e->kind == Element::Kind::kPrim && e->prim == Prim::kSelect && elements_.math().GuardsSides(e);
    });
    if (phase.loops.empty() || is_guarded) continue;
    uint64_t inner = 0;
    for (const Loop& loop : phase.loops) inner |= elements_.scopes().BitOf(loop.variable);
    std::unordered_map<const Element*, bool> costs;
    const auto is_slow = [&](const auto& self, const Element* e) -> bool {
      const auto [at, added] = costs.try_emplace(e, IsSlow(e));
      if (!added || at->second) return at->second;
      const bool below = std::ranges::any_of(e->args, [&](const Element* arg) { return self(self, arg); });
      return costs[e] = below;
    };
    std::unordered_set<const Element*> seen;
    const auto visit = [&](const auto& self, const Element* e) -> void {
      if (!seen.insert(e).second || !is_slow(is_slow, e) || saved_.contains(e)) return;
      std::unordered_set<const Element*> below;
      Collect(e, below);
      size_t last = region.phases.size();  // Whose results it waits for.
      for (const Element* part : below) {
        const auto result = made.find(part->value);
        if (part->kind == Element::Kind::kLoad && result != made.end())
          last = last == region.phases.size() ? result->second : std::max(last, result->second);
      }
      const int64_t own = ColumnsIn(region) * DTypeBytes(e->dtype);
      if (IsFloat(e->dtype) && last < q && (elements_.dependences().Of(e) & inner) == 0 &&
          bytes + own <= kSavedBytesMax) {
        bytes += own;
        saved_[e] = {last, region.columns->variable, elements_.writer().Alloca(TypeOf(e->dtype), ColumnsIn(region))};
        saved_order_.push_back(e);
        return;
      }
      for (const Element* arg : e->args) self(self, arg);
    };
    for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
    for (const Store& store : phase.stores) visit(visit, store.value);
  }
  elements_.dependences().ForgetElements();  // Results of accumulators were not known yet.
}

int64_t SavedElements::ColumnsIn(const Region& region) const {
  const int64_t line = elements_.target().vector_bytes;
  return (region.columns_max + line - 1) / line * line;
}

void SavedElements::EmitColumns(size_t phase) {
  if (std::ranges::none_of(saved_order_, [&](const Element* e) { return saved_.at(e).phase == phase; })) return;
  const Loop& columns = *elements_.region().columns;
  loops_.Emit(columns, {.lanes = widths_.LanesFor(columns)}, [&](int) { Emit(phase); });
}

const ir::Expr* SavedElements::OffsetOf(const Saved& saved) {
  ir::ExprPool& pool = elements_.pool();
  const std::optional<Loop>& columns = elements_.region().columns;
  const ir::Expr* at = pool.Symbol(VariableSymbol(saved.variable));
  const bool is_column = columns && columns->variable == saved.variable;
  return is_column ? pool.Sub(at, pool.Import(columns->begin)) : at;
}

std::optional<KeptElements::Place> SavedElements::Find(const Element* element, size_t phase) {
  const auto found = saved_.find(element);
  if (found == saved_.end() || found->second.phase >= phase) return std::nullopt;
  return KeptElements::Place{element->dtype, found->second.array, OffsetOf(found->second)};
}

void SavedElements::Emit(size_t phase) {
  Writer& writer = elements_.writer();
  Scopes& scopes = elements_.scopes();
  const Lanes& lanes = elements_.lanes();
  for (const Element* element : saved_order_) {
    const Saved& saved = saved_.at(element);
    if (saved.phase != phase) continue;
    V value = writer.Splat(scopes.Here(), elements_.EmitElement(element), lanes.count);
    if (lanes.paired) value = EmitInMemoryOrder(writer, scopes.Here(), value);
    const V at = elements_.EmitExpr(OffsetOf(saved));
    const V address = writer.Address(scopes.Here(), saved.array, value.type, at);
    base::Append(scopes.Here(), "  store ", Typed(value), ", ptr ", address.name, ", align ", BytesOf(value.type),
                 "\n");
  }
}

}  // namespace hir::codegen::cpu
