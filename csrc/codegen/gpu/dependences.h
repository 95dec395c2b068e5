// Sets of variables: what varies with what in a region, and so the scope in which it is computed. Private to
// csrc/codegen/gpu.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Dependences {
 public:
  using Element = fusion::Element;

  // All outlive this.
  Dependences(Scopes& code, IndexMath& math, const Vector& vector) : code_(code), math_(math), vector_(vector) {}

  // Makes the variables of `region` known; none has a value yet.
  void StartRegion(const Region& region);

  // From now on, the result of that accumulator is `text`. `is_lane`: it is not the same for all lanes.
  void SetResult(const ir::Value* value, std::string text, bool is_lane);
  const std::string* ResultOf(const ir::Value* value) const;  // Null: it is none, or not complete.
  bool IsAccumulated(const ir::Value* value) const { return accumulated_.contains(value); }

  // Sets of variables, a bit each by their place in the region, and
  static constexpr uint64_t kRowBit = uint64_t{1} << 63;   // what depends on an accumulator's result,
  static constexpr uint64_t kLaneBit = uint64_t{1} << 62;  // on one that is not the same for all lanes.
  uint64_t VarsOf(const ir::Expr* expr);
  uint64_t VarsOf(const Element* element);
  bool Has(uint64_t vars, int variable) const { return (vars & BitOf(variable)) != 0; }
  bool HasAny(uint64_t vars, std::span<const Loop> loops) const;
  // Whether it has the vector variable.
  bool IsLane(uint64_t vars) const { return vector_.HasLanes() && Has(vars, vector_.variable()); }

  // The outermost scope in which those variables have their values.
  size_t LevelOf(uint64_t vars, bool is_lane) const;

  // Whether `element` varies with `loops`, or depends on the result of an accumulator.
  bool DependsOn(const Element* element, std::span<const Loop> loops);
  // The same without the latter.
  bool VariesWith(const Element* element, std::span<const Loop> loops) { return HasAny(VarsOf(element), loops); }

 private:
  static constexpr size_t kVariablesMax = 62;

  struct Result {
    std::string text;
    bool is_lane = false;
  };
  uint64_t BitOf(int variable) const;

  Scopes& code_;
  IndexMath& math_;
  const Vector& vector_;
  std::vector<int> variables_;
  std::set<const ir::Value*> accumulated_;
  std::unordered_map<const ir::Value*, Result> results_;
  std::unordered_map<const ir::Expr*, uint64_t> expr_vars_;
  std::unordered_map<const Element*, uint64_t> element_vars_;
};

}  // namespace hir::codegen::gpu
