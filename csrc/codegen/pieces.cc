// Where tensors are concatenated along an axis that is not the innermost, and what is computed of them costs something,
// each has a region of its own (CPUs): else every element would be computed of all of them.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "csrc/codegen/index_math.h"
#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using fusion::Element;

constexpr size_t kPiecesMax = 8;

// Conditions of selects by which functions are computed or not, by the variable that they ask about.
class Conditions {
 public:
  explicit Conditions(IndexMath& math) : math_(math) {}

  void Visit(const Element* e) {
    if (!seen_.insert(e).second) return;
    for (const Element* arg : e->args) Visit(arg);
    if (e->kind != Element::Kind::kPrim || e->prim != fusion::Prim::kSelect) return;
    const auto threshold = math_.ThresholdOf(e->args[0]);
    if (threshold && (HasFunction(e->args[1]) || HasFunction(e->args[2])))
      by_variable_[threshold->variable].emplace_back(e->args[0], *threshold);
  }

  using Known = std::pair<const Element*, IndexMath::Threshold>;
  const std::map<int, std::vector<Known>>& by_variable() const { return by_variable_; }

 private:
  bool HasFunction(const Element* e) {
    const auto [at, is_new] = has_function_.try_emplace(e, false);
    if (!is_new) return at->second;
    bool has = e->kind == Element::Kind::kPrim && fusion::IsFunction(e->prim);
    for (const Element* arg : e->args) has = HasFunction(arg) || has;
    return has_function_[e] = has;
  }

  IndexMath& math_;
  std::set<const Element*> seen_;
  std::unordered_map<const Element*, bool> has_function_;
  std::map<int, std::vector<Known>> by_variable_;
};

// The ends of conditions in their order, behind 0 and before the loop's `end`; empty where the order is not certain.
std::vector<const ir::Expr*> Ordered(IndexMath& math, const std::vector<Conditions::Known>& conditions,
                                     const ir::Expr* end) {
  ir::ExprPool& pool = math.pool();
  const auto is_before = [&](const ir::Expr* a, const ir::Expr* b) { return math.NonNegative(pool.Sub(b, a)); };
  std::vector<const ir::Expr*> ends = {pool.Const(0), end};
  for (const auto& [condition, threshold] : conditions) {
    if (std::ranges::any_of(ends, [&](const ir::Expr* known) { return ir::Equal(known, threshold.end); })) continue;
    const auto at = std::ranges::find_if(ends, [&](const ir::Expr* later) { return is_before(threshold.end, later); });
    if (at == ends.begin() || at == ends.end() || !is_before(*(at - 1), threshold.end)) return {};
    ends.insert(at, threshold.end);
  }
  return ends;
}

}  // namespace

std::vector<Region> InPieces(NestBuilder& builder, Region region) {
  ir::ExprPool& pool = builder.nest().exprs;
  fusion::ElementBuilder& elements = builder.nest().elements;
  std::vector<Region> pieces;
  if (WalksOf(builder.target()).splits_at_conditions && region.grid.size() > 1) {
    IndexMath math(pool);
    for (const Loop& loop : region.grid) math.SetRange(loop.variable, pool.Const(0), pool.Sub(loop.end, pool.Const(1)));
    Conditions conditions(math);
    for (const Store& store : region.phases[0].stores) conditions.Visit(store.value);
    for (const Loop& along : region.grid) {
      const auto found = conditions.by_variable().find(along.variable);
      if (found == conditions.by_variable().end() || along.variable == region.grid.back().variable) continue;
      const std::vector<const ir::Expr*> ends = Ordered(math, found->second, along.end);
      if (ends.size() <= 2 || ends.size() > kPiecesMax + 1) continue;
      for (size_t i = 0; i + 1 < ends.size(); ++i) {
        std::unordered_map<int, const Element*> places;
        Region& piece = pieces.emplace_back();
        for (const Loop& loop : region.grid) {
          const int variable = builder.NewVariable();
          const bool is_cut = loop.variable == along.variable;
          piece.grid.push_back({variable, pool.Const(0), is_cut ? pool.Sub(ends[i + 1], ends[i]) : loop.end});
          const Element* place = elements.Index(variable);
          if (is_cut && i > 0) place = elements.Apply(fusion::Prim::kAdd, {place, elements.Extent(ends[i])});
          places[loop.variable] = place;
        }
        std::unordered_map<const Element*, const Element*> decided;
        for (const auto& [condition, threshold] : found->second) {
          const auto end = std::ranges::find_if(ends, [&](auto* e) { return ir::Equal(e, threshold.end); });
          const bool is_below = static_cast<size_t>(end - ends.begin()) > i;
          decided[condition] = elements.Int(DType::kBool, is_below == threshold.below ? 1 : 0);
        }
        const auto leaf = [&](const Element* e) -> const Element* {
          if (const auto at = decided.find(e); at != decided.end()) return at->second;
          const auto place =
              e->kind == Element::Kind::kIndex ? places.find(static_cast<int>(e->integer)) : places.end();
          return place == places.end() ? nullptr : place->second;
        };
        piece.phases = region.phases;
        for (Store& store : piece.phases[0].stores) {
          store.value = builder.Rewrite(store.value, leaf);
          for (const Element*& at : store.index) at = builder.Rewrite(at, leaf);
        }
      }
      return pieces;
    }
  }
  pieces.push_back(std::move(region));
  return pieces;
}

}  // namespace hir::codegen
