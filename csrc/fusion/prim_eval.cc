#include "csrc/fusion/prim_eval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <type_traits>

#include "csrc/base/check.h"
#include "csrc/base/special_functions.h"

namespace hir::fusion {
namespace {

uint64_t U(int64_t value) { return static_cast<uint64_t>(value); }
int64_t I(uint64_t value) { return static_cast<int64_t>(value); }

double NanMin(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b); }
double NanMax(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }

int64_t Divide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? I(-U(a)) : a / b;
}
// On magnitudes, unsigned: that of the least number has no other.
int64_t Gcd(int64_t a, int64_t b) {
  const auto magnitude = [](int64_t x) { return x < 0 ? -U(x) : U(x); };
  return I(std::gcd(magnitude(a), magnitude(b)));
}
// By squaring, modulo 2^64: what repeated multiplication gives.
int64_t Power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  uint64_t power = 1;
  for (uint64_t square = U(a); b != 0; b >>= 1, square *= square) {
    if (b % 2 != 0) power *= square;
  }
  return I(power);
}
int64_t Modulo(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int64_t ShiftLeft(int64_t a, int64_t b) { return b < 0 || b > 63 ? 0 : I(U(a) << b); }
int64_t ShiftRight(int64_t a, int64_t b) { return a >> (b < 0 || b > 63 ? 63 : b); }

double Call(double (*function)(double), double a, double) { return function(a); }
double Call(double (*function)(double, double), double a, double b) { return function(a, b); }

struct Functions {
  FloatFn floats = nullptr;
  FloatTestFn test = nullptr;
  IntFn integers = nullptr;
};

constexpr std::nullptr_t kNone = nullptr;  // The result where there is no such function.

template <typename Floats, typename Integers>
constexpr Functions FunctionsOf(Floats floats, Integers) {
  Functions functions;
  using Result = std::invoke_result_t<Floats, double, double>;
  if constexpr (std::is_same_v<Result, double>) functions.floats = floats;
  if constexpr (std::is_same_v<Result, bool>) functions.test = floats;
  if constexpr (!std::is_null_pointer_v<std::invoke_result_t<Integers, int64_t, int64_t>>) {
    functions.integers = [](int64_t a, int64_t b) { return int64_t{Integers()(a, b)}; };
  }
  return functions;
}

// clang-format off
#define GIVING(Number, result) []([[maybe_unused]] Number a, [[maybe_unused]] Number b) { return result; }
constexpr Functions kFunctions[] = {
#define PRIM(Name, name, operands, cost, floats, integers, ...) \
  FunctionsOf(GIVING(double, floats), GIVING(int64_t, integers)),
#define LIBRARY(Name, name, operands, cost, function, integers, ...) \
  FunctionsOf(GIVING(double, Call(::function, a, b)), GIVING(int64_t, integers)),
#define SPECIAL(Name, function, overloads) FunctionsOf(GIVING(double, overloads(a)), GIVING(int64_t, kNone)),
#include "csrc/fusion/prims.def"
};
#undef GIVING
// clang-format on

const Functions& FunctionsOf(Prim prim) { return kFunctions[static_cast<size_t>(prim)]; }

}  // namespace

bool MakesBool(Prim prim) { return FloatTest(prim) != nullptr; }
bool IsComparison(Prim prim) { return MakesBool(prim) && InfoOf(prim).operands == 2; }

FloatFn FloatFunction(Prim prim, DType dtype) {
  if (prim == Prim::kNextAfter && dtype != DType::kFloat64) {
    return [](double a, double b) -> double { return std::nextafter(static_cast<float>(a), static_cast<float>(b)); };
  }
  return FunctionsOf(prim).floats;
}

FloatTestFn FloatTest(Prim prim) { return FunctionsOf(prim).test; }
IntFn IntFunction(Prim prim) { return FunctionsOf(prim).integers; }

int64_t Wrap(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kBool: return value & 1;
    case DType::kUInt8: return static_cast<uint8_t>(value);
    case DType::kInt8: return static_cast<int8_t>(value);
    case DType::kInt32: return static_cast<int32_t>(value);
    case DType::kInt64: return value;
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: break;
  }
  HIR_CHECK(false);
  return 0;
}

int64_t IntNeutral(ReduceKind kind, DType dtype) {
  const double neutral = InfoOf(kind).neutral;
  if (std::isfinite(neutral)) return static_cast<int64_t>(neutral);
  const IntLimits limits = LimitsOf(dtype);
  return neutral > 0 ? limits.greatest : limits.least;
}

int64_t FloatToInt(DType to, double value) {
  if (to == DType::kBool) return value != 0 ? 1 : 0;
  if (std::isnan(value)) return 0;
  const IntLimits limits = LimitsOf(to);
  if (value <= static_cast<double>(limits.least)) return limits.least;
  if (value >= static_cast<double>(limits.greatest)) return limits.greatest;  // 2^63 of i64.
  return static_cast<int64_t>(value);
}

double IntToFloat(DType to, int64_t value) {
  if (to == DType::kFloat32) return static_cast<double>(static_cast<float>(value));
  return RoundTo(to, static_cast<double>(value));
}

}  // namespace hir::fusion
