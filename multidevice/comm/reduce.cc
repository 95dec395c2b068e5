#include "multidevice/comm/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "csrc/base/check.h"

namespace hir::comm {
namespace {

// How elements of a dtype are stored, and in which type they are accumulated.
struct Bool {
  using Stored = uint8_t;
  using Accumulated = uint8_t;
  static uint8_t Load(uint8_t value) { return value != 0; }
  static uint8_t Store(uint8_t value) { return value; }
};
struct Float16 {
  using Stored = uint16_t;
  using Accumulated = float;
  static float Load(uint16_t bits) { return Float16ToFloat(bits); }
  static uint16_t Store(float value) { return FloatToFloat16(value); }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Accumulated = float;
  static float Load(uint16_t bits) { return BFloat16ToFloat(bits); }
  // FloatToBFloat16 without its branch and its call, so that it vectorises.
  static uint16_t Store(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40;
    return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
  }
};
template <typename T>
struct Plain {
  using Stored = T;
  using Accumulated = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};

// Integers wrap: computed without sign.
template <typename T, typename F>
T Wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

template <ReduceOp kOp, typename T>
T Combine(T a, T b) {
  if constexpr (kOp == ReduceOp::kSum || kOp == ReduceOp::kMean) {
    return Wrapping(a, b, [](auto x, auto y) { return x + y; });
  } else if constexpr (kOp == ReduceOp::kProd) {
    return Wrapping(a, b, [](auto x, auto y) { return x * y; });
  } else if constexpr (kOp == ReduceOp::kMin) {
    return a < b || a != a ? a : b;  // a != a: a NaN stays. If b is one, a < b is false.
  } else {
    return a > b || a != a ? a : b;
  }
}

constexpr int64_t kBlock = 512;  // Elements; their accumulators stay in the first-level cache.

// Elements [begin, begin + n) of all sources. For whole blocks n is a constant, so that compilers vectorise it.
template <typename Type, ReduceOp kOp>
inline __attribute__((always_inline)) void ReduceBlock(const ReduceStep& step, std::span<const std::byte* const> srcs,
                                                       std::byte* dst, int64_t begin, int64_t n) {
  using Stored = typename Type::Stored;
  using Accumulated = typename Type::Accumulated;
  std::array<Accumulated, kBlock> sums;
  auto* const sum = sums.data();
  if (step.before != nullptr) {
    const auto* const before = reinterpret_cast<const Accumulated*>(step.before) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = before[i];
  } else {
    const auto* const first = reinterpret_cast<const Stored*>(srcs[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = Type::Load(first[i]);
  }
  for (const std::byte* source : srcs.subspan(step.before == nullptr ? 1 : 0)) {
    const auto* const next = reinterpret_cast<const Stored*>(source) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = Combine<kOp>(sum[i], Type::Load(next[i]));
  }
  if (step.total == 0) {
    auto* const out = reinterpret_cast<Accumulated*>(dst) + begin;
    for (int64_t i = 0; i < n; ++i) out[i] = sum[i];
    return;
  }
  if constexpr (kOp == ReduceOp::kMean) {
    const auto total = static_cast<Accumulated>(step.total);
    for (int64_t i = 0; i < n; ++i) sum[i] /= total;
  }
  auto* const out = reinterpret_cast<Stored*>(dst) + begin;
  for (int64_t i = 0; i < n; ++i) out[i] = Type::Store(sum[i]);
}

template <typename Type, ReduceOp kOp>
void ReduceAll(const ReduceStep& step, std::span<const std::byte* const> srcs, std::byte* dst, int64_t count) {
  int64_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) ReduceBlock<Type, kOp>(step, srcs, dst, begin, kBlock);
  ReduceBlock<Type, kOp>(step, srcs, dst, begin, count - begin);
}

template <typename Type>
void ReduceBy(ReduceOp op, const ReduceStep& step, std::span<const std::byte* const> srcs, std::byte* dst,
              int64_t count) {
  switch (op) {
    case ReduceOp::kSum: return ReduceAll<Type, ReduceOp::kSum>(step, srcs, dst, count);
    case ReduceOp::kProd: return ReduceAll<Type, ReduceOp::kProd>(step, srcs, dst, count);
    case ReduceOp::kMin: return ReduceAll<Type, ReduceOp::kMin>(step, srcs, dst, count);
    case ReduceOp::kMax: return ReduceAll<Type, ReduceOp::kMax>(step, srcs, dst, count);
    case ReduceOp::kMean:
      if constexpr (std::is_floating_point_v<typename Type::Accumulated>)
        return ReduceAll<Type, ReduceOp::kMean>(step, srcs, dst, count);
      break;  // CheckDesc refuses it.
  }
  HIR_CHECK(false);
}

// On truth values "or" is the maximum and "and" the minimum.
ReduceOp BoolOp(ReduceOp op) {
  if (op == ReduceOp::kSum) return ReduceOp::kMax;
  return op == ReduceOp::kProd ? ReduceOp::kMin : op;
}

}  // namespace

void Reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> srcs, std::byte* dst, int64_t count) {
  Reduce(op, dtype, {.total = static_cast<int64_t>(srcs.size())}, srcs, dst, count);
}

void Reduce(ReduceOp op, DType dtype, const ReduceStep& step, std::span<const std::byte* const> srcs, std::byte* dst,
            int64_t count) {
  HIR_CHECK(!srcs.empty());
  switch (dtype) {
    case DType::kBool: return ReduceBy<Bool>(BoolOp(op), step, srcs, dst, count);
    case DType::kUInt8: return ReduceBy<Plain<uint8_t>>(op, step, srcs, dst, count);
    case DType::kInt8: return ReduceBy<Plain<int8_t>>(op, step, srcs, dst, count);
    case DType::kInt32: return ReduceBy<Plain<int32_t>>(op, step, srcs, dst, count);
    case DType::kInt64: return ReduceBy<Plain<int64_t>>(op, step, srcs, dst, count);
    case DType::kFloat16: return ReduceBy<Float16>(op, step, srcs, dst, count);
    case DType::kBFloat16: return ReduceBy<BFloat16>(op, step, srcs, dst, count);
    case DType::kFloat32: return ReduceBy<Plain<float>>(op, step, srcs, dst, count);
    case DType::kFloat64: return ReduceBy<Plain<double>>(op, step, srcs, dst, count);
  }
  HIR_CHECK(false);
}

int64_t AccumulatorBytes(DType dtype) {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_half ? static_cast<int64_t>(sizeof(float)) : DTypeBytes(dtype);
}

}  // namespace hir::comm
