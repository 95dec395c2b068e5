// Functions that <cmath> lacks, to a few units in the last place.
#pragma once

namespace hir::base {

// The y with erf(y) = x: infinite at -1 and 1, NaN outside of them; keeps the sign of 0.
double Erfinv(double x);
float Erfinv(float x);
// The y with erfc(y) = x: infinite at 0 and 2, NaN outside of them.
double Erfcinv(double x);
float Erfcinv(float x);
// The logarithm of |gamma(x)|, without the global variable that std::lgamma writes.
double Lgamma(double x);
float Lgamma(float x);

}  // namespace hir::base
