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
#include <span>
#include <string>
#include <vector>

#include "csrc/base/text.h"

namespace hir::codegen::cpu {
namespace {

using Table = std::array<double, kRegisterLanes>;

class Float {  // Shorthand for one function's instructions.
 public:
  Float(Writer& writer, std::string& code, int lanes, Ty type = Ty::kF32)
      : w_(writer), code_(code), lanes_(lanes), is_double_(type == Ty::kF64) {}

  V C(double value) {
    return is_double_ ? FloatConstant(Ty::kF64, value, lanes_)
                      : FloatConstant(Ty::kF32, static_cast<float>(value), lanes_);
  }
  V I(int64_t value) { return IntConstant(is_double_ ? Ty::kI64 : Ty::kI32, value, lanes_); }
  V Add(const V& a, const V& b) { return w_.Binary(code_, "fadd", a, b); }
  V Sub(const V& a, const V& b) { return w_.Binary(code_, "fsub", a, b); }
  V Mul(const V& a, const V& b) { return w_.Binary(code_, "fmul", a, b); }
  V Div(const V& a, const V& b) { return w_.Binary(code_, "fdiv", a, b); }
  V Int(const char* op, const V& a, const V& b) { return w_.Binary(code_, op, a, b); }
  V Fma(const V& a, const V& b, const V& c) { return w_.Intrinsic(code_, w_.fma ? "fma" : "fmuladd", {a, b, c}); }
  V Abs(const V& a) { return w_.Intrinsic(code_, "fabs", {a}); }
  V CopySign(const V& a, const V& sign) { return w_.Intrinsic(code_, "copysign", {a, sign}); }
  V Bits(const V& a) { return w_.CastTo(code_, "bitcast", a, is_double_ ? Ty::kI64 : Ty::kI32); }
  V FromBits(const V& a) { return w_.CastTo(code_, "bitcast", a, is_double_ ? Ty::kF64 : Ty::kF32); }
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
  V Poly(const V& x, std::span<const double> coefficients) {
    V sum = C(coefficients.back());
    for (size_t i = coefficients.size() - 1; i-- > 0;) sum = Fma(sum, x, C(coefficients[i]));
    return sum;
  }
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
  bool is_double_;
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

// e^r - 1 for |r| <= ln 2 / 2.
V ExpOfRestMinus1(Float& f, const V& r) {
  const V p = f.Poly(r, {0.5, 0.166665765832, 0.0416665541093, 0.00836324666975, 0.00139262680526});
  return f.Fma(f.Mul(r, r), p, r);
}

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
  return f.Scale(f.Add(ExpOfRestMinus1(f, r), f.C(1)), f.Int("sub", f.Bits(shifted), f.Bits(magic)));
}

// 2^x = 2^n e^((x - n) ln 2).
V EmitExp2(Writer& writer, std::string& code, const V& x) {
  Float f(writer, code, x.lanes);
  V t = f.If(f.Is("olt", x, f.C(-151)), f.C(-151), x);
  t = f.If(f.Is("ogt", t, f.C(129)), f.C(129), t);
  const V magic = f.C(kMagic);
  const V shifted = f.Add(t, magic);
  const V r = f.Mul(f.Sub(t, f.Sub(shifted, magic)), f.C(std::log(2.0)));
  return f.Scale(f.Add(f.C(1), ExpOfRestMinus1(f, r)), f.Int("sub", f.Bits(shifted), f.Bits(magic)));
}

// e^x - 1 = 2^n (e^r - 1 + 1 - 2^-n).
V EmitExpm1(Writer& writer, std::string& code, const V& x) {
  Float f(writer, code, x.lanes);
  V t = f.If(f.Is("olt", x, f.C(-20)), f.C(-20), x);  // -1 in float32.
  t = f.If(f.Is("ogt", t, f.C(89)), f.C(89), t);
  const V magic = f.C(kMagic);
  const V shifted = f.Fma(t, f.C(1 / std::log(2.0)), magic);
  const V r = WithoutPowerOf2(f, t, f.Sub(shifted, magic));
  const V n = f.Int("sub", f.Bits(shifted), f.Bits(magic));
  const V few = f.If(f.Is("sgt", n, f.I(64)), f.I(64), n);  // Of more, 2^-n is nothing beside 1.
  const V rest = f.Sub(f.C(1), f.PowerOf2(f.Int("sub", f.I(0), few)));
  return f.CopySign(f.Scale(f.Add(ExpOfRestMinus1(f, r), rest), n), x);  // The sign of -0 too.
}

namespace {

// log x = e ln 2 + log(1 + m), 1 + m in [sqrt(1/2), sqrt(2)).
struct LogParts {
  V e, m;     // e as a float.
  V log_low;  // log(1 + m) - m.
};
LogParts PartsOfLog(Float& f, const V& x) {
  const V tiny = f.Is("olt", x, f.C(0x1p-126));
  const V bits = f.Bits(f.If(tiny, f.Mul(x, f.C(0x1p23)), x));
  const V e = f.Int("ashr", f.Int("sub", bits, f.I(0x3f3504f3)), f.I(23));  // The bits of sqrt(1/2).
  const V m = f.Sub(f.FromBits(f.Int("sub", bits, f.Int("shl", e, f.I(23)))), f.C(1));
  const V n = f.Sub(f.ToFloat(e), f.If(tiny, f.C(23), f.C(0)));
  const V square = f.Mul(m, m);
  const V p = f.Poly(m, {0.3333333118, -0.24999996958, 0.200007157489, -0.166678023195, 0.142490576457, -0.124256873315,
                         0.116854199235, -0.114797338466, 0.0697161147145});
  return {n, m, f.Fma(square, f.C(-0.5), f.Mul(f.Mul(square, m), p))};
}

// `y`, and what logarithms are of 0, infinity, NaN and less than 0.
V WithEdgesOfLog(Float& f, const V& x, const V& y) {
  V result = f.If(f.Is("oeq", x, f.C(0)), f.C(-kInfinity), y);
  result = f.If(f.Is("oeq", x, f.C(kInfinity)), x, result);
  result = f.If(f.Is("uno", x, x), x, result);
  return f.If(f.Is("olt", x, f.C(0)), f.C(std::numeric_limits<double>::quiet_NaN()), result);
}

}  // namespace

V EmitLog(Writer& writer, std::string& code, const V& x) {
  Float f(writer, code, x.lanes);
  const LogParts parts = PartsOfLog(f, x);
  const V low = f.Fma(parts.e, f.C(kLn2Low), parts.log_low);
  return WithEdgesOfLog(f, x, f.Fma(parts.e, f.C(kLn2High), f.Add(low, parts.m)));
}

// e + log(1 + m) / ln 2: m / ln 2 by a factor in two parts, and what its product rounds away.
V EmitLog2(Writer& writer, std::string& code, const V& x) {
  Float f(writer, code, x.lanes);
  const LogParts parts = PartsOfLog(f, x);
  const double factor = 1 / std::log(2.0), high = static_cast<float>(factor);
  const V product = f.Mul(parts.m, f.C(high));
  V low = f.Fma(parts.m, f.C(high), f.Sub(f.C(0), product));
  low = f.Fma(parts.m, f.C(factor - high), low);
  low = f.Fma(parts.log_low, f.C(factor), low);
  return WithEdgesOfLog(f, x, f.Add(parts.e, f.Add(product, low)));
}

// log u + c / u, with u the rounded 1 + x and c what that lacks.
V EmitLog1p(Writer& writer, std::string& code, const V& x) {
  Float f(writer, code, x.lanes);
  const V u = f.Add(x, f.C(1));
  const V lacks = f.Div(f.Sub(x, f.Sub(u, f.C(1))), u);
  const LogParts parts = PartsOfLog(f, u);
  const V low = f.Add(f.Fma(parts.e, f.C(kLn2Low), parts.log_low), lacks);
  const V y = f.Fma(parts.e, f.C(kLn2High), f.Add(low, parts.m));
  return f.If(f.Is("oeq", x, f.C(0)), x, WithEdgesOfLog(f, u, y));  // The sign of -0.
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
  const V e = f.Add(ExpOfRestMinus1(f, r), f.C(1));
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

namespace {

constexpr double kReducedMax = 0x1p20;  // Beyond, quarters times a part of pi / 2 are not exact.
// pi / 2, of 33 bits, 33 and the rest.
constexpr double kQuarter[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2e037073p-69};
constexpr size_t kTermsOfSin = 5, kTermsOfCos = 6;

// The sine of x = n pi / 2 + r, |r| <= pi / 4, in doubles: r is as exact where x is near a multiple of pi. `quarters`:
// 1 for a cosine.
V SinOfQuarters(Writer& writer, std::string& code, const V& x, int quarters) {
  static const std::vector<double> sine =
      Fit([](double s) { return std::sin(std::sqrt(s)) / std::sqrt(s); }, 0, 0.62, kTermsOfSin);
  static const std::vector<double> cosine = Fit([](double s) { return std::cos(std::sqrt(s)); }, 0, 0.62, kTermsOfCos);
  Float f(writer, code, x.lanes, Ty::kF64);
  const V wide = writer.CastTo(code, "fpext", x, Ty::kF64);
  const V magic = f.C(0x1.8p52);
  const V shifted = f.Fma(wide, f.C(2 / std::numbers::pi), magic);
  const V n = f.Sub(shifted, magic);
  V r = wide;
  for (const double part : kQuarter) r = f.Sub(r, f.Mul(n, f.C(part)));
  const V s = f.Mul(r, r);
  const V quadrant = f.Int("add", f.Bits(shifted), f.I(quarters));
  const V is_odd = f.Is("ne", f.Int("and", quadrant, f.I(1)), f.I(0));
  const V y = f.If(is_odd, f.Poly(s, cosine), f.Mul(r, f.Poly(s, sine)));
  const V sign = f.Int("shl", f.Int("and", quadrant, f.I(2)), f.I(62));
  return writer.CastTo(code, "fptrunc", f.FromBits(f.Int("xor", f.Bits(y), sign)), Ty::kF32);
}

V EmitSinOfQuarters(Writer& writer, std::string& code, const V& x, const std::string& library, int quarters) {
  const std::string type = TypeText(Ty::kF32, x.lanes);
  const std::string name = base::Cat("hir_", library, "_", Suffix(Ty::kF32, x.lanes));
  Writer own;  // Of the function.
  own.fma = writer.fma;
  const V arg = {"%x", Ty::kF32, x.lanes};
  std::string body, beyond;
  Float f(own, body, x.lanes);
  const V y = SinOfQuarters(own, body, arg, quarters);
  const V is_large = f.Is("ogt", f.Abs(arg), f.C(kReducedMax));
  std::string any = is_large.name;
  if (x.lanes > 1) {
    const std::string mask = base::Cat("i", x.lanes), bits = own.NewName();
    any = own.NewName();
    base::Append(body, "  ", bits, " = bitcast ", Typed(is_large), " to ", mask, "\n  ", any, " = icmp ne ", mask, " ",
                 bits, ", 0\n");
  }
  const V all = own.Select(beyond, is_large, own.Library(beyond, library, {arg}), y);
  base::Append(body, "  br i1 ", any, ", label %beyond, label %near\nnear:\n  ret ", Typed(y), "\nbeyond:\n", beyond,
               "  ret ", Typed(all), "\n}");
  writer.declarations.insert(own.declarations.begin(), own.declarations.end());
  writer.declarations.insert(base::Cat("define internal ", type, " @", name, "(", Typed(arg), ") #0 {\n", body));
  return writer.Let(code, Ty::kF32, x.lanes, base::Cat("call ", type, " @", name, "(", Typed(x), ")"));
}

}  // namespace

V EmitSin(Writer& writer, std::string& code, const V& x) { return EmitSinOfQuarters(writer, code, x, "sinf", 0); }
V EmitCos(Writer& writer, std::string& code, const V& x) { return EmitSinOfQuarters(writer, code, x, "cosf", 1); }

}  // namespace hir::codegen::cpu
