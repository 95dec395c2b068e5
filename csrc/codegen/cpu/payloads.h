// The bits that values of float32 may have below those of a 16-bit type. Private to csrc/codegen/cpu.
#pragma once

#include <unordered_map>

#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::cpu {

// Whether `element`, float32, holds nothing but values of the 16-bit type `dtype`: widened ones, chosen among.
bool IsWidened(const fusion::Element* element, DType dtype);

class Payloads {
 public:
  void StartRegion(const Region& region);
  // Whether a NaN of `element`, float32, has no bits below those of bfloat16: hardware makes NaNs so, and arithmetic
  // keeps the payload of an operand. Rounding the bits of such a NaN leaves it one.
  bool IsShort(const fusion::Element* element);

 private:
  std::unordered_map<const ir::Value*, const fusion::Element*> bodies_;  // Of accumulators, by their results.
  std::unordered_map<const fusion::Element*, bool> is_short_;
};

}  // namespace hir::codegen::cpu
