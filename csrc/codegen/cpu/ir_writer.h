// LLVM IR as text: types, values and instructions of one function. Text needs no LLVM headers, can be read,
// and is the key of
// the compile cache, since it holds no names but its own numbering.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/dtype.h"

namespace hir::codegen::cpu {

enum class Ty : uint8_t { kI1, kI8, kI16, kI32, kI64, kF32, kF64, kPtr };

// A scalar (one lane) or a vector. `name` is an SSA name or a constant.
struct V {
  std::string name;
  Ty type = Ty::kI64;
  int lanes = 1;
};

// The type in which an element of `dtype` is computed: the 16-bit floats as their bits, bool as i1.
Ty TypeOf(DType dtype);
// The same in memory: bool is i8.
Ty MemoryTypeOf(DType dtype);
int BytesOf(Ty type);
// A line of the caches.
inline constexpr int kLineBytes = 64;
std::string TypeText(Ty type, int lanes);  // "<16 x float>"
std::string Suffix(Ty type, int lanes);    // "v16f32", "f32": of intrinsic names.

V IntConstant(Ty type, int64_t value, int lanes = 1);
// Of kF32 `value` must be a float, and so must all of `values`, a lane each.
V FloatConstant(Ty type, double value, int lanes = 1);
V FloatConstants(Ty type, std::span<const double> values);

constexpr int kRegisterLanes = 16;  // Of 32 bits, of AVX-512.

class Writer {
 public:
  // Appends "%n = rhs" to `code`.
  V Let(std::string& code, Ty type, int lanes, std::string_view rhs);
  // "op type a, b": the operands have one type, which is the result's.
  V Binary(std::string& code, std::string_view op, const V& a, const V& b);
  // "icmp/fcmp predicate type a, b"
  V Compare(std::string& code, std::string_view predicate, const V& a, const V& b);
  // "op from a to to"
  V CastTo(std::string& code, std::string_view op, const V& a, Ty to);
  V Select(std::string& code, const V& condition, const V& yes, const V& no);
  // `offset` elements of `type` after the address `base`, in every lane.
  V Address(std::string& code, std::string_view base, Ty type, const V& offset);
  V Splat(std::string& code, const V& scalar, int lanes);
  // The lanes 0, 1, 2, ...
  V Iota(int lanes, Ty type = Ty::kI64);
  V Lane(std::string& code, const V& vector, int lane);
  // Lane i is lane from(i) of `a`, or of `a` and `b` one behind the other.
  V Shuffle(std::string& code, const V& a, int lanes, const std::function<int(int)>& from);
  V Shuffle(std::string& code, const V& a, const V& b, int lanes, const std::function<int(int)>& from);
  // `function` of `args`, types of 32 bits, each exactly kRegisterLanes wide: they may be several registers, or a part
  // of one.
  V InRegisters(std::string& code, const std::vector<V>& args, const std::function<V(const std::vector<V>&)>& function);
  // Calls and declares `name`, without the @.
  V Call(std::string& code, const std::string& name, Ty type, int lanes, std::initializer_list<V> args);
  // llvm.NAME.SUFFIX over operands of the result's type.
  V Intrinsic(std::string& code, std::string_view name, std::initializer_list<V> args);
  // A scalar function of the C library, lane by lane.
  V Library(std::string& code, const std::string& name, std::initializer_list<V> args);

  std::string Alloca(Ty type, int64_t count);  // In the function's entry, aligned to 64 bytes.
  std::string NewLabel() { return "L" + std::to_string(next_++); }
  std::string NewName() { return "%v" + std::to_string(next_++); }

  std::string entry;                   // Allocas.
  std::set<std::string> declarations;  // Whole lines.
  bool fma = false;                    // The target multiplies and adds in one instruction,
  bool half = false;                   // converts float16 in hardware,
  bool avx512 = false;                 // and has AVX-512.

 private:
  int next_ = 0;
};

std::string Typed(const V& value);  // "float %v3"

// What follows an access of tensor number `tensor` of a function, none of which overlap where one is written; and the
// metadata that this names, for functions of up to `num_tensors`. Metadata 0 is not of these.
std::string AliasScopeOf(int tensor);
// `may_share`: whether two of them may be one memory.
std::string AliasScopes(size_t num_tensors, const std::function<bool(size_t, size_t)>& may_share);

}  // namespace hir::codegen::cpu
