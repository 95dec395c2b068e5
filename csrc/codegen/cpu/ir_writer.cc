#include "csrc/codegen/cpu/ir_writer.h"

#include <bit>
#include <cstdio>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::codegen::cpu {

using base::Cat;

Ty TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBool: return Ty::kI1;
    case DType::kUInt8:
    case DType::kInt8: return Ty::kI8;
    case DType::kInt32: return Ty::kI32;
    case DType::kInt64: return Ty::kI64;
    case DType::kFloat16:
    case DType::kBFloat16: return Ty::kI16;
    case DType::kFloat32: return Ty::kF32;
    case DType::kFloat64: return Ty::kF64;
  }
  return Ty::kI64;
}

Ty MemoryTypeOf(DType dtype) { return dtype == DType::kBool ? Ty::kI8 : TypeOf(dtype); }

int BytesOf(Ty type) {
  switch (type) {
    case Ty::kI1:
    case Ty::kI8: return 1;
    case Ty::kI16: return 2;
    case Ty::kI32:
    case Ty::kF32: return 4;
    case Ty::kI64:
    case Ty::kF64:
    case Ty::kPtr: return 8;
  }
  return 8;
}

namespace {

std::string_view ScalarText(Ty type) {
  switch (type) {
    case Ty::kI1: return "i1";
    case Ty::kI8: return "i8";
    case Ty::kI16: return "i16";
    case Ty::kI32: return "i32";
    case Ty::kI64: return "i64";
    case Ty::kF32: return "float";
    case Ty::kF64: return "double";
    case Ty::kPtr: return "ptr";
  }
  return "?";
}

std::string FloatText(double value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%016llX", static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
  return text;
}

std::string Repeat(std::string_view type, const std::string& value, int lanes) {
  return lanes == 1 ? value : Cat("splat (", type, " ", value, ")");
}

}  // namespace

std::string TypeText(Ty type, int lanes) {
  if (lanes == 1) return std::string(ScalarText(type));
  return Cat("<", lanes, " x ", ScalarText(type), ">");
}

std::string Suffix(Ty type, int lanes) {
  std::string scalar(ScalarText(type));
  if (type == Ty::kF32) scalar = "f32";
  if (type == Ty::kF64) scalar = "f64";
  if (type == Ty::kPtr) scalar = "p0";
  return lanes == 1 ? scalar : Cat("v", lanes, scalar);
}

std::string Typed(const V& value) { return Cat(TypeText(value.type, value.lanes), " ", value.name); }

V IntConstant(Ty type, int64_t value, int lanes) {
  const std::string text = type == Ty::kI1 ? (value != 0 ? "true" : "false") : std::to_string(value);
  return {Repeat(ScalarText(type), text, lanes), type, lanes};
}

V FloatConstant(Ty type, double value, int lanes) {
  return {Repeat(ScalarText(type), FloatText(value), lanes), type, lanes};
}

V FloatConstants(Ty type, std::span<const double> values) {
  std::string text;
  for (const double value : values)
    base::Append(text, text.empty() ? "<" : ", ", ScalarText(type), " ", FloatText(value));
  return {text + ">", type, static_cast<int>(values.size())};
}

V Writer::Let(std::string& code, Ty type, int lanes, std::string_view rhs) {
  V value = {NewName(), type, lanes};
  base::Append(code, "  ", value.name, " = ", rhs, "\n");
  return value;
}

V Writer::Binary(std::string& code, std::string_view op, const V& a, const V& b) {
  HIR_CHECK(a.type == b.type && a.lanes == b.lanes);
  return Let(code, a.type, a.lanes, Cat(op, " ", Typed(a), ", ", b.name));
}

V Writer::Compare(std::string& code, std::string_view predicate, const V& a, const V& b) {
  HIR_CHECK(a.type == b.type && a.lanes == b.lanes);
  const bool is_float = a.type == Ty::kF32 || a.type == Ty::kF64;
  return Let(code, Ty::kI1, a.lanes, Cat(is_float ? "fcmp " : "icmp ", predicate, " ", Typed(a), ", ", b.name));
}

V Writer::CastTo(std::string& code, std::string_view op, const V& a, Ty to) {
  return Let(code, to, a.lanes, Cat(op, " ", Typed(a), " to ", TypeText(to, a.lanes)));
}

V Writer::Select(std::string& code, const V& condition, const V& yes, const V& no) {
  HIR_CHECK(yes.type == no.type && yes.lanes == no.lanes);
  return Let(code, yes.type, yes.lanes, Cat("select ", Typed(condition), ", ", Typed(yes), ", ", Typed(no)));
}

V Writer::Address(std::string& code, std::string_view base, Ty type, const V& offset) {
  return Let(code, Ty::kPtr, offset.lanes,
             Cat("getelementptr ", TypeText(type, 1), ", ptr ", base, ", ", Typed(offset)));
}

V Writer::Splat(std::string& code, const V& scalar, int lanes) {
  if (scalar.lanes == lanes) return scalar;
  HIR_CHECK(scalar.lanes == 1);
  if (scalar.name[0] != '%') {
    return {Repeat(ScalarText(scalar.type), scalar.name, lanes), scalar.type, lanes};
  }
  const std::string type = TypeText(scalar.type, lanes);
  const V first = Let(code, scalar.type, lanes, Cat("insertelement ", type, " poison, ", Typed(scalar), ", i64 0"));
  return Let(
      code, scalar.type, lanes,
      Cat("shufflevector ", Typed(first), ", ", type, " poison, ", TypeText(Ty::kI32, lanes), " zeroinitializer"));
}

V Writer::Iota(int lanes, Ty type) {
  if (lanes == 1) return IntConstant(type, 0);
  std::string text = "<";
  for (int i = 0; i < lanes; ++i) base::Append(text, i > 0 ? ", " : "", ScalarText(type), " ", i);
  return {text + ">", type, lanes};
}

V Writer::Lane(std::string& code, const V& vector, int lane) {
  if (vector.lanes == 1) return vector;
  return Let(code, vector.type, 1, Cat("extractelement ", Typed(vector), ", i64 ", lane));
}

V Writer::Shuffle(std::string& code, const V& a, int lanes, const std::function<int(int)>& from) {
  return Shuffle(code, a, {"poison", a.type, a.lanes}, lanes, from);
}

V Writer::Shuffle(std::string& code, const V& a, const V& b, int lanes, const std::function<int(int)>& from) {
  HIR_CHECK(a.type == b.type && a.lanes == b.lanes && a.lanes > 1);
  std::string numbers;
  for (int i = 0; i < lanes; ++i) base::Append(numbers, i > 0 ? ", i32 " : "i32 ", from(i));
  return Let(code, a.type, lanes,
             Cat("shufflevector ", Typed(a), ", ", Typed(b), ", ", TypeText(Ty::kI32, lanes), " <", numbers, ">"));
}

V Writer::InRegisters(std::string& code, const std::vector<V>& args,
                      const std::function<V(const std::vector<V>&)>& function) {
  const int lanes = args[0].lanes;
  if (lanes == kRegisterLanes) return function(args);
  const auto each = [&](const auto& part) {
    std::vector<V> parts;
    for (const V& arg : args) parts.push_back(part(arg));
    return parts;
  };
  const auto same = [](int i) { return i; };
  if (lanes == 1) {
    return Lane(code, function(each([&](const V& x) { return Splat(code, x, kRegisterLanes); })), 0);
  }
  if (lanes < kRegisterLanes) {
    const auto repeated = [&](int i) { return i % lanes; };
    const auto whole = [&](const V& x) { return Shuffle(code, x, kRegisterLanes, repeated); };
    return Shuffle(code, function(each(whole)), lanes, same);
  }
  const int half = lanes / 2;
  const auto upper = [&](int i) { return half + i; };
  const std::vector<V> low = each([&](const V& x) { return Shuffle(code, x, half, same); });
  const std::vector<V> high = each([&](const V& x) { return Shuffle(code, x, half, upper); });
  const V low_result = InRegisters(code, low, function);
  return Shuffle(code, low_result, InRegisters(code, high, function), lanes, same);
}

V Writer::Call(std::string& code, const std::string& name, Ty type, int lanes, std::initializer_list<V> args) {
  std::string types, values;
  for (const V& arg : args) {
    base::Append(types, types.empty() ? "" : ", ", TypeText(arg.type, arg.lanes));
    base::Append(values, values.empty() ? "" : ", ", Typed(arg));
  }
  const std::string result = TypeText(type, lanes);
  // #1: a function of its operands alone, here and in the C library (errno is not looked at).
  declarations.insert(Cat("declare ", result, " @", name, "(", types, ")", name.starts_with("llvm.") ? "" : " #1"));
  return Let(code, type, lanes, Cat("call ", result, " @", name, "(", values, ")"));
}

V Writer::Intrinsic(std::string& code, std::string_view name, std::initializer_list<V> args) {
  const V& first = *args.begin();
  return Call(code, Cat("llvm.", name, ".", Suffix(first.type, first.lanes)), first.type, first.lanes, args);
}

V Writer::Library(std::string& code, const std::string& name, std::initializer_list<V> args) {
  const V& first = *args.begin();
  if (first.lanes == 1) return Call(code, name, first.type, 1, args);
  std::string result = "poison";
  for (int lane = 0; lane < first.lanes; ++lane) {
    const V a = Lane(code, *args.begin(), lane);
    const V one = args.size() == 1 ? Call(code, name, first.type, 1, {a})
                                   : Call(code, name, first.type, 1, {a, Lane(code, args.begin()[1], lane)});
    result =
        Let(code, first.type, first.lanes,
            Cat("insertelement ", TypeText(first.type, first.lanes), " ", result, ", ", Typed(one), ", i64 ", lane))
            .name;
  }
  return {result, first.type, first.lanes};
}

std::string Writer::Alloca(Ty type, int64_t count) {
  const std::string name = NewName();
  base::Append(entry, "  ", name, " = alloca ", TypeText(type, 1), ", i64 ", count, ", align 64\n");
  return name;
}

namespace {

constexpr int kDomain = 1;
int ScopeId(int tensor) { return kDomain + 1 + 3 * tensor; }

}  // namespace

std::string AliasScopeOf(int tensor) {
  return Cat(", !alias.scope !", ScopeId(tensor) + 1, ", !noalias !", ScopeId(tensor) + 2);
}

std::string AliasScopes(size_t num_tensors, const std::function<bool(size_t, size_t)>& may_share) {
  std::string out = Cat("!", kDomain, " = distinct !{!", kDomain, "}\n");
  for (size_t i = 0; i < num_tensors; ++i) {
    const int id = ScopeId(static_cast<int>(i));
    base::Append(out, "!", id, " = distinct !{!", id, ", !", kDomain, "}\n!", id + 1, " = !{!", id, "}\n!", id + 2,
                 " = !{");
    std::string_view separator;
    for (size_t other = 0; other < num_tensors; ++other) {
      if (other == i || may_share(i, other)) continue;
      base::Append(out, separator, "!", ScopeId(static_cast<int>(other)));
      separator = ", ";
    }
    out += "}\n";
  }
  return out;
}

}  // namespace hir::codegen::cpu
