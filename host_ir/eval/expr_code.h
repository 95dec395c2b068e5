// Expressions compiled to slots of int64 values: what a run computes without names or allocation.
//
// A node is evaluated where its last symbol becomes known: when sizes bind (level 0), or at the
// start of an iteration of a loop (the loop's level).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/ir/expr.h"

namespace hir::host {

class ExprCode {
 public:
  // The slot of a symbol, which the caller fills in: before Evaluate(level), for every level that
  // uses it. Levels are numbered so that an inner loop's is above the outer's.
  int AddSymbol(std::string_view name, int level);
  void RemoveSymbol(std::string_view name);  // Out of scope; its slot stays.

  // The slot of `expr`'s value. Errors: kInvalidArgument for a symbol that is not there.
  Result<int> Slot(const ir::Expr* expr);
  int LevelOf(int slot) const { return level_of_[static_cast<size_t>(slot)]; }

  int num_slots() const { return static_cast<int>(level_of_.size()); }

  // Fills in the nodes of `level`; a division by zero gives 0. False when one overflowed; its value
  // is then 0.
  [[nodiscard]] bool Evaluate(int level, std::span<int64_t> values) const;

 private:
  struct Node {
    ir::ExprKind kind = ir::ExprKind::kConst;
    int dst = 0;
    int a = 0;
    int b = 0;
    int64_t value = 0;  // kConst.
  };
  int AddNode(Node node, int level);

  std::unordered_map<std::string, int> symbols_;
  std::unordered_map<const ir::Expr*, int> slots_;  // Lookup only.
  std::vector<int> level_of_;
  std::vector<std::vector<Node>> levels_;
};

}  // namespace hir::host
