#include "csrc/codegen/gpu/scalar.h"

#include <bit>
#include <cmath>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Prim;
using fusion::ReduceKind;

std::string_view TypeText(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "bool";
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32: return "int";
    case DType::kInt64: return "i64";
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
  }
  return {};
}

std::string_view MemoryText(DType dtype) {
  if (dtype == DType::kBool || dtype == DType::kUInt8) return "u8";
  if (dtype == DType::kInt8) return "i8";
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return "u16";
  return TypeText(dtype);
}

std::string_view Suffix(DType dtype) { return DTypeName(dtype); }

std::string FloatText(DType dtype, double value) {
  const bool is_double = dtype == DType::kFloat64;
  if (!std::isfinite(is_double ? value : static_cast<float>(value))) {
    return is_double ? Cat("u2d(", std::bit_cast<uint64_t>(value), "ull)")
                     : Cat("u2f(", std::bit_cast<uint32_t>(static_cast<float>(value)), "u)");
  }
  char text[64];
  std::snprintf(text, sizeof text, "%a", is_double ? value : static_cast<float>(value));
  return std::signbit(value) ? Cat("(", text, is_double ? ")" : "f)") : Cat(text, is_double ? "" : "f");
}

std::string IntText(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (value == INT64_MIN) return "(-9223372036854775807ll - 1)";
  const std::string text = Cat(value, dtype == DType::kInt64 ? "ll" : "");
  if (dtype == DType::kInt32 && value == INT32_MIN) return "(-2147483647 - 1)";
  return value < 0 ? Cat("(", text, ")") : text;
}

namespace {

// `text` of the table, an operator or a function, on its operands.
std::string On(std::string_view text, bool two, const std::string& a, const std::string& b) {
  const bool is_function = text[0] >= 'a' && text[0] <= 'z';
  if (is_function) return Cat(text, "(", a, two ? ", " : "", two ? b : "", ")");
  return two ? Cat("(", a, " ", text, " ", b, ")") : Cat("(", text, a, ")");
}

std::string FloatPrim(Prim prim, DType dtype, const std::string& a, const std::string& b, bool fast) {
  const bool is_float = dtype != DType::kFloat64;
  if (fast && is_float) {
    if (prim == Prim::kExp) return Cat("fast_exp(", a, ")");
    if (prim == Prim::kTanh) return Cat("fast_tanh(", a, ")");
    if (prim == Prim::kDiv) return Cat("fast_div(", a, ", ", b, ")");
  }
  if (prim == Prim::kIsNan) return Cat("(", a, " != ", a, ")");
  if (prim == Prim::kRsqrt) return is_float ? Cat("(1.0f / sqrtf(", a, "))") : Cat("(1.0 / sqrt(", a, "))");
  const fusion::PrimInfo& info = InfoOf(prim);
  const bool two = info.operands == 2;
  if (!info.c_floats.empty()) return On(info.c_floats, two, a, b);
  HIR_CHECK(!info.library.empty());
  return On(Cat(info.library, is_float ? "f" : ""), two, a, b);
}

std::string IntPrim(Prim prim, DType dtype, const std::string& a, const std::string& b) {
  const std::string_view wide = dtype == DType::kInt64 ? "u64" : "u32";
  const std::string_view type = TypeText(dtype);
  const fusion::PrimInfo& info = InfoOf(prim);
  if (prim == Prim::kAdd || prim == Prim::kSub || prim == Prim::kMul)  // They wrap.
    return Cat("(", type, ")((", wide, ")", a, " ", info.c_integers, " (", wide, ")", b, ")");
  if (prim == Prim::kNeg) return Cat("(", type, ")(0u - (", wide, ")", a, ")");
  if (prim == Prim::kAbs) return Cat("(", a, " < 0 ? (", type, ")(0u - (", wide, ")", a, ") : ", a, ")");
  HIR_CHECK(!info.c_integers.empty());
  return On(info.c_integers, info.operands == 2, a, b);
}

std::string BoolPrim(Prim prim, const std::string& a, const std::string& b) {
  if (prim == Prim::kAdd || prim == Prim::kMax || prim == Prim::kOr) return Cat("(", a, " || ", b, ")");
  if (prim == Prim::kMul || prim == Prim::kMin || prim == Prim::kAnd || prim == Prim::kDiv)
    return Cat("(", a, " && ", b, ")");
  if (prim == Prim::kSub || prim == Prim::kXor) return Cat("(", a, " != ", b, ")");
  if (prim == Prim::kNot) return Cat("(!", a, ")");
  if (prim == Prim::kRem) return "false";
  if (prim == Prim::kNeg || prim == Prim::kAbs) return a;
  HIR_CHECK(fusion::IsComparison(prim));
  return On(InfoOf(prim).c_integers, true, a, b);
}

}  // namespace

std::string PrimText(Prim prim, DType dtype, std::span<const std::string> args, bool fast) {
  if (prim == Prim::kSelect) return Cat("(", args[0], " ? ", args[1], " : ", args[2], ")");
  const std::string& a = args[0];
  const std::string& b = args.back();
  if (dtype == DType::kBool) return BoolPrim(prim, a, b);
  if (!IsFloat(dtype)) return IntPrim(prim, dtype, a, b);
  return FloatPrim(prim, dtype, a, b, fast);
}

std::string ConvertText(DType from, DType to, const std::string& x) {
  if (from == to) return x;
  if (to == DType::kBool) return Cat("(", x, " != 0)");
  const bool is_double = from == DType::kFloat64;
  if (to == DType::kFloat16 || to == DType::kBFloat16) {
    const std::string_view round = to == DType::kFloat16 ? "round_f16(" : "round_bf16(";
    if (IsFloat(from) && !is_double) return Cat(round, x, ")");
    if (from == DType::kBool) return Cat("(", x, " ? 1.0f : 0.0f)");
    return Cat(round, "odd((double)", x, "))");
  }
  if (to == DType::kFloat32 && IsFloat(from) && !is_double) return x;
  if (IsFloat(to)) return Cat("((", TypeText(to), ")", x, ")");
  if (IsFloat(from)) return Cat("to_", Suffix(to), "(", x, ")");
  return Cat("((", MemoryText(to), ")", x, ")");  // Of 8 bits: what is left of them, as an int.
}

std::string NeutralText(ReduceKind kind, DType dtype) {
  return IsFloat(dtype) ? FloatText(dtype, InfoOf(kind).neutral) : IntText(dtype, fusion::IntNeutral(kind, dtype));
}

}  // namespace hir::codegen::gpu
