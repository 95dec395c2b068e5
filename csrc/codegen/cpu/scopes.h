// The loops that are open while a function is written: where code goes, what has been computed where, and what the
// variables of loops are. Private to csrc/codegen/cpu.
//
// Code is written into the loops that are open. What does not depend on the innermost ones goes in front of them,
// inside the guard of the outermost of those, so it runs only where that loop has a trip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/cpu/ir_writer.h"

namespace hir::codegen::cpu {

class Scopes {
 public:
  // Something that is computed: an expression, an element, ...
  struct Key {
    const void* what;
    int guard;  // Under which it is computed.
    int epoch;  // Of the ranges that were used.
    bool operator==(const Key&) const = default;
  };
  // A variable is a bit of a set of them, and this is one that no variable has: results of a row's accumulators vary
  // with the row.
  static constexpr uint64_t kRowBit = uint64_t{1} << 63;

  Scopes(Writer& writer, int num_variables);

  // --- variables: those of the region that is being written
  void StartRegion() { region_variables_.clear(); }
  // False where it is one already.
  bool AddVariable(int variable);
  size_t NumVariables() const { return region_variables_.size(); }
  uint64_t BitOf(int variable) const { return uint64_t{1} << variable_bit_[static_cast<size_t>(variable)]; }
  // From here on `variable` is `value`, and what depends on it belongs to `level`; else to the innermost loop.
  void Define(int variable, const V& value, size_t level);
  void Define(int variable, const V& value) { Define(variable, value, Innermost()); }
  const V& ValueOf(int variable) const { return variable_value_.at(variable); }
  // Rows are those of the innermost loop that is open now: all that varies from row to row belongs to it.
  void MarkRow() { row_level_ = Innermost(); }

  // --- levels: the function is 0, and each open loop is one more
  size_t Innermost() const { return levels_.size() - 1; }
  // Where something with these dependencies is computed.
  size_t LevelOf(uint64_t variables) const;
  // Code of level k goes into the loop's body while it is the innermost one, else in front of the loop in it.
  std::string& CodeAt(size_t level);
  std::string& Here() { return levels_.back().body; }
  // Null: it has not been computed where `level` sees it.
  const V* Find(const Key& key, size_t level) const;
  const V& Remember(const Key& key, size_t level, const V& value) { return MemoAt(level)[key] = value; }
  // From here on all that the innermost loop has computed is computed again, since a variable has another value.
  void ForgetBody() { levels_.back().body_memo.clear(); }
  // body(at) for begin, begin + step, ... below end.
  void EmitLoop(const V& begin, const V& end, const V& step, const std::function<void(const V&)>& body);

 private:
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.what) * 31 + static_cast<size_t>(key.guard * 64 + key.epoch);
    }
  };
  using Memo = std::unordered_map<Key, V, KeyHash>;
  struct Level {
    std::string before, body;
    Memo before_memo, body_memo;
  };
  Memo& MemoAt(size_t level);

  Writer& writer_;
  std::vector<Level> levels_;
  std::vector<int> variable_level_;    // By variable; -1: not open.
  std::vector<int> variable_bit_;      // By variable; of the region's variables.
  std::vector<int> region_variables_;  // By bit.
  std::unordered_map<int, V> variable_value_;
  size_t row_level_ = 0;
};

}  // namespace hir::codegen::cpu
