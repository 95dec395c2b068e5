// Elements of any type as doubles, for tests of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/base/dtype.h"

namespace hir::codegen::library {

inline void Put(std::byte* at, DType dtype, double value) {
  const auto put = [&](auto v) { std::memcpy(at, &v, sizeof(v)); };
  switch (dtype) {
    case DType::kFloat32: return put(static_cast<float>(value));
    case DType::kFloat64: return put(value);
    case DType::kBFloat16: return put(FloatToBFloat16(static_cast<float>(value)));
    case DType::kFloat16: return put(FloatToFloat16(static_cast<float>(value)));
    case DType::kUInt8: return put(static_cast<uint8_t>(value));
    case DType::kInt8: return put(static_cast<int8_t>(value));
    case DType::kInt32: return put(static_cast<int32_t>(value));
    case DType::kInt64: return put(static_cast<int64_t>(value));
    case DType::kBool: return put(static_cast<uint8_t>(value != 0));
  }
}

inline double Take(const std::byte* at, DType dtype) {
  const auto take = [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::kFloat32: return take(float{});
    case DType::kFloat64: return take(double{});
    case DType::kBFloat16: return BFloat16ToFloat(take(uint16_t{}));
    case DType::kFloat16: return Float16ToFloat(take(uint16_t{}));
    case DType::kUInt8: return take(uint8_t{});
    case DType::kInt8: return take(int8_t{});
    case DType::kInt32: return take(int32_t{});
    case DType::kInt64: return static_cast<double>(take(int64_t{}));
    case DType::kBool: return take(uint8_t{});
  }
  return 0;
}

}  // namespace hir::codegen::library
