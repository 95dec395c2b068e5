#include "csrc/base/special_functions.h"

#include <math.h>  // lgamma_r

#include <cmath>
#include <limits>
#include <numbers>

namespace hir::base {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSqrtPi = 1 / std::numbers::inv_sqrtpi;

// One step of Halley's method for f(y) = 0, where f is erf or erfc less a constant: f'' / f' = -2y. `step` is f / f'.
double Halley(double y, double step) { return y - step / (1 + y * step); }

// |x| <= 1/2. The first terms of erf's inverse series, then two steps, each of which triples the digits.
double ErfinvNearZero(double x) {
  const double t = 0.5 * kSqrtPi * x;
  const double s = t * t;
  double y = t * (1 + s * (1.0 / 3 + s * (7.0 / 30 + s * (127.0 / 630 + s * (4369.0 / 22680)))));
  for (int i = 0; i < 2; ++i) y = Halley(y, (std::erf(y) - x) * 0.5 * kSqrtPi * std::exp(y * y));
  return y;
}

// log(erfc(y)) for y > 25 by its asymptotic series, whose terms go down to 1e-17 there.
double LogErfcFarOut(double y) {
  const double v = 0.5 / (y * y);
  const double series = 1 - v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v * (1 - 9 * v))));
  return -y * y - std::log(y * kSqrtPi / series);
}

// 0 < x <= 1/2. Far out erfc(y) is e^(-y^2) / (y sqrt(pi)) but for a factor of about 1 - 1 / (2 y^2 + 2).
double ErfcinvNearZero(double x) {
  double y = 0.5;
  for (int i = 0; i < 6; ++i) {
    const double factor = 1 - 1 / (2 * y * y + 2);
    y = std::sqrt(std::fmax(-std::log(x * kSqrtPi * std::fmax(y, 0.45) / factor), 0.04));
  }
  if (x < 1e-290) {  // erfc would lose digits with its results subnormal.
    for (int i = 0; i < 3; ++i) y += (LogErfcFarOut(y) - std::log(x)) / (2 * y + 1 / y);
    return y;
  }
  for (int i = 0; i < 3; ++i) {
    const double tail = std::erfc(y);
    // -erfc / erfc' without an overflow: both are tiny.
    const double slope = tail * kSqrtPi * 0.5 * std::exp(y * y);
    y = Halley(y, -slope * (1 - x / tail));
  }
  return y;
}

}  // namespace

double Erfinv(double x) {
  const double magnitude = std::fabs(x);
  if (!(magnitude <= 1)) return kNan;
  if (magnitude == 1) return std::copysign(kInfinity, x);
  if (magnitude <= 0.5) return x == 0 ? x : ErfinvNearZero(x);
  return std::copysign(ErfcinvNearZero(1 - magnitude), x);
}

double Erfcinv(double x) {
  if (!(x >= 0 && x <= 2)) return kNan;
  if (x == 0) return kInfinity;
  if (x == 2) return -kInfinity;
  if (x <= 0.5) return ErfcinvNearZero(x);
  return x >= 1.5 ? -ErfcinvNearZero(2 - x) : Erfinv(1 - x);
}

double Lgamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

float Erfinv(float x) { return static_cast<float>(Erfinv(static_cast<double>(x))); }
float Erfcinv(float x) { return static_cast<float>(Erfcinv(static_cast<double>(x))); }
float Lgamma(float x) {
  int sign = 0;
  return ::lgammaf_r(x, &sign);
}

}  // namespace hir::base
