#include "csrc/base/dtype.h"

#include <algorithm>
#include <cmath>

#include "csrc/base/check.h"

namespace hir {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kUInt8: return "u8";
    case DType::kInt8: return "i8";
    case DType::kInt32: return "i32";
    case DType::kInt64: return "i64";
    case DType::kFloat16: return "f16";
    case DType::kBFloat16: return "bf16";
    case DType::kFloat32: return "f32";
    case DType::kFloat64: return "f64";
  }
  HIR_CHECK(false);
  return {};
}

std::optional<DType> ParseDType(std::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8: return 1;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kInt32:
    case DType::kFloat32: return 4;
    case DType::kInt64:
    case DType::kFloat64: return 8;
  }
  HIR_CHECK(false);
  return 0;
}

IntLimits LimitsOf(DType dtype) {
  switch (dtype) {
    case DType::kBool: return {0, 1};
    case DType::kUInt8: return {0, UINT8_MAX};
    case DType::kInt8: return {INT8_MIN, INT8_MAX};
    case DType::kInt32: return {INT32_MIN, INT32_MAX};
    case DType::kInt64: return {INT64_MIN, INT64_MAX};
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: break;
  }
  HIR_CHECK(false);
  return {};
}

DType ComputeDType(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return DType::kFloat32;
  return dtype == DType::kUInt8 || dtype == DType::kInt8 ? DType::kInt32 : dtype;
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// By bits, not by _Float16, which Clang 14 lacks on x86.
uint16_t FloatToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half = 0;
  if (magnitude > 0x7f800000) {  // A NaN: quiet, with what fits of its payload.
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // From 65520, halfway between the largest and the next.
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // Normal, from 2^-14: a carry raises the exponent.
    half = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
  } else {  // Multiples of 2^-24, the last place of 0.5: the addition rounds.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  }
  return static_cast<uint16_t>(sign | half);
}

float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude < 0x400) {  // Zero or a denormal.
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f));
  }
  // Infinity and NaN keep all ones.
  const uint32_t exponent = magnitude >= 0x7c00 ? 0x70000000 : 0x38000000;
  return std::bit_cast<float>(sign | ((magnitude << 13) + exponent));
}

namespace {

// Rounds to `mantissa` explicit bits with the smallest exponent `exponent_min`, ties to even.
double RoundBits(double value, int mantissa, int exponent_min, double max_finite) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  std::frexp(value, &exponent);  // value = m * 2^exponent, 0.5 <= |m| < 1
  const int unit = std::max(exponent - 1, exponent_min) - mantissa;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  if (std::fabs(rounded) > max_finite) return std::copysign(INFINITY, value);
  return std::copysign(rounded, value);
}

}  // namespace

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kFloat16: return RoundBits(value, 10, -14, 65504.0);
    case DType::kBFloat16: return RoundBits(value, 7, -126, 0x1.fep127);
    case DType::kFloat32: return static_cast<double>(static_cast<float>(value));
    case DType::kFloat64: return value;
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: break;
  }
  HIR_CHECK(false);
  return 0;
}

}  // namespace hir
