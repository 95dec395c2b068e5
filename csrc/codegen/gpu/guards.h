// Guards: where values are computed at all, by conditions on indices and on data. Private to csrc/codegen/gpu.
#pragma once

#include <vector>

#include "csrc/codegen/gpu/conditions.h"
#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/gpu/vector.h"
#include "csrc/codegen/index_math.h"

namespace hir::codegen::gpu {

class Guards {
 public:
  using Element = fusion::Element;

  // One condition after another, by the number of the last one; number 0 holds everywhere.
  struct Guard {
    int parent = 0;
    const Element* condition = nullptr;
    bool holds = true;
    bool operator==(const Guard&) const = default;
  };

  // All outlive this.
  Guards(IndexMath& math, const Vector& vector, Dependences& dependences, Conditions& conditions)
      : math_(math), vector_(vector), dependences_(dependences), conditions_(conditions), guards_(1) {}

  // Where `parent` holds, and `condition` does or does not.
  int Add(int parent, const Element* condition, bool holds);
  const Guard& at(int guard) const { return guards_[static_cast<size_t>(guard)]; }
  uint64_t VarsOf(int guard);

  // Whether an index condition has one answer for all lanes of a vector.
  bool IsUniform(const Element* condition);
  bool IsUniformGuard(int guard);

 private:
  IndexMath& math_;
  const Vector& vector_;
  Dependences& dependences_;
  Conditions& conditions_;
  std::vector<Guard> guards_;
};

}  // namespace hir::codegen::gpu
