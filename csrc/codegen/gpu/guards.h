// Guards: where values are computed at all, by conditions on indices and on data. Private to csrc/codegen/gpu.
#pragma once

#include <cstdint>
#include <optional>

#include "csrc/codegen/gpu/conditions.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/guard_table.h"
#include "csrc/codegen/index_math.h"

namespace hir::codegen::gpu {

class Guards {
 public:
  using Element = fusion::Element;

  // All outlive this.
  Guards(IndexMath& math, const Vector& vector, Dependences& dependences, Conditions& conditions)
      : math_(math), vector_(vector), dependences_(dependences), conditions_(conditions) {}

  int Add(int parent, const Element* condition, bool holds) { return table_.Add(parent, condition, holds); }
  const Guard& at(int guard) const { return table_.at(guard); }
  uint64_t VarsOf(int guard);
  // Whether `condition` holds wherever `guard` does, or nowhere there; nothing where `guard` does not include it.
  std::optional<bool> Known(int guard, const Element* condition) const;

  // Whether an index condition has one answer for all lanes of a vector.
  bool IsUniform(const Element* condition);
  bool IsUniformGuard(int guard);

 private:
  IndexMath& math_;
  const Vector& vector_;
  Dependences& dependences_;
  Conditions& conditions_;
  GuardTable table_;
};

}  // namespace hir::codegen::gpu
