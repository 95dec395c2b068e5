// Index expressions and conditions on indices as code, each computed once, as far out as it can be; and variables of
// loops from one index. Private to csrc/codegen/gpu.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/gpu/arguments.h"
#include "csrc/codegen/gpu/conditions.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Indices {
 public:
  // All outlive this. `is_narrow`: in 32 bits, under a condition.
  Indices(Scopes& code, IndexMath& math, const Vector& vector, const Arguments& arguments, Dependences& dependences,
          Conditions& conditions, Guards& guards, bool is_narrow)
      : code_(code),
        math_(math),
        vector_(vector),
        arguments_(arguments),
        dependences_(dependences),
        conditions_(conditions),
        guards_(guards),
        is_narrow_(is_narrow) {}

  // An `ix` (the function's index type): of lane 0 where it varies along the vector, unless `is_lane`.
  std::string Text(const ir::Expr* expr, bool is_lane = false);
  // A `bool`, of a condition on indices alone.
  std::string ConditionText(const fusion::Element* condition);

  // The number of trips of all `loops`, of vectors along the vector variable.
  const ir::Expr* TripsOf(std::span<const Loop> loops);
  // Variables of `loops`, the last one fastest, from the row-major index `k` of their trips; the vector variable
  // counts vectors. REQUIRES: the vector variable is last or not among them.
  void Decode(std::span<const Loop> loops, const std::string& k);

 private:
  std::string NodeText(const ir::Expr& expr, const std::vector<std::string>& args);

  Scopes& code_;
  IndexMath& math_;
  const Vector& vector_;
  const Arguments& arguments_;
  Dependences& dependences_;
  Conditions& conditions_;
  Guards& guards_;
  const bool is_narrow_;
};

}  // namespace hir::codegen::gpu
