// Loops along a row of scores or of elements, in vectors of 64 bytes, compiled for what the processor has. For this
// folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/dtype.h"

namespace hir::codegen::library {

// In T, float or double. Rows of scores have room up to a whole number of kLanes: what is behind the n-th score is
// overwritten, by zeros where scores become powers.
template <typename T>
struct RowLoops {
  static constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));

  // The elements of `dtype`, bool or float, so many elements apart; false and true are 0 and 1.
  void (*widen)(DType dtype, const std::byte* from, int64_t next, int64_t n, T* to);
  void (*scale)(T* x, int64_t n, T factor);
  void (*add)(T* x, const T* addend, int64_t n);
  // -inf where the part is 0.
  void (*choose)(T* x, const T* part, int64_t n);
  // NaN is left out; -inf of none.
  T (*max)(T* scores, int64_t n);
  // The scores become e^(score - shift); the sum of all.
  T (*powers)(T* scores, int64_t n, T shift);
  // The scores become p = e^(score - lse), 0 where they are -inf, and the gradients of p, unless null, those of the
  // scores, p (gradient - delta), 0 where p is.
  void (*gradients)(T* scores, T* of_powers, int64_t n, T lse, T delta);
};

// Those that this processor runs, the fastest first; at least one.
template <typename T>
std::vector<const RowLoops<T>*> AllRowLoops();

}  // namespace hir::codegen::library
