#include "csrc/fusion/prim_eval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

}  // namespace

// clang-format off
int NumOperands(Prim prim) {
  switch (prim) {
    case Prim::kSelect: return 3;
    case Prim::kAdd: case Prim::kSub: case Prim::kMul: case Prim::kDiv: case Prim::kRem: case Prim::kMin:
    case Prim::kMax: case Prim::kPow: case Prim::kAtan2: case Prim::kNextAfter: case Prim::kGcd: case Prim::kEq:
    case Prim::kNe: case Prim::kLt: case Prim::kLe: case Prim::kGt: case Prim::kGe: case Prim::kAnd: case Prim::kOr:
    case Prim::kXor: case Prim::kShl: case Prim::kShr:
      return 2;
    case Prim::kNeg: case Prim::kAbs: case Prim::kExp: case Prim::kExp2: case Prim::kExpm1: case Prim::kLog:
    case Prim::kLog2: case Prim::kLog10: case Prim::kLog1p: case Prim::kSqrt: case Prim::kRsqrt: case Prim::kSin:
    case Prim::kCos: case Prim::kTan: case Prim::kAsin: case Prim::kAcos: case Prim::kAtan: case Prim::kSinh:
    case Prim::kCosh: case Prim::kTanh: case Prim::kAsinh: case Prim::kAcosh: case Prim::kAtanh: case Prim::kErf:
    case Prim::kErfc: case Prim::kErfinv: case Prim::kErfcinv: case Prim::kLgamma: case Prim::kFloor: case Prim::kCeil:
    case Prim::kRound: case Prim::kTrunc: case Prim::kNot: case Prim::kIsNan:
      return 1;
  }
  HIR_CHECK(false);
  return 0;
}

const char* LibraryName(Prim prim) {
  switch (prim) {
    case Prim::kRem: return "fmod";
    case Prim::kAbs: return "fabs";
    case Prim::kPow: return "pow";
    case Prim::kAtan2: return "atan2";
    case Prim::kNextAfter: return "nextafter";
    case Prim::kExp: return "exp";
    case Prim::kExp2: return "exp2";
    case Prim::kExpm1: return "expm1";
    case Prim::kLog: return "log";
    case Prim::kLog2: return "log2";
    case Prim::kLog10: return "log10";
    case Prim::kLog1p: return "log1p";
    case Prim::kSqrt: return "sqrt";
    case Prim::kSin: return "sin";
    case Prim::kCos: return "cos";
    case Prim::kTan: return "tan";
    case Prim::kAsin: return "asin";
    case Prim::kAcos: return "acos";
    case Prim::kAtan: return "atan";
    case Prim::kSinh: return "sinh";
    case Prim::kCosh: return "cosh";
    case Prim::kTanh: return "tanh";
    case Prim::kAsinh: return "asinh";
    case Prim::kAcosh: return "acosh";
    case Prim::kAtanh: return "atanh";
    case Prim::kErf: return "erf";
    case Prim::kErfc: return "erfc";
    case Prim::kErfinv: return "erfinv";
    case Prim::kErfcinv: return "erfcinv";
    case Prim::kLgamma: return "lgamma";
    case Prim::kFloor: return "floor";
    case Prim::kCeil: return "ceil";
    case Prim::kRound: return "rint";
    case Prim::kTrunc: return "trunc";
    case Prim::kAdd: case Prim::kSub: case Prim::kMul: case Prim::kDiv: case Prim::kMin: case Prim::kMax:
    case Prim::kNeg: case Prim::kRsqrt: case Prim::kEq: case Prim::kNe: case Prim::kLt: case Prim::kLe: case Prim::kGt:
    case Prim::kGe: case Prim::kAnd: case Prim::kOr: case Prim::kXor: case Prim::kNot: case Prim::kShl: case Prim::kShr:
    case Prim::kGcd: case Prim::kIsNan: case Prim::kSelect:
      return nullptr;
  }
  return nullptr;
}

bool MakesBool(Prim prim) { return FloatTest(prim) != nullptr; }

FloatFn FloatFunction(Prim prim, DType dtype) {
  switch (prim) {
    case Prim::kAdd: return [](double a, double b) { return a + b; };
    case Prim::kSub: return [](double a, double b) { return a - b; };
    case Prim::kMul: return [](double a, double b) { return a * b; };
    case Prim::kDiv: return [](double a, double b) { return a / b; };
    case Prim::kRem: return [](double a, double b) { return std::fmod(a, b); };
    case Prim::kMin: return NanMin;
    case Prim::kMax: return NanMax;
    case Prim::kNeg: return [](double a, double) { return -a; };
    case Prim::kAbs: return [](double a, double) { return std::fabs(a); };
    case Prim::kPow: return [](double a, double b) { return std::pow(a, b); };
    case Prim::kAtan2: return [](double a, double b) { return std::atan2(a, b); };
    case Prim::kNextAfter:
      if (dtype == DType::kFloat64) return [](double a, double b) { return std::nextafter(a, b); };
      return [](double a, double b) -> double { return std::nextafter(static_cast<float>(a), static_cast<float>(b)); };
    case Prim::kExp: return [](double a, double) { return std::exp(a); };
    case Prim::kExp2: return [](double a, double) { return std::exp2(a); };
    case Prim::kExpm1: return [](double a, double) { return std::expm1(a); };
    case Prim::kLog: return [](double a, double) { return std::log(a); };
    case Prim::kLog2: return [](double a, double) { return std::log2(a); };
    case Prim::kLog10: return [](double a, double) { return std::log10(a); };
    case Prim::kLog1p: return [](double a, double) { return std::log1p(a); };
    case Prim::kSqrt: return [](double a, double) { return std::sqrt(a); };
    case Prim::kRsqrt: return [](double a, double) { return 1.0 / std::sqrt(a); };
    case Prim::kSin: return [](double a, double) { return std::sin(a); };
    case Prim::kCos: return [](double a, double) { return std::cos(a); };
    case Prim::kTan: return [](double a, double) { return std::tan(a); };
    case Prim::kAsin: return [](double a, double) { return std::asin(a); };
    case Prim::kAcos: return [](double a, double) { return std::acos(a); };
    case Prim::kAtan: return [](double a, double) { return std::atan(a); };
    case Prim::kSinh: return [](double a, double) { return std::sinh(a); };
    case Prim::kCosh: return [](double a, double) { return std::cosh(a); };
    case Prim::kTanh: return [](double a, double) { return std::tanh(a); };
    case Prim::kAsinh: return [](double a, double) { return std::asinh(a); };
    case Prim::kAcosh: return [](double a, double) { return std::acosh(a); };
    case Prim::kAtanh: return [](double a, double) { return std::atanh(a); };
    case Prim::kErf: return [](double a, double) { return std::erf(a); };
    case Prim::kErfc: return [](double a, double) { return std::erfc(a); };
    case Prim::kErfinv: return [](double a, double) { return base::Erfinv(a); };
    case Prim::kErfcinv: return [](double a, double) { return base::Erfcinv(a); };
    case Prim::kLgamma: return [](double a, double) { return base::Lgamma(a); };
    case Prim::kFloor: return [](double a, double) { return std::floor(a); };
    case Prim::kCeil: return [](double a, double) { return std::ceil(a); };
    case Prim::kRound: return [](double a, double) { return std::nearbyint(a); };
    case Prim::kTrunc: return [](double a, double) { return std::trunc(a); };
    case Prim::kEq: case Prim::kNe: case Prim::kLt: case Prim::kLe: case Prim::kGt: case Prim::kGe: case Prim::kAnd:
    case Prim::kOr: case Prim::kXor: case Prim::kNot: case Prim::kShl: case Prim::kShr: case Prim::kIsNan:
    case Prim::kSelect: case Prim::kGcd:
      return nullptr;
  }
  return nullptr;
}

FloatTestFn FloatTest(Prim prim) {
  if (prim == Prim::kEq) return [](double a, double b) { return a == b; };
  if (prim == Prim::kNe) return [](double a, double b) { return a != b; };
  if (prim == Prim::kLt) return [](double a, double b) { return a < b; };
  if (prim == Prim::kLe) return [](double a, double b) { return a <= b; };
  if (prim == Prim::kGt) return [](double a, double b) { return a > b; };
  if (prim == Prim::kGe) return [](double a, double b) { return a >= b; };
  if (prim == Prim::kIsNan) return [](double a, double) { return std::isnan(a); };
  return nullptr;
}

// clang-format on

IntFn IntFunction(Prim prim) {
  if (prim == Prim::kAdd) return [](int64_t a, int64_t b) { return I(U(a) + U(b)); };
  if (prim == Prim::kSub) return [](int64_t a, int64_t b) { return I(U(a) - U(b)); };
  if (prim == Prim::kMul) return [](int64_t a, int64_t b) { return I(U(a) * U(b)); };
  if (prim == Prim::kDiv) return Divide;
  if (prim == Prim::kRem) return Modulo;
  if (prim == Prim::kMin) return [](int64_t a, int64_t b) { return std::min(a, b); };
  if (prim == Prim::kMax) return [](int64_t a, int64_t b) { return std::max(a, b); };
  if (prim == Prim::kNeg) return [](int64_t a, int64_t) { return I(-U(a)); };
  if (prim == Prim::kAbs) return [](int64_t a, int64_t) { return a < 0 ? I(-U(a)) : a; };
  if (prim == Prim::kEq) return [](int64_t a, int64_t b) { return int64_t{a == b}; };
  if (prim == Prim::kNe) return [](int64_t a, int64_t b) { return int64_t{a != b}; };
  if (prim == Prim::kLt) return [](int64_t a, int64_t b) { return int64_t{a < b}; };
  if (prim == Prim::kLe) return [](int64_t a, int64_t b) { return int64_t{a <= b}; };
  if (prim == Prim::kGt) return [](int64_t a, int64_t b) { return int64_t{a > b}; };
  if (prim == Prim::kGe) return [](int64_t a, int64_t b) { return int64_t{a >= b}; };
  if (prim == Prim::kAnd) return [](int64_t a, int64_t b) { return a & b; };
  if (prim == Prim::kOr) return [](int64_t a, int64_t b) { return a | b; };
  if (prim == Prim::kXor) return [](int64_t a, int64_t b) { return a ^ b; };
  if (prim == Prim::kNot) return [](int64_t a, int64_t) { return ~a; };  // Wrap keeps bit 0 of a bool.
  if (prim == Prim::kShl) return [](int64_t a, int64_t b) { return b < 0 || b > 63 ? 0 : I(U(a) << b); };
  if (prim == Prim::kShr) return [](int64_t a, int64_t b) { return a >> (b < 0 || b > 63 ? 63 : b); };
  if (prim == Prim::kGcd) return Gcd;
  if (prim == Prim::kPow) return Power;
  return nullptr;
}

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
