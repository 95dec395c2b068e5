// Dependences on the loops of a region: of expressions, elements, and the conditions under which elements are read.
// Private to csrc/codegen/cpu.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "csrc/codegen/cpu/scopes.h"
#include "csrc/codegen/guard_table.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::cpu {

class Dependences {
 public:
  using Element = fusion::Element;
  struct Data {  // What a symbol that is neither a loop variable nor an extent stands for.
    const Element* element = nullptr;
    int guard = 0;
  };

  Dependences(const Scopes& scopes, IndexMath& math) : scopes_(scopes), math_(math) {}

  // REQUIRES: the scopes have its variables.
  void StartRegion(const Region& region);
  // Loads of `value` are of an accumulator's result from here on.
  void AddResult(const ir::Value* value) { results_.insert(value); }
  bool IsResult(const ir::Value* value) const { return results_.contains(value); }
  // Before results of accumulators are added, for what was asked while they were not known yet.
  void ForgetElements() { element_variables_.clear(); }

  // While `variable` lies in [first, last) alone, conditions are decided otherwise than in its whole range, in which it
  // is again after that.
  void EnterRange(int variable, const ir::Expr* first, const ir::Expr* last);
  void LeaveRange(int variable);
  int epoch() const { return epoch_; }  // Another one in every range; 0 in none.

  // Sets of variables: Scopes::BitOf.
  uint64_t Of(const ir::Expr* expr);
  uint64_t Of(const Element* element);
  uint64_t OfGuard(int guard);

  GuardTable& guards() { return guards_; }
  // The symbol of an index that is data, read under `guard`, in this epoch.
  const ir::Expr* DataSymbol(const Element* element, int guard);
  const Data* DataOf(const ir::Expr& symbol) const;  // Null: another symbol.

 private:
  const Scopes& scopes_;
  IndexMath& math_;
  const Region* region_ = nullptr;
  std::unordered_set<const ir::Value*> results_;
  std::unordered_map<std::string, Data> data_;  // By symbol.
  std::unordered_map<const ir::Expr*, uint64_t> expr_variables_;
  std::unordered_map<const Element*, uint64_t> element_variables_;
  GuardTable guards_;
  std::optional<IndexMath::Range> outer_range_;  // Of outer_variable_, while it has another.
  int outer_variable_ = -1;
  int epoch_ = 0;
  int num_epochs_ = 1;
};

}  // namespace hir::codegen::cpu
