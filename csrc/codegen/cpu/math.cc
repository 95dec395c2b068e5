// The polynomials are near-minimax on the intervals named at each: Chebyshev fits in 30 digits.
//
// With AVX-512 a register holds 16 numbers, of which one instruction chooses one for each lane: exp, erf and tanh are
// polynomials of fewer terms then, others for each part of their range, and nothing is computed in two ways of which
// one is taken. (An erf is 21 instructions instead of 35, a tanh 25 instead of 31 with a division, an exp 12 instead
// of 15.)
#include "csrc/codegen/cpu/math.h"

#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numbers>
#include <vector>

namespace hir::codegen::cpu {
namespace {

using Table = std::array<double, kRegisterLanes>;

class Float {  // Shorthand for one function's instructions.
 public:
  Float(Writer& writer, std::string& code, int lanes) : w_(writer), code_(code), lanes_(lanes) {}

  V C(double value) { return FloatConstant(Ty::kF32, static_cast<float>(value), lanes_); }
  V I(int64_t value) { return IntConstant(Ty::kI32, value, lanes_); }
  V Add(const V& a, const V& b) { return w_.Binary(code_, "fadd", a, b); }
  V Sub(const V& a, const V& b) { return w_.Binary(code_, "fsub", a, b); }
  V Mul(const V& a, const V& b) { return w_.Binary(code_, "fmul", a, b); }
  V Div(const V& a, const V& b) { return w_.Binary(code_, "fdiv", a, b); }
  V Int(const char* op, const V& a, const V& b) { return w_.Binary(code_, op, a, b); }
  V Fma(const V& a, const V& b, const V& c) { return w_.Intrinsic(code_, w_.fma ? "fma" : "fmuladd", {a, b, c}); }
  V Abs(const V& a) { return w_.Intrinsic(code_, "fabs", {a}); }
  V CopySign(const V& a, const V& sign) { return w_.Intrinsic(code_, "copysign", {a, sign}); }
  V Bits(const V& a) { return w_.CastTo(code_, "bitcast", a, Ty::kI32); }
  V FromBits(const V& a) { return w_.CastTo(code_, "bitcast", a, Ty::kF32); }
  // a * 2^n, rounded once. |n| is below 250.
  V Scale(const V& a, const V& n) {
    const V half = Int("ashr", n, I(1));  // Two factors, each of which is normal.
    const V rest = Int("sub", n, half);
    return Mul(Mul(a, PowerOf2(half)), PowerOf2(rest));
  }
  // The same in a register with AVX-512, n rounded down.
  V ScaleByFloor(const V& a, const V& n) {
    return w_.Call(code_, "llvm.x86.avx512.mask.scalef.ps.512", Ty::kF32, kRegisterLanes,
                   {a, n, a, IntConstant(Ty::kI16, -1), IntConstant(Ty::kI32, 4)});
  }
  // Also: the number of `table` that the lower four bits of each lane of `at` are the number of.
  V Lookup(const Table& table, const V& at) {
    return w_.Call(code_, "llvm.x86.avx512.permvar.sf.512", Ty::kF32, kRegisterLanes,
                   {FloatConstants(Ty::kF32, table), at});
  }
  V PowerOf2(const V& n) { return FromBits(Int("shl", Int("add", n, I(127)), I(23))); }
  V ToFloat(const V& a) { return w_.CastTo(code_, "sitofp", a, Ty::kF32); }
  V Is(const char* predicate, const V& a, const V& b) { return w_.Compare(code_, predicate, a, b); }
  V If(const V& condition, const V& yes, const V& no) { return w_.Select(code_, condition, yes, no); }
  // Ascending coefficients.
  V Poly(const V& x, std::initializer_list<double> coefficients) {
    const double* at = coefficients.end() - 1;
    V sum = C(*at);
    while (at != coefficients.begin()) sum = Fma(sum, x, C(*--at));
    return sum;
  }

 private:
  Writer& w_;
  std::string& code_;
  int lanes_;
};

constexpr double kLn2High = 0x1.62e4p-1;  // 16 bits: n * kLn2High is exact.
const double kLn2Low = std::log(2.0) - kLn2High;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Adding it rounds to an integer, which the low bits then hold.
constexpr double kMagic = 0x1.8p23;

V InRegisters(Writer& writer, std::string& code, const V& x, const std::function<V(Float&, const V&)>& function) {
  Float f(writer, code, kRegisterLanes);
  return writer.InRegisters(code, {x}, [&](const std::vector<V>& args) { return function(f, args[0]); });
}

// The coefficients of a polynomial of `count` terms that is `function` at Chebyshev's points of [low, high].
std::vector<double> Fit(const std::function<double(double)>& function, double low, double high, size_t count) {
  std::vector<double> at(count), differences(count);
  for (size_t i = 0; i < count; ++i) {
    const double angle = std::numbers::pi * static_cast<double>(2 * i + 1) / static_cast<double>(2 * count);
    at[i] = (low + high) / 2 + (high - low) / 2 * std::cos(angle);
    differences[i] = function(at[i]);
  }
  for (size_t order = 1; order < count; ++order) {
    for (size_t i = count - 1; i >= order; --i)
      differences[i] = (differences[i] - differences[i - 1]) / (at[i] - at[i - order]);
  }
  std::vector<double> terms;  // Of Newton's form, multiplied out from the innermost factor on.
  for (size_t i = count; i-- > 0;) {
    terms.insert(terms.begin(), differences[i]);
    for (size_t k = 0; k + 1 < terms.size(); ++k) terms[k] -= at[i] * terms[k + 1];
  }
  return terms;
}

// An odd function with a slope near 1 at 0 that is 1 in float32 from 15 steps on. Piece n is that around n steps.
struct Pieces {
  float step = 0;
  Table middle = {};         // The function's value there, as a float32. What the float32 lacks is in the first term:
  std::vector<Table> terms;  // by power of the distance from the middle of the piece.
};

Pieces Cut(double (*function)(double), float step, size_t degree) {
  Pieces pieces = {.step = step, .terms = std::vector<Table>(degree + 1)};
  for (size_t n = 0; n < kRegisterLanes; ++n) {
    const double middle = static_cast<double>(n) * step;
    const double value = static_cast<float>(function(middle));
    // Around 0 what is added to x itself, in x.
    const auto above_slope = [&](double x) { return function(x) / x - 1; };
    const auto above_value = [&](double x) { return function(middle + x) - value; };
    std::vector<double> terms =
        n == 0 ? Fit(above_slope, 0, step / 2, degree) : Fit(above_value, -step / 2, step / 2, degree + 1);
    if (n == 0) terms.insert(terms.begin(), 0);
    pieces.middle[n] = value;
    for (size_t k = 0; k <= degree; ++k) pieces.terms[k][n] = static_cast<float>(terms[k]);
  }
  return pieces;
}

V ByPieces(Float& f, const V& x, const Pieces& pieces) {
  const V a = f.Abs(x);
  const V end = f.C((kRegisterLanes - 1) * static_cast<double>(pieces.step));
  const V t = f.If(f.Is("ogt", a, end), end, a);  // NaN stays.
  const V magic = f.C(kMagic);
  const V shifted = f.Fma(t, f.C(1.0F / pieces.step), magic);
  const V n = f.Sub(shifted, magic);
  const V d = f.Fma(n, f.C(-pieces.step), t);
  const V at = f.Bits(shifted);
  V sum = f.Lookup(pieces.terms.back(), at);
  for (size_t k = pieces.terms.size() - 1; k-- > 0;) sum = f.Fma(sum, d, f.Lookup(pieces.terms[k], at));
  const V base = f.If(f.Is("oeq", n, f.C(0)), d, f.Lookup(pieces.middle, at));
  return f.CopySign(f.Add(sum, base), x);  // The only rounding that counts.
}

// Between -104, where e^x is 0, and 89, where it is infinite; NaN stays.
V ClampForExp(Float& f, const V& x) {
  const V t = f.If(f.Is("olt", x, f.C(-104)), f.C(-104), x);
  return f.If(f.Is("ogt", t, f.C(89)), f.C(89), t);
}

// n ln 2 less than x, exactly enough.
V WithoutPowerOf2(Float& f, const V& x, const V& n) { return f.Fma(n, f.C(-kLn2Low), f.Fma(n, f.C(-kLn2High), x)); }

// e^x = 2^n e^r with n the multiple of 1/16 nearest x / ln 2, |r| <= ln 2 / 32; 2^n by a table of sixteenths.
V ExpByTable(Float& f, const V& x) {
  Table powers;
  for (int i = 0; i < kRegisterLanes; ++i)
    powers[static_cast<size_t>(i)] = static_cast<float>(std::exp2(i / double{kRegisterLanes}));
  const V t = ClampForExp(f, x);
  const V magic = f.C(kMagic / kRegisterLanes);  // Sixteenths are in its low bits.
  const V shifted = f.Fma(t, f.C(1 / std::log(2.0)), magic);
  const V n = f.Sub(shifted, magic);
  const V r = WithoutPowerOf2(f, t, n);
  const V p = f.Fma(f.Mul(r, r), f.Fma(r, f.C(0.166668625558), f.C(0.500009794478)), r);
  const V power = f.Lookup(powers, f.Bits(shifted));
  return f.ScaleByFloor(f.Fma(power, p, power), n);
}

}  // namespace

// e^x = 2^n e^r with n the integer nearest x / ln 2, |r| <= ln 2 / 2.
V EmitExp(Writer& writer, std::string& code, const V& x) {
  if (writer.avx512) return InRegisters(writer, code, x, ExpByTable);
  Float f(writer, code, x.lanes);
  const V t = ClampForExp(f, x);
  const V magic = f.C(kMagic);
  const V shifted = f.Fma(t, f.C(1 / std::log(2.0)), magic);
  const V r = WithoutPowerOf2(f, t, f.Sub(shifted, magic));
  const V p = f.Poly(r, {0.5, 0.166665765832, 0.0416665541093, 0.00836324666975, 0.00139262680526});
  const V e = f.Add(f.Fma(f.Mul(r, r), p, r), f.C(1));
  return f.Scale(e, f.Int("sub", f.Bits(shifted), f.Bits(magic)));
}

// log x = e ln 2 + log(1 + m), 1 + m in [sqrt(1/2), sqrt(2)).
V EmitLog(Writer& writer, std::string& code, const V& x) {
  Float f(writer, code, x.lanes);
  const V tiny = f.Is("olt", x, f.C(0x1p-126));
  const V bits = f.Bits(f.If(tiny, f.Mul(x, f.C(0x1p23)), x));
  const V e = f.Int("ashr", f.Int("sub", bits, f.I(0x3f3504f3)), f.I(23));  // The bits of sqrt(1/2).
  const V m = f.Sub(f.FromBits(f.Int("sub", bits, f.Int("shl", e, f.I(23)))), f.C(1));
  const V n = f.Sub(f.ToFloat(e), f.If(tiny, f.C(23), f.C(0)));
  const V square = f.Mul(m, m);
  const V p = f.Poly(m, {0.3333333118, -0.24999996958, 0.200007157489, -0.166678023195, 0.142490576457, -0.124256873315,
                         0.116854199235, -0.114797338466, 0.0697161147145});
  V low = f.Fma(n, f.C(kLn2Low), f.Mul(f.Mul(square, m), p));
  low = f.Fma(square, f.C(-0.5), low);
  const V y = f.Fma(n, f.C(kLn2High), f.Add(low, m));
  V result = f.If(f.Is("oeq", x, f.C(0)), f.C(-kInfinity), y);
  result = f.If(f.Is("oeq", x, f.C(kInfinity)), x, result);
  result = f.If(f.Is("uno", x, x), x, result);
  return f.If(f.Is("olt", x, f.C(0)), f.C(std::numeric_limits<double>::quiet_NaN()), result);
}

// Near 0 an odd polynomial; beyond, 1 - 2 / (e^2x + 1).
V EmitTanh(Writer& writer, std::string& code, const V& x) {
  if (writer.avx512) {
    static const Pieces pieces = Cut([](double at) { return std::tanh(at); }, 625.0F / 1024, 7);
    return InRegisters(writer, code, x, [](Float& f, const V& part) { return ByPieces(f, part, pieces); });
  }
  Float f(writer, code, x.lanes);
  const V a = f.Abs(x);
  const V s = f.Mul(x, x);
  const V p = f.Poly(
      s, {-0.333333331494, 0.133333001462, -0.0539584616275, 0.0217625029074, -0.00832318705828, 0.00226950168416});
  const V near = f.Fma(f.Mul(x, s), p, x);
  const V e = EmitExp(writer, code, f.Add(a, a));
  const V far = f.Sub(f.C(1), f.Div(f.C(2), f.Add(e, f.C(1))));
  return f.CopySign(f.If(f.Is("olt", a, f.C(0.63)), near, far), x);  // The sign of -0 too.
}

namespace {

// e^x for x in [-17, 0] (of NaN anything), where ln 2 in one piece is exact enough and 2^n goes into the exponent as
// it is.
V ExpOfFew(Float& f, const V& x) {
  const V magic = f.C(kMagic);
  const V shifted = f.Fma(x, f.C(1 / std::log(2.0)), magic);
  const V r = f.Fma(f.Sub(shifted, magic), f.C(-std::log(2.0)), x);
  const V p = f.Poly(r, {0.5, 0.166665765832, 0.0416665541093, 0.00836324666975, 0.00139262680526});
  const V e = f.Add(f.Fma(f.Mul(r, r), p, r), f.C(1));
  return f.FromBits(f.Int("add", f.Bits(e), f.Int("shl", f.Bits(shifted), f.I(23))));
}

}  // namespace

// Near 0 an odd polynomial; beyond, 1 - e^(x q(x)), with x q(x) a fit of log erfc.
V EmitErf(Writer& writer, std::string& code, const V& x) {
  if (writer.avx512) {
    static const Pieces pieces = Cut([](double at) { return std::erf(at); }, 545.0F / 2048, 5);
    return InRegisters(writer, code, x, [](Float& f, const V& part) { return ByPieces(f, part, pieces); });
  }
  Float f(writer, code, x.lanes);
  const V a = f.Abs(x);
  const V s = f.Mul(x, x);
  const V p = f.Poly(s, {0.128379166602, -0.376126333343, 0.112836887246, -0.0268589974238, 0.00519998925456,
                         -0.000813044467024, 8.31687971775e-5});
  const V near = f.Fma(x, p, x);
  const V t = f.If(f.Is("ogt", a, f.C(4)), f.C(4), a);  // erf(4) is 1 in float32; NaN stays.
  const V q = f.Poly(t, {-1.12873424114, -0.634838628201, -0.106669021921, 0.0240203030405, -0.00366869723072,
                         0.00027624483116, 1.27936821333e-5, -4.49995517381e-6, 2.77485312892e-7});
  const V far = f.Sub(f.C(1), ExpOfFew(f, f.Mul(t, q)));
  return f.If(f.Is("ult", a, f.C(0.92)), near, f.CopySign(far, x));  // NaN is near.
}

}  // namespace hir::codegen::cpu
