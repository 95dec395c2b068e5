// Element types of tensors and scalars, and the conversions of the 16-bit floats.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hir {

// The order is the promotion order within a category (docs/ops.md, "Promotion").
enum class DType : uint8_t { kBool, kUInt8, kInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64 };
inline constexpr DType kAllDTypes[] = {DType::kBool,     DType::kUInt8,   DType::kInt8,
                                       DType::kInt32,    DType::kInt64,   DType::kFloat16,
                                       DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// "bool", "u8", "i8", "i32", "i64", "f16", "bf16", "f32", "f64": the text form's and the wire's spelling.
std::string_view DTypeName(DType dtype);
inline constexpr const char* kDTypeNames = "bool, u8, i8, i32, i64, f16, bf16, f32, f64";  // For messages.
std::optional<DType> ParseDType(std::string_view name);

int64_t DTypeBytes(DType dtype);
inline bool IsFloat(DType dtype) { return dtype >= DType::kFloat16; }
inline bool IsInt(DType dtype) { return dtype != DType::kBool && !IsFloat(dtype); }
// Whether elements of the type say which of several others is meant. Those of 8 bits count no rows worth the name, and
// PyTorch takes them for masks.
inline bool IsIndex(DType dtype) { return dtype == DType::kInt32 || dtype == DType::kInt64; }
// The least and the greatest value of a bool or integer type.
struct IntLimits {
  int64_t least = 0;
  int64_t greatest = 0;
};
IntLimits LimitsOf(DType dtype);  // REQUIRES: dtype is no float.
// The type pointwise arithmetic on `dtype` is carried out in: f32 for the 16-bit floats, i32 for the integers of 8
// bits, else itself. Converted to `dtype`, results are what arithmetic in it gives: integers wrap.
DType ComputeDType(DType dtype);

// Round to nearest, ties to even; NaN stays NaN (quiet); no denormal is flushed.
uint16_t FloatToBFloat16(float value);
uint16_t FloatToFloat16(float value);
inline float BFloat16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
float Float16ToFloat(uint16_t bits);

// `value` rounded once to the nearest value of the float type `dtype`.
double RoundTo(DType dtype, double value);

}  // namespace hir
