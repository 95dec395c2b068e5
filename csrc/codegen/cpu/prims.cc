// Arithmetic of elements. No fast-math flag anywhere: sums, products, quotients and roots are those of the
// interpreter bit by bit, NaN, infinities and -0 included.
#include "csrc/codegen/cpu/prims.h"

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/cpu/math.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen::cpu {
namespace {

using base::Cat;
using fusion::Prim;
using fusion::ReduceKind;

constexpr std::string_view kIntrinsic = "llvm.";

// Operands of vfixupimm: what becomes of both kinds of NaN, others stay; and the processor's mode.
constexpr int64_t kNaNsBecomeQuiet = 0x22;
constexpr int64_t kRoundingAsSet = 4;

bool IsFloatTy(Ty type) { return type == Ty::kF32 || type == Ty::kF64; }

struct Emit {
  Writer& w;
  std::string& code;

  V Zero(const V& like) {
    return IsFloatTy(like.type) ? FloatConstant(like.type, 0, like.lanes) : IntConstant(like.type, 0, like.lanes);
  }
  V Int(const V& like, int64_t value) { return IntConstant(like.type, value, like.lanes); }
  V Op(std::string_view op, const V& a, const V& b) { return w.Binary(code, op, a, b); }
  V Is(std::string_view predicate, const V& a, const V& b) { return w.Compare(code, predicate, a, b); }
  V If(const V& condition, const V& yes, const V& no) { return w.Select(code, condition, yes, no); }
  V Cast(std::string_view op, const V& a, Ty to) { return w.CastTo(code, op, a, to); }

  // a / b or a % b; 0 where b is 0; wraps for b = -1.
  V IntDivide(const V& a, const V& b, bool remainder) {
    const V zero = Is("eq", b, Int(b, 0));
    const V minus = Is("eq", b, Int(b, -1));
    const V safe = If(Op("or", zero, minus), Int(b, 1), b);
    if (remainder) return Op("srem", a, safe);
    const V quotient = Op("sdiv", a, safe);
    return If(zero, Int(a, 0), If(minus, Op("sub", Int(a, 0), a), quotient));
  }
  V MinMax(const V& a, const V& b, bool max) {
    if (a.type == Ty::kI1) return Op(max ? "or" : "and", a, b);
    if (!IsFloatTy(a.type)) return If(Is(max ? "sgt" : "slt", a, b), a, b);
    // b where b is NaN or the one; a where a is NaN.
    const V chosen = If(Is(max ? "ogt" : "olt", a, b), a, b);
    return If(Is("uno", a, a), a, chosen);
  }
  V Shift(const V& a, const V& b, bool left) {
    const int64_t bits = BytesOf(a.type) * 8;
    const V wide = Is("ugt", b, Int(b, bits - 1));
    const V amount = If(wide, Int(b, bits - 1), b);
    if (!left) return Op("ashr", a, amount);
    return If(wide, Int(a, 0), Op("shl", a, b.name == amount.name ? b : amount));
  }
};

// Null: the C library's, a lane at a time, or one instruction.
V (*VectorFunctionOf(Prim prim))(Writer&, std::string&, const V&) {
  if (prim == Prim::kExp) return EmitExp;
  if (prim == Prim::kExp2) return EmitExp2;
  if (prim == Prim::kExpm1) return EmitExpm1;
  if (prim == Prim::kLog) return EmitLog;
  if (prim == Prim::kLog1p) return EmitLog1p;
  if (prim == Prim::kLog2) return EmitLog2;
  if (prim == Prim::kTanh) return EmitTanh;
  if (prim == Prim::kErf) return EmitErf;
  if (prim == Prim::kSin) return EmitSin;
  if (prim == Prim::kCos) return EmitCos;
  return nullptr;
}

V EmitFloat(Writer& w, std::string& code, Prim prim, const std::vector<V>& args) {
  Emit e{w, code};
  const V& a = args[0];
  const V& b = args.back();
  if (prim == Prim::kMin || prim == Prim::kMax) return e.MinMax(a, b, prim == Prim::kMax);
  if (prim == Prim::kRsqrt) {
    return e.Op("fdiv", FloatConstant(a.type, 1, a.lanes), w.Intrinsic(code, "sqrt", {a}));
  }
  if (a.type == Ty::kF32) {
    if (const auto emit = VectorFunctionOf(prim)) return emit(w, code, a);
  }
  const fusion::PrimInfo& info = InfoOf(prim);
  const std::string_view text = info.llvm_floats;
  if (fusion::MakesBool(prim)) return e.Is(text, a, b);
  if (text.starts_with(kIntrinsic)) return w.Intrinsic(code, text.substr(kIntrinsic.size()), {a});
  if (!text.empty())
    return args.size() == 2 ? e.Op(text, a, b) : w.Let(code, a.type, a.lanes, Cat(text, " ", Typed(a)));
  HIR_CHECK(!info.library.empty());
  const std::string name = Cat(info.library, a.type == Ty::kF32 ? "f" : "");
  return args.size() == 1 ? w.Library(code, name, {a}) : w.Library(code, name, {a, b});
}

V EmitInt(Writer& w, std::string& code, Prim prim, const std::vector<V>& args) {
  Emit e{w, code};
  const V& a = args[0];
  const V& b = args.back();
  if (prim == Prim::kDiv || prim == Prim::kRem) return e.IntDivide(a, b, prim == Prim::kRem);
  if (prim == Prim::kMin || prim == Prim::kMax) return e.MinMax(a, b, prim == Prim::kMax);
  if (prim == Prim::kNeg) return e.Op("sub", e.Zero(a), a);
  if (prim == Prim::kAbs) return e.If(e.Is("slt", a, e.Zero(a)), e.Op("sub", e.Zero(a), a), a);
  if (prim == Prim::kNot) return e.Op("xor", a, e.Int(a, -1));
  if (prim == Prim::kShl || prim == Prim::kShr) return e.Shift(a, b, prim == Prim::kShl);
  const fusion::PrimInfo& info = InfoOf(prim);
  if (prim == Prim::kGcd || prim == Prim::kPow) {
    return w.Library(code, Cat("hir_", info.name, a.type == Ty::kI32 ? "_i32" : "_i64"), {a, b});
  }
  HIR_CHECK(!info.llvm_integers.empty());
  return fusion::IsComparison(prim) ? e.Is(info.llvm_integers, a, b) : e.Op(info.llvm_integers, a, b);
}

// Bools, as i1.
V EmitBool(Writer& w, std::string& code, Prim prim, const std::vector<V>& args) {
  Emit e{w, code};
  const V& a = args[0];
  const V& b = args.back();
  if (prim == Prim::kAdd) return e.Op("or", a, b);
  if (prim == Prim::kSub) return e.Op("xor", a, b);
  if (prim == Prim::kMul || prim == Prim::kDiv) return e.Op("and", a, b);
  if (prim == Prim::kRem) return e.Zero(a);
  if (prim == Prim::kNot) return e.Op("xor", a, e.Int(a, 1));
  const std::string_view text = InfoOf(prim).llvm_integers;
  if (fusion::IsComparison(prim) && text[0] == 's') return e.Is(Cat("u", text.substr(1)), a, b);
  return EmitInt(w, code, prim, args);
}

// The upper 16 bits of `bits` (i32).
V UpperHalf(Writer& w, std::string& code, const V& bits) {
  Emit e{w, code};
  return e.Cast("trunc", e.Op("lshr", bits, e.Int(bits, 16)), Ty::kI16);
}

// Ties to even; a NaN whose lower bits are 0 is left as it is.
V RoundBits(Writer& w, std::string& code, const V& bits) {
  Emit e{w, code};
  // Plus 0x7fff, or 0x8000 where the last bit that stays is set: minus -0x7fff, or -0x8000, which is -0x7fff ^ 1.
  // AVX-512 makes that of the shifted bits in one instruction. (A compare and a masked sum take as many, on fewer of
  // Zen 4's units: with a product 3.45 cycles, so 3.22.)
  const V odd = e.Op("and", e.Op("lshr", bits, e.Int(bits, 16)), e.Int(bits, 1));
  return e.Op("sub", bits, e.Op("xor", odd, e.Int(bits, -0x7fff)));
}

// float32 to bfloat16, ties to even. A NaN keeps its sign and becomes quiet.
V ToBFloat16(Writer& w, std::string& code, const V& x) {
  return UpperHalf(w, code, EmitBFloat16Bits(w, code, x, false));
}

// float64 to float32 rounded to odd: what is then rounded to 16 bits is rounded as if at once.
V ToOddFloat32(Writer& w, std::string& code, const V& x) {
  Emit e{w, code};
  const V near = e.Cast("fptrunc", x, Ty::kF32);
  const V back = e.Cast("fpext", near, Ty::kF64);
  const V bits = e.Cast("bitcast", near, Ty::kI32);
  const V away = e.Is("ogt", w.Intrinsic(code, "fabs", {back}), w.Intrinsic(code, "fabs", {x}));
  const V towards_zero = e.If(away, e.Op("sub", bits, e.Int(bits, 1)), bits);
  const V odd = e.Op("or", towards_zero, e.Int(bits, 1));
  const V exact = e.Is("ueq", back, x);
  return e.Cast("bitcast", e.If(exact, bits, odd), Ty::kF32);
}

V ToFloat16(Writer& w, std::string& code, const V& x) {
  if (x.lanes == 1 && !w.half) return w.Call(code, "hir_float_to_half", Ty::kI16, 1, {x});
  if (!w.half) {
    std::string result = "poison";
    for (int lane = 0; lane < x.lanes; ++lane) {
      const V one = w.Call(code, "hir_float_to_half", Ty::kI16, 1, {w.Lane(code, x, lane)});
      result = w.Let(code, Ty::kI16, x.lanes,
                     "insertelement " + TypeText(Ty::kI16, x.lanes) + " " + result + ", " + Typed(one) + ", i64 " +
                         std::to_string(lane))
                   .name;
    }
    return {result, Ty::kI16, x.lanes};
  }
  const std::string half = x.lanes == 1 ? "half" : "<" + std::to_string(x.lanes) + " x half>";
  const V narrow = w.Let(code, Ty::kI16, x.lanes, "fptrunc " + Typed(x) + " to " + half);
  return w.Let(code, Ty::kI16, x.lanes, "bitcast " + half + " " + narrow.name + " to " + TypeText(Ty::kI16, x.lanes));
}

V FromFloat16(Writer& w, std::string& code, const V& x) {
  if (w.half) {
    const std::string half = x.lanes == 1 ? "half" : "<" + std::to_string(x.lanes) + " x half>";
    const V narrow = w.Let(code, Ty::kI16, x.lanes, "bitcast " + Typed(x) + " to " + half);
    return w.Let(code, Ty::kF32, x.lanes, "fpext " + half + " " + narrow.name + " to " + TypeText(Ty::kF32, x.lanes));
  }
  // Sign and magnitude apart; the magnitude's bits shifted into place, 2^112 too small, and denormals come out
  // right.
  Emit e{w, code};
  const V bits = e.Cast("zext", x, Ty::kI32);
  const V magnitude = e.Op("shl", e.Op("and", bits, e.Int(bits, 0x7fff)), e.Int(bits, 13));
  const V scaled = e.Op("fmul", e.Cast("bitcast", magnitude, Ty::kF32), FloatConstant(Ty::kF32, 0x1p112, x.lanes));
  const V special = e.Is("uge", magnitude, e.Int(bits, 0x0f800000));
  const V scaled_bits = e.Cast("bitcast", scaled, Ty::kI32);
  const V finite_or_not = e.If(special, e.Op("or", magnitude, e.Int(bits, 0x7f800000)), scaled_bits);
  const V sign = e.Op("shl", e.Op("and", bits, e.Int(bits, 0x8000)), e.Int(bits, 16));
  return e.Cast("bitcast", e.Op("or", finite_or_not, sign), Ty::kF32);
}

V Widen(Writer& w, std::string& code, DType from, const V& x) {  // 16-bit floats to float32.
  if (from == DType::kFloat16) return FromFloat16(w, code, x);
  Emit e{w, code};
  const V bits = e.Cast("zext", x, Ty::kI32);
  return e.Cast("bitcast", e.Op("shl", bits, e.Int(bits, 16)), Ty::kF32);
}

}  // namespace

V EmitPrim(Writer& writer, std::string& code, Prim prim, DType dtype, const std::vector<V>& args) {
  if (IsFloat(dtype)) return EmitFloat(writer, code, prim, args);
  return args[0].type == Ty::kI1 ? EmitBool(writer, code, prim, args) : EmitInt(writer, code, prim, args);
}

V EmitConvert(Writer& w, std::string& code, DType from, DType to, const V& given) {
  Emit e{w, code};
  V x = given;
  if (from == to) return x;
  if (from == DType::kFloat16 || from == DType::kBFloat16) {
    x = Widen(w, code, from, x);
    from = DType::kFloat32;
    if (to == from) return x;
  }
  const Ty target = TypeOf(to);
  const bool is_signed = from != DType::kBool && from != DType::kUInt8;
  if (to == DType::kBool) return e.Is(IsFloat(from) ? "une" : "ne", x, e.Zero(x));
  if (to == DType::kFloat16 || to == DType::kBFloat16) {
    if (!IsFloat(from)) {
      x = e.Cast(is_signed ? "sitofp" : "uitofp", x, Ty::kF64);
      from = DType::kFloat64;
    }
    if (from == DType::kFloat64) x = ToOddFloat32(w, code, x);
    return to == DType::kFloat16 ? ToFloat16(w, code, x) : ToBFloat16(w, code, x);
  }
  if (IsFloat(from) && IsFloat(to)) return e.Cast(to == DType::kFloat64 ? "fpext" : "fptrunc", x, target);
  if (IsFloat(to)) return e.Cast(is_signed ? "sitofp" : "uitofp", x, target);
  if (IsFloat(from)) {  // Truncates and saturates; NaN gives 0.
    const std::string name = to == DType::kUInt8 ? "llvm.fptoui.sat." : "llvm.fptosi.sat.";
    return w.Call(code, name + Suffix(target, x.lanes) + "." + Suffix(x.type, x.lanes), target, x.lanes, {x});
  }
  if (x.type == target) return x;  // u8 and i8.
  if (from != DType::kBool && BytesOf(target) < BytesOf(x.type)) return e.Cast("trunc", x, target);
  return e.Cast(is_signed ? "sext" : "zext", x, target);
}

V EmitBFloat16Bits(Writer& w, std::string& code, const V& x, bool is_plain) {
  Emit e{w, code};
  const V bits = e.Cast("bitcast", x, Ty::kI32);
  const V rounded = RoundBits(w, code, bits);
  if (is_plain) return rounded;
  if (w.avx512 && x.lanes >= kRegisterLanes) {  // One instruction.
    const auto fix = [&](const std::vector<V>& args) {
      return w.Call(code, "llvm.x86.avx512.mask.fixupimm.ps.512", Ty::kF32, kRegisterLanes,
                    {args[0], args[1], IntConstant(Ty::kI32, kNaNsBecomeQuiet, kRegisterLanes),
                     IntConstant(Ty::kI32, 0), IntConstant(Ty::kI16, -1), IntConstant(Ty::kI32, kRoundingAsSet)});
    };
    const V fixed = w.InRegisters(code, {e.Cast("bitcast", rounded, Ty::kF32), x}, fix);
    return e.Cast("bitcast", fixed, Ty::kI32);
  }
  const V quiet = e.Op("or", bits, e.Int(bits, 0x400000));
  return e.If(e.Is("uno", x, x), quiet, rounded);
}

V EmitRoundToBFloat16(Writer& w, std::string& code, const V& x) {
  return UpperHalf(w, code, EmitBFloat16Bits(w, code, x, true));
}

V EmitCombine(Writer& writer, std::string& code, ReduceKind kind, DType dtype, const V& a, const V& b) {
  return EmitPrim(writer, code, InfoOf(kind).combine, dtype, {a, b});
}

V NeutralOf(ReduceKind kind, DType dtype, int lanes) {
  return IsFloat(dtype) ? FloatConstant(TypeOf(dtype), InfoOf(kind).neutral, lanes)
                        : IntConstant(TypeOf(dtype), fusion::IntNeutral(kind, dtype), lanes);
}

}  // namespace hir::codegen::cpu
