// How elements of each type are stored and summed, for loops that are written once. For this folder.
#pragma once

#include <cstdint>

#include "csrc/base/dtype.h"

namespace hir::codegen::library {

template <typename StoredT, typename SumT, SumT (*load)(StoredT), StoredT (*store)(SumT)>
struct Format {
  using Stored = StoredT;
  using Sum = SumT;
  static Sum Load(Stored value) { return load(value); }
  static Stored Store(Sum value) { return store(value); }
};
template <typename T>
T Same(T value) {
  return value;
}
// Unsigned sums: they wrap.
inline uint32_t FromI32(int32_t value) { return static_cast<uint32_t>(value); }
inline int32_t ToI32(uint32_t value) { return static_cast<int32_t>(value); }
inline uint32_t FromI8(uint8_t value) { return value; }
inline uint8_t ToI8(uint32_t value) { return static_cast<uint8_t>(value); }
inline uint64_t FromI64(int64_t value) { return static_cast<uint64_t>(value); }
inline int64_t ToI64(uint64_t value) { return static_cast<int64_t>(value); }

// make(Format of `dtype`), a pointer; null of bool, which is not summed.
template <typename Make>
auto WithFormat(DType dtype, const Make& make) -> decltype(make(Format<float, float, Same, Same>())) {
  switch (dtype) {
    case DType::kFloat32: return make(Format<float, float, Same, Same>());
    case DType::kFloat64: return make(Format<double, double, Same, Same>());
    case DType::kBFloat16: return make(Format<uint16_t, float, BFloat16ToFloat, FloatToBFloat16>());
    case DType::kFloat16: return make(Format<uint16_t, float, Float16ToFloat, FloatToFloat16>());
    case DType::kUInt8:
    case DType::kInt8: return make(Format<uint8_t, uint32_t, FromI8, ToI8>());  // Modulo 256 both are one.
    case DType::kInt32: return make(Format<int32_t, uint32_t, FromI32, ToI32>());
    case DType::kInt64: return make(Format<int64_t, uint64_t, FromI64, ToI64>());
    case DType::kBool: break;
  }
  return nullptr;
}

}  // namespace hir::codegen::library
