#include "csrc/codegen/axis_votes.h"

#include <algorithm>
#include <set>
#include <span>

namespace hir::codegen {
namespace {

using fusion::Element;

class Voting {
 public:
  Voting(const StridesOf& strides, IndexMath& math) : strides_(strides), math_(math) {}

  AxisVotes Of(const Region& region, const std::vector<Tensor>& tensors) {
    AddVariables(region.grid);
    AddVariables(region.serial);
    for (const Phase& phase : region.phases) AddVariables(phase.loops);
    const bool loops = std::ranges::any_of(region.phases, [](const Phase& phase) { return !phase.loops.empty(); });
    for (const Phase& phase : region.phases) {
      if (loops && phase.loops.empty()) continue;
      for (const Accumulator& accumulator : phase.accumulators) Visit(accumulator.body);
      for (const Carried& carried : phase.carried) Visit(carried.accumulator.body);
      for (const Nested& nested : phase.nested) Visit(nested.accumulator.body);
      for (const Store& store : phase.stores) {
        Visit(store.value);
        Vote(store.index, tensors[static_cast<size_t>(store.tensor)].strides, votes_.stores, 2);
      }
    }
    return std::move(votes_);
  }

 private:
  void AddVariables(const std::vector<Loop>& loops) {
    for (const Loop& loop : loops) {
      if (std::ranges::find(variables_, loop.variable) == variables_.end()) variables_.push_back(loop.variable);
    }
  }

  void Visit(const Element* e) {
    if (!seen_.insert(e).second) return;
    if (e->kind == Element::Kind::kLoad) {
      if (const std::vector<const ir::Expr*>* strides = strides_(e->value)) Vote(e->args, *strides, votes_.loads, 1);
    }
    for (const Element* arg : e->args) Visit(arg);
  }

  void Vote(std::span<const Element* const> index, const std::vector<const ir::Expr*>& strides,
            std::map<int, int64_t>& to, int64_t weight) {
    ir::ExprPool& pool = math_.pool();
    const ir::Expr* offset = pool.Const(0);
    for (size_t i = 0; i < index.size(); ++i) {
      const ir::Expr* at = math_.ToExpr(index[i]);  // Null: it is data, which says nothing of its neighbours.
      if (at != nullptr) offset = pool.Add(offset, pool.Mul(at, pool.Import(strides[i])));
    }
    int64_t varies = 0;
    for (const int variable : variables_) varies += math_.DependsOn(offset, variable) ? 1 : 0;
    for (const int variable : variables_) {
      const auto split = math_.Split(offset, variable);
      if (!split || !split->stride->IsConst(1)) continue;
      to[variable] += varies * varies;
      for (const int other : variables_) {
        if (other != variable && math_.DependsOn(offset, other))
          votes_.across[{variable, other}] += weight * varies * varies;
      }
    }
  }

  const StridesOf& strides_;
  IndexMath& math_;
  std::vector<int> variables_;  // Outermost first, each once.
  std::set<const Element*> seen_;
  AxisVotes votes_;
};

}  // namespace

std::map<int, int64_t> AxisVotes::All() const {
  std::map<int, int64_t> all = loads;
  for (const auto& [variable, count] : stores) all[variable] += 2 * count;
  return all;
}

AxisVotes VotesOf(const Region& region, const std::vector<Tensor>& tensors, const StridesOf& strides, IndexMath& math) {
  return Voting(strides, math).Of(region, tensors);
}

}  // namespace hir::codegen
