#include "host_ir/eval/host/host_builtins.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "csrc/base/dtype.h"
#include "csrc/base/text.h"
#include "host_ir/eval/builtins.h"

namespace hir::host {
namespace {

struct Half {
  uint16_t bits;
  using Compute = float;
  static Compute Load(Half x) { return Float16ToFloat(x.bits); }
  static Half Store(Compute x) { return {FloatToFloat16(x)}; }
};
struct BHalf {
  uint16_t bits;
  using Compute = float;
  static Compute Load(BHalf x) { return BFloat16ToFloat(x.bits); }
  static BHalf Store(Compute x) { return {FloatToBFloat16(x)}; }
};

// How elements of T are computed with: 16-bit floats as float, integers modulo 2^n, bools as 0 and
// 1.
template <typename T>
struct Number {
  using Compute = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  static Compute Load(T x) { return static_cast<Compute>(x); }
  static T Store(Compute x) { return static_cast<T>(x); }
};
template <>
struct Number<Half> : Half {};
template <>
struct Number<BHalf> : BHalf {};

template <typename C>
C Apply(BuiltinOperator op, C a, C b) {
  if constexpr (std::is_same_v<C, uint8_t>) {  // bool: 0 and 1.
    switch (op) {
      case BuiltinOperator::kAdd:
      case BuiltinOperator::kMax: return a | b;
      case BuiltinOperator::kMul:
      case BuiltinOperator::kDiv:
      case BuiltinOperator::kMin: return a & b;
      case BuiltinOperator::kSub: return a ^ b;
    }
  } else if constexpr (std::is_floating_point_v<C>) {
    const bool nan = std::isnan(a) || std::isnan(b);
    switch (op) {
      case BuiltinOperator::kAdd: return a + b;
      case BuiltinOperator::kSub: return a - b;
      case BuiltinOperator::kMul: return a * b;
      case BuiltinOperator::kDiv: return a / b;
      case BuiltinOperator::kMax: return nan ? std::numeric_limits<C>::quiet_NaN() : std::max(a, b);
      case BuiltinOperator::kMin: return nan ? std::numeric_limits<C>::quiet_NaN() : std::min(a, b);
    }
  } else {
    using U = std::make_unsigned_t<C>;
    const auto x = static_cast<U>(a), y = static_cast<U>(b);
    switch (op) {
      case BuiltinOperator::kAdd: return static_cast<C>(static_cast<U>(x + y));
      case BuiltinOperator::kSub: return static_cast<C>(static_cast<U>(x - y));
      case BuiltinOperator::kMul: return static_cast<C>(static_cast<U>(x * y));
      case BuiltinOperator::kDiv:  // Truncates; by zero gives zero, and the one quotient that does not fit wraps.
        if (b == 0) return 0;
        return std::is_signed_v<C> && y == std::numeric_limits<U>::max() ? static_cast<C>(static_cast<U>(U{0} - x))
                                                                         : static_cast<C>(a / b);
      case BuiltinOperator::kMax: return std::max(a, b);
      case BuiltinOperator::kMin: return std::min(a, b);
    }
  }
  return a;
}

template <typename C>
C Neutral(BuiltinOperator op) {
  using Limits = std::numeric_limits<C>;
  if (op == BuiltinOperator::kMul) return C{1};
  if (op == BuiltinOperator::kMax) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  if (op == BuiltinOperator::kMin) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return C{0};
}

// Calls body.template operator()<T>() for the element type of `dtype`.
template <typename Body>
void WithType(int64_t dtype, const Body& body) {
  switch (static_cast<DType>(dtype)) {
    case DType::kBool: return body.template operator()<bool>();
    case DType::kInt32: return body.template operator()<int32_t>();
    case DType::kInt64: return body.template operator()<int64_t>();
    case DType::kFloat16: return body.template operator()<Half>();
    case DType::kBFloat16: return body.template operator()<BHalf>();
    case DType::kFloat32: return body.template operator()<float>();
    case DType::kFloat64: return body.template operator()<double>();
  }
}

// The offset of the `index`-th element, row-major over `rank` extents, under `strides`.
int64_t OffsetOf(int64_t index, int64_t rank, const int64_t* extents, const int64_t* strides) {
  int64_t offset = 0;
  for (int64_t axis = rank; axis-- > 0;) {
    offset += index % extents[axis] * strides[axis];
    index /= extents[axis];
  }
  return offset;
}

// Calls body(row, from, count) for the pieces of rows along the last axis that [begin, end) is made of.
template <typename Body>
void ForRows(int64_t begin, int64_t end, int64_t row, const Body& body) {
  for (int64_t i = begin; i < end;) {
    const int64_t from = i % row, count = std::min(row - from, end - i);
    body(i / row, from, count);
    i += count;
  }
}

void Copy(const int64_t* args, int64_t begin, int64_t end) {
  const auto* src = reinterpret_cast<const std::byte*>(args[0]);
  auto* dst = reinterpret_cast<std::byte*>(args[1]);
  const int64_t bytes = args[2], rank = args[3];
  const int64_t* extents = args + 4;
  const int64_t* from = extents + rank;
  const int64_t* to = from + rank;
  const int64_t outer = rank > 0 ? rank - 1 : 0;
  const int64_t from_step = rank > 0 ? from[outer] : 0, to_step = rank > 0 ? to[outer] : 0;
  ForRows(begin, end, rank > 0 ? extents[outer] : 1, [&](int64_t i, int64_t first, int64_t count) {
    const std::byte* s = src + (OffsetOf(i, outer, extents, from) + first * from_step) * bytes;
    std::byte* d = dst + (OffsetOf(i, outer, extents, to) + first * to_step) * bytes;
    if (from_step == 1 && to_step == 1) {
      std::memcpy(d, s, static_cast<size_t>(count * bytes));
      return;
    }
    for (int64_t j = 0; j < count; ++j) {
      std::memcpy(d + j * to_step * bytes, s + j * from_step * bytes, static_cast<size_t>(bytes));
    }
  });
}

void Binary(const int64_t* args, int64_t begin, int64_t end) {
  const auto op = static_cast<BuiltinOperator>(args[4]);
  const int64_t rank = args[5];
  const int64_t* extents = args + 6;
  const int64_t outer = rank > 0 ? rank - 1 : 0;
  WithType(args[3], [&]<typename T>() {
    using N = Number<T>;
    ForRows(begin, end, rank > 0 ? extents[outer] : 1, [&](int64_t i, int64_t first, int64_t count) {
      T* at[3];
      int64_t step[3];
      for (int k = 0; k < 3; ++k) {
        const int64_t* strides = extents + rank * (1 + k);
        step[k] = rank > 0 ? strides[outer] : 0;
        at[k] = reinterpret_cast<T*>(args[k]) + OffsetOf(i, outer, extents, strides) + first * step[k];
      }
      for (int64_t j = 0; j < count; ++j) {
        at[2][j * step[2]] = N::Store(Apply(op, N::Load(at[0][j * step[0]]), N::Load(at[1][j * step[1]])));
      }
    });
  });
}

void Reduce(const int64_t* args, int64_t begin, int64_t end) {
  const auto op = static_cast<BuiltinOperator>(args[3]);
  const int64_t kept = args[4], reduced = args[5];
  const int64_t* extents = args + 6;
  const int64_t* in_strides = extents + kept + reduced;
  const int64_t* out_strides = in_strides + kept + reduced;
  int64_t count = 1;
  for (int64_t axis = kept; axis < kept + reduced; ++axis) count *= extents[axis];
  WithType(args[2], [&]<typename T>() {
    using N = Number<T>;
    for (int64_t i = begin; i < end; ++i) {
      const T* in = reinterpret_cast<const T*>(args[0]) + OffsetOf(i, kept, extents, in_strides);
      auto value = Neutral<typename N::Compute>(op);
      for (int64_t j = 0; j < count; ++j) {
        value = Apply(op, value, N::Load(in[OffsetOf(j, reduced, extents + kept, in_strides + kept)]));
      }
      reinterpret_cast<T*>(args[1])[OffsetOf(i, kept, extents, out_strides)] = N::Store(value);
    }
  });
}

device::HostKernel Kernel(std::string_view name, device::HostFunction function, int64_t grain) {
  return device::HostKernel({.name = std::string(name), .function = function, .grain = grain});
}

}  // namespace

HostBuiltins::HostBuiltins()
    : kernels_{Kernel(kCopyKernel, Copy, 8192), Kernel(kBinaryKernel, Binary, 8192),
               Kernel(kReduceKernel, Reduce, 64)} {}

Result<const device::Kernel*> HostBuiltins::Get(std::string_view name) {
  for (const device::HostKernel& kernel : kernels_) {
    if (kernel.name() == name) return &kernel;
  }
  return Status(Code::kNotFound, base::Cat("no built-in kernel ", name));
}

}  // namespace hir::host
