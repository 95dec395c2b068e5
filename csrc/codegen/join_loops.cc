// Loops that every access runs through side by side become one: the images, rows and columns of a tensor of four axes
// are one loop where nothing tells them apart. What is left is the iteration space that memory sees, so that short
// innermost axes cost nothing and shapes that differ in name alone get one kernel.
//
// The outer variable `a` and the inner `b` are joined where each index expression of the region is the same with
// a = 0 and b = a * extent(b) + b. Then a is 0 and b runs over both extents. Indices of single axes may go beyond the
// axis' extent from there on; addresses are what they were. A condition that tells the rows of `a` before a bound from
// those behind it (concatenated and padded tensors) tells the elements before bound * extent(b) from the others.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "csrc/codegen/index_math.h"
#include "csrc/codegen/schedules.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen {
namespace {

using fusion::Element;
using fusion::Prim;

class Joiner {
 public:
  Joiner(NestBuilder& builder, Region& region)
      : builder_(builder), pool_(builder.nest().exprs), region_(region), math_(pool_) {}

  void Run() {
    if (region_.grid.size() < 2 &&
        std::ranges::all_of(region_.phases, [](const Phase& p) { return p.loops.size() < 2; }))
      return;
    for (const auto* loops : Lists()) {
      for (const Loop& loop : *loops) AddLoop(loop);
    }
    ForEachRoot([&](const Element*& root) { AddUses(root); });
    ForEachStore([&](int tensor, std::vector<const Element*>& index) {
      AddAccess(index, builder_.nest().tensors[static_cast<size_t>(tensor)].strides);
    });
    while (JoinOne()) {
    }
    if (!joined_.empty()) Replace();
  }

 private:
  using Bound = IndexMath::Threshold;

  std::vector<std::vector<Loop>*> Lists() {
    std::vector<std::vector<Loop>*> lists = {&region_.grid, &region_.serial, &region_.ahead.loops};
    for (Phase& phase : region_.phases) lists.push_back(&phase.loops);
    return lists;
  }

  template <typename Visit>
  void ForEachRoot(const Visit& visit) {
    const auto of_phase = [&](Phase& phase) {
      for (Accumulator& accumulator : phase.accumulators) visit(accumulator.body);
      for (Carried& carried : phase.carried) visit(carried.accumulator.body);
      for (Nested& nested : phase.nested) visit(nested.accumulator.body);
      for (Store& store : phase.stores) visit(store.value);
    };
    for (Phase& phase : region_.phases) of_phase(phase);
    of_phase(region_.ahead);
  }

  template <typename Visit>
  void ForEachStore(const Visit& visit) {
    const auto of_phase = [&](Phase& phase) {
      for (Carried& carried : phase.carried) visit(carried.tensor, carried.index);
      for (Nested& nested : phase.nested) visit(nested.tensor, nested.index);
      for (Store& store : phase.stores) visit(store.tensor, store.index);
    };
    for (Phase& phase : region_.phases) of_phase(phase);
    of_phase(region_.ahead);
  }

  void AddLoop(const Loop& loop) {
    math_.WidenRange(loop.variable, loop.begin, pool_.Sub(loop.end, pool_.Const(1)));
    for (const ir::Expr* bound : {loop.begin, loop.end, loop.step}) {
      if (bound != nullptr) AddUse(bound);
    }
  }

  void AddUse(const ir::Expr* expr) {
    if (!known_.insert(expr).second) return;
    for (const int variable : VariablesOf(expr)) uses_of_[variable].push_back(expr);
  }

  static std::set<int> VariablesOf(const ir::Expr* expr) {
    std::vector<std::string_view> symbols;
    ir::CollectSymbols(expr, symbols);
    std::set<int> variables;
    for (const std::string_view symbol : symbols) {
      if (VariableOf(symbol) >= 0) variables.insert(VariableOf(symbol));  // Others are sizes.
    }
    return variables;
  }

  // The expressions that `element` is made of, as large as they are.
  void AddUses(const Element* element) {
    if (!seen_.insert(element).second) return;
    if (element->kind == Element::Kind::kLoad) {
      AddAccess(element->args, builder_.StridesOf(*element->value));
    } else if (const ir::Expr* expr = math_.ToExpr(element)) {
      AddUse(expr);
    } else if (const std::optional<Bound> bound = BoundOf(element)) {
      bounds_.emplace(element, *bound);
    } else {
      for (const Element* arg : element->args) AddUses(arg);
    }
  }

  // Loops are split at constants.
  std::optional<Bound> BoundOf(const Element* condition) {
    if (!WalksOf(builder_.target()).splits_at_conditions) return std::nullopt;
    const std::optional<Bound> bound = math_.ThresholdOf(condition);
    return bound && bound->end->IsConst() ? bound : std::nullopt;
  }

  void AddAccess(std::span<const Element* const> index, const std::vector<const ir::Expr*>& strides) {
    const ir::Expr* offset = pool_.Const(0);
    for (size_t i = 0; i < index.size(); ++i) {
      const ir::Expr* at = math_.ToExpr(index[i]);
      if (at == nullptr) {
        AddUses(index[i]);
      } else {
        offset = pool_.Add(offset, pool_.Mul(at, strides[i]));
      }
    }
    AddUse(offset);
  }

  // The first pair that can be joined.
  bool JoinOne() {
    std::vector<std::pair<Loop, Loop>> pairs;
    const auto add_pairs = [&](const std::vector<Loop>& loops) {
      for (const Loop& b : loops) {
        for (const Loop& a : loops) {
          if (a.variable != b.variable && a.begin->IsConst(0) && b.begin->IsConst(0)) pairs.emplace_back(a, b);
        }
      }
    };
    add_pairs(region_.grid);
    for (const Phase& phase : region_.phases) add_pairs(phase.loops);
    for (const auto& [a, b] : pairs) {
      if (!AreTogether(a.variable, b.variable) || !RunSideBySide(a, b)) continue;
      Join(a, b);
      return true;
    }
    return false;
  }

  static bool Has(const std::vector<Loop>& loops, int variable) {
    return std::ranges::find(loops, variable, &Loop::variable) != loops.end();
  }

  // Where there is the one there is the other, and neither is a loop of rows in order.
  bool AreTogether(int a, int b) {
    if (Has(region_.serial, a) || Has(region_.serial, b)) return false;
    return std::ranges::all_of(Lists(), [&](const auto* loops) { return Has(*loops, a) == Has(*loops, b); });
  }

  bool RunSideBySide(const Loop& a, const Loop& b) {
    const std::string name_a = VariableSymbol(a.variable), name_b = VariableSymbol(b.variable);
    const ir::Expr* together =
        scratch_.Add(scratch_.Mul(scratch_.Symbol(name_a), scratch_.Import(b.end)), scratch_.Symbol(name_b));
    const std::vector<const ir::Expr*>& uses = uses_of_[a.variable];
    if (uses.empty() || uses != uses_of_[b.variable]) return false;
    for (const auto& [condition, bound] : bounds_) {
      if (bound.variable == b.variable) return false;  // That is not seen any more.
      if (bound.variable != a.variable) continue;
      if (!b.end->IsConst()) return false;
      scratch_.Mul(scratch_.Import(bound.end), scratch_.Import(b.end));
    }
    return std::ranges::all_of(uses, [&](const ir::Expr* use) {
      const ir::Expr* joined = scratch_.Substitute(use, {{name_a, scratch_.Const(0)}, {name_b, together}});
      return !scratch_.overflowed() && ir::Equal(joined, use);
    });
  }

  void Join(const Loop& a, const Loop& b) {
    joined_.insert(a.variable);
    changed_.insert({a.variable, b.variable});
    const ir::Expr* end = pool_.Mul(a.end, b.end);
    for (Phase& phase : region_.phases) {
      const auto nested = std::span(phase.loops).first(phase.nested_loops);
      if (std::ranges::find(nested, a.variable, &Loop::variable) != nested.end()) --phase.nested_loops;
    }
    for (auto* loops : Lists()) {
      std::erase_if(*loops, [&](const Loop& loop) { return loop.variable == a.variable; });
      for (Loop& loop : *loops) {
        for (const ir::Expr** bound : {&loop.begin, &loop.end, &loop.step}) {
          if (*bound != nullptr && math_.DependsOn(*bound, a.variable)) *bound = WithoutJoined(*bound);
        }
        if (loop.variable == b.variable) loop.end = end;
      }
    }
    for (auto& [condition, bound] : bounds_) {
      if (bound.variable == a.variable) bound = {b.variable, pool_.Mul(bound.end, b.end), bound.below};
    }
    for (const ir::Expr* use : std::vector(uses_of_[a.variable])) {
      for (const int variable : VariablesOf(use)) std::erase(uses_of_[variable], use);
      AddUse(WithoutJoined(use));
    }
  }

  const ir::Expr* WithoutJoined(const ir::Expr* expr) {
    std::vector<std::string_view> symbols;
    ir::CollectSymbols(expr, symbols);
    std::unordered_map<std::string_view, const ir::Expr*> zeros;
    for (const std::string_view symbol : symbols) {
      if (joined_.contains(VariableOf(symbol))) zeros.emplace(symbol, pool_.Const(0));
    }
    return zeros.empty() ? expr : pool_.Substitute(expr, zeros);
  }

  // Puts the expressions in the places of their elements: some are what they are by the ranges that variables had.
  void Replace() {
    const auto leaf = [&](const Element* e) -> const Element* {
      if (!Mentions(e)) return e;
      if (e->kind == Element::Kind::kLoad) return nullptr;
      if (const auto at = bounds_.find(e); at != bounds_.end()) {
        const auto& [variable, end, below] = at->second;
        fusion::ElementBuilder& elements = builder_.nest().elements;
        return elements.Apply(below ? Prim::kLt : Prim::kGe, {elements.Index(variable), ElementOf(end)});
      }
      const ir::Expr* expr = math_.ToExpr(e);
      return expr == nullptr ? nullptr : ElementOf(WithoutJoined(expr));
    };
    ForEachRoot([&](const Element*& root) { root = builder_.Rewrite(root, leaf); });
    ForEachStore([&](int, std::vector<const Element*>& index) {
      for (const Element*& at : index) at = builder_.Rewrite(at, leaf);
    });
    builder_.RewriteRowIndices(leaf);
  }

  // Whether it is made of a variable that was joined with another.
  bool Mentions(const Element* e) {
    const auto [at, added] = mentions_.try_emplace(e, false);
    if (!added) return at->second;
    bool mentions = e->kind == Element::Kind::kIndex && changed_.contains(static_cast<int>(e->integer));
    if (e->kind == Element::Kind::kExtent) {
      std::vector<std::string_view> symbols;
      ir::CollectSymbols(e->extent, symbols);
      mentions = std::ranges::any_of(symbols, [&](auto symbol) { return changed_.contains(VariableOf(symbol)); });
    }
    for (const Element* arg : e->args) mentions = Mentions(arg) || mentions;
    return mentions_[e] = mentions;
  }

  const Element* ElementOf(const ir::Expr* expr) {
    fusion::ElementBuilder& elements = builder_.nest().elements;
    if (expr->IsConst()) return elements.Int(DType::kInt64, expr->value);
    const int variable = expr->kind == ir::ExprKind::kSymbol ? VariableOf(expr->symbol) : -1;
    return variable >= 0 ? elements.Index(variable) : elements.Extent(expr);
  }

  NestBuilder& builder_;
  ir::ExprPool& pool_;
  Region& region_;
  IndexMath math_;
  ir::ExprPool scratch_;  // An expression over the limits ends joining, and not the kernel.
  // By variable: offsets, and what else is computed of it, in the order of AddUse.
  std::map<int, std::vector<const ir::Expr*>> uses_of_;
  std::set<const ir::Expr*> known_;  // All of those, the replaced ones, too.
  std::set<const Element*> seen_;
  std::unordered_map<const Element*, Bound> bounds_;
  std::set<int> joined_;   // Variables that are 0 now.
  std::set<int> changed_;  // Those, and the ones that run for them, too.
  std::unordered_map<const Element*, bool> mentions_;
};

}  // namespace

void JoinLoops(NestBuilder& builder, Region& region) { Joiner(builder, region).Run(); }

}  // namespace hir::codegen
