// Arrays that nobody saved: elements by their place, the same for every program that makes them up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"

namespace hir::arrays {

// The seed of the input `index` of a program whose inputs are made up by `seed`.
uint64_t SeedOf(int64_t seed, size_t index);

// Writes elements [first, first + count) of an array to `to`: floats uniform in [-1.7, 1.7], integers and booleans 0
// or 1.
void MakeUp(DType dtype, uint64_t seed, int64_t first, int64_t count, std::byte* to);

// The bytes of an array of `shape` of which `stored_once` axes have one element. kResourceExhausted beyond 2^63.
Result<int64_t> BytesOf(std::span<const int64_t> shape, const std::vector<bool>& stored_once, DType dtype);

// Whether this machine has memory left for `bytes` that are made up. kResourceExhausted with both numbers of bytes.
Status FitsMemory(int64_t bytes);

}  // namespace hir::arrays
