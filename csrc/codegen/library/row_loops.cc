// Loops along rows in vectors of GCC's and Clang's, which make instructions of any width of them: each loop is written
// once, inlined into a function for each kind of processor. No function has several versions for the linker to choose
// from: sanitizers are not up yet when it does.
#include "csrc/codegen/library/row_loops.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace hir::codegen::library {
namespace {

#define HIR_INLINE [[gnu::always_inline]] inline

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using Type [[gnu::vector_size(64)]] = float;
};
template <>
struct VectorOf<double> {
  using Type [[gnu::vector_size(64)]] = double;
};
template <typename T>
using Vector = typename VectorOf<T>::Type;
template <typename T>
constexpr int64_t kLanes = RowLoops<T>::kLanes;
template <typename T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

using Words [[gnu::vector_size(64)]] = uint32_t;

// Vectors go by reference alone: by value the way they go depends on the processor.
template <typename V, typename T>
HIR_INLINE void Load(const T* from, V& to) {
  std::memcpy(&to, from, sizeof(to));
}
template <typename V, typename T>
HIR_INLINE void Store(const V& from, T* to) {
  std::memcpy(to, &from, sizeof(from));
}

// e^x to 2 units in the last place; 0 for x < -86.5, where it would soon have fewer bits than others.
HIR_INLINE void Exp(Vector<float>& x) {
  using V = Vector<float>;
  constexpr float kLeast = -86.5F, kMost = 89.0F, kMagic = 0x1.8p23F;  // Sums with it are rounded to whole numbers.
  const V bounded = x > kMost ? V{} + kMost : x;
  const V shifted = bounded * 0x1.715476p0F + kMagic;
  const V n = shifted - kMagic;
  const V r = (bounded - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;  // ln 2 in two pieces; n times the first is exact.
  V sum = r * 1.9875691500e-4F + 1.3981999507e-3F;
  sum = sum * r + 8.3334519073e-3F;
  sum = sum * r + 4.1665795894e-2F;
  sum = sum * r + 1.6666665459e-1F;
  sum = sum * r + 5.0000001201e-1F;
  sum = sum * (r * r) + r + 1.0F;
  // Twice 2^(n - 1): 2^128 is no float. The whole number is in the low bits of `shifted`.
  Words bits;
  Load(&shifted, bits);
  bits = (bits << 23) + (126U << 23);
  V power;
  Load(&bits, power);
  x = x < kLeast ? V{} : (sum + sum) * power;
}
HIR_INLINE void Exp(Vector<double>& x) {
  for (int i = 0; i < 8; ++i) x[i] = std::exp(x[i]);
}

// 16 elements each.
using Bytes [[gnu::vector_size(16)]] = uint8_t;
using Halves [[gnu::vector_size(32)]] = uint16_t;
using Ints [[gnu::vector_size(64)]] = int32_t;

HIR_INLINE void FromBools(const Bytes& from, Vector<float>& to) {
  to = __builtin_convertvector(__builtin_convertvector(from, Ints), Vector<float>);
}
HIR_INLINE void FromBFloat16s(const Halves& from, Vector<float>& to) {
  const Words bits = __builtin_convertvector(from, Words) << 16;
  Load(&bits, to);
}
HIR_INLINE void FromFloat16s(const Halves& from, Vector<float>& to) {
  const Words bits = __builtin_convertvector(from, Words), magnitude = (bits & 0x7fffU) << 13;
  // The difference of the exponents as a factor makes normal numbers of subnormal ones, too.
  Vector<float> value;
  Load(&magnitude, value);
  value *= 0x1p112F;
  Words finite;
  Load(&value, finite);
  const Words out = (magnitude >= (0x7c00U << 13) ? magnitude + 0x70000000U : finite) | ((bits & 0x8000U) << 16);
  Load(&out, to);
}

// 16 elements at once, the last ones by way of a vector of their own.
template <typename Narrow, auto kConvert, typename Element>
HIR_INLINE void WidenVectors(const Element* from, int64_t n, float* to) {
  Vector<float> wide;
  Narrow narrow;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    Load(from + i, narrow);
    kConvert(narrow, wide);
    Store(wide, to + i);
  }
  if (i == n) return;
  narrow = Narrow{};
  std::memcpy(&narrow, from + i, static_cast<size_t>(n - i) * sizeof(Element));
  kConvert(narrow, wide);
  std::memcpy(to + i, &wide, static_cast<size_t>(n - i) * sizeof(float));
}

template <typename X>
X Same(X x) {
  return x;
}
template <auto kConvert, typename Element, typename T>
HIR_INLINE void WidenEach(const Element* from, int64_t next, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(kConvert(from[i * next]));
}

template <typename T>
HIR_INLINE void Widen(DType dtype, const std::byte* from, int64_t next, int64_t n, T* to) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  const auto* const halves = reinterpret_cast<const uint16_t*>(from);
  if (next == 1) {
    if (dtype == (sizeof(T) == sizeof(float) ? DType::kFloat32 : DType::kFloat64)) {
      if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      return;
    }
    if constexpr (sizeof(T) == sizeof(float)) {
      if (dtype == DType::kBool) return WidenVectors<Bytes, FromBools>(bytes, n, to);
      if (dtype == DType::kBFloat16) return WidenVectors<Halves, FromBFloat16s>(halves, n, to);
      if (dtype == DType::kFloat16) return WidenVectors<Halves, FromFloat16s>(halves, n, to);
    }
  }
  switch (dtype) {
    case DType::kBool: return WidenEach<Same<uint8_t>>(bytes, next, n, to);
    case DType::kBFloat16: return WidenEach<BFloat16ToFloat>(halves, next, n, to);
    case DType::kFloat16: return WidenEach<Float16ToFloat>(halves, next, n, to);
    case DType::kFloat32: return WidenEach<Same<float>>(reinterpret_cast<const float*>(from), next, n, to);
    case DType::kFloat64: return WidenEach<Same<double>>(reinterpret_cast<const double*>(from), next, n, to);
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: return;  // Nobody's.
  }
}

// body(vector, place) of whole vectors, and of the last elements as a vector with zeros behind them.
template <typename T, typename Body>
HIR_INLINE void Change(T* x, int64_t n, const Body& body) {
  Vector<T> v;
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>) {
    Load(x + i, v);
    body(v, i, kLanes<T>);
    Store(v, x + i);
  }
  if (i == n) return;
  v = Vector<T>{};
  std::memcpy(&v, x + i, static_cast<size_t>(n - i) * sizeof(T));
  body(v, i, n - i);
  std::memcpy(x + i, &v, static_cast<size_t>(n - i) * sizeof(T));
}

template <typename T>
struct Scaled {
  T factor;
  HIR_INLINE void operator()(Vector<T>& x, int64_t, int64_t) const { x *= factor; }
};
template <typename T>
HIR_INLINE void LoadSome(const T* from, int64_t n, Vector<T>& to) {
  if (n == kLanes<T>) return Load(from, to);
  to = Vector<T>{};
  std::memcpy(&to, from, static_cast<size_t>(n) * sizeof(T));
}
template <typename T>
struct Added {
  const T* addend;
  HIR_INLINE void operator()(Vector<T>& x, int64_t at, int64_t n) const {
    Vector<T> y;
    LoadSome(addend + at, n, y);
    x += y;
  }
};
template <typename T>
struct Chosen {
  const T* part;
  HIR_INLINE void operator()(Vector<T>& x, int64_t at, int64_t n) const {
    Vector<T> y;
    LoadSome(part + at, n, y);
    x = y == T{0} ? Vector<T>{} - kInfinity<T> : x;
  }
};

template <typename T>
HIR_INLINE void Close(T* scores, int64_t n) {
  for (int64_t i = n; i % kLanes<T> != 0; ++i) scores[i] = -kInfinity<T>;
}

template <typename T>
HIR_INLINE T Max(T* scores, int64_t n) {
  using V = Vector<T>;
  Close(scores, n);
  // Several, since each waits for the one before it in its chain.
  V a = V{} - kInfinity<T>, b = a, c = a, d = a, x;
  int64_t i = 0;
  for (; i + 4 * kLanes<T> <= n; i += 4 * kLanes<T>) {
    Load(scores + i, x);
    a = x > a ? x : a;
    Load(scores + i + kLanes<T>, x);
    b = x > b ? x : b;
    Load(scores + i + 2 * kLanes<T>, x);
    c = x > c ? x : c;
    Load(scores + i + 3 * kLanes<T>, x);
    d = x > d ? x : d;
  }
  for (; i < n; i += kLanes<T>) {
    Load(scores + i, x);
    a = x > a ? x : a;
  }
  b = b > a ? b : a;
  c = c > d ? c : d;
  b = c > b ? c : b;
  T max = -kInfinity<T>;
  for (int lane = 0; lane < kLanes<T>; ++lane) max = b[lane] > max ? b[lane] : max;
  return max;
}

template <typename T>
HIR_INLINE T Powers(T* scores, int64_t n, T shift) {
  Close(scores, n);
  Vector<T> sums = {}, x;
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    Load(scores + i, x);
    x -= shift;
    Exp(x);
    sums += x;
    Store(x, scores + i);
  }
  T sum = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) sum += sums[lane];
  return sum;
}

template <typename T>
HIR_INLINE void Gradients(T* scores, T* of_powers, int64_t n, T lse, T delta) {
  using V = Vector<T>;
  Close(scores, n);
  V x, y;
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    Load(scores + i, x);
    V p = x == -kInfinity<T> ? x : x - lse;
    Exp(p);
    Store(p, scores + i);
    if (of_powers == nullptr) continue;
    Load(of_powers + i, y);
    y = p == T{0} ? V{} : p * (y - delta);
    Store(y, of_powers + i);
  }
}

// A function of each loop for processors with `...`.
#define HIR_ROW_LOOPS(Kind, ...)                                                                                    \
  template <typename T>                                                                                             \
  struct Kind {                                                                                                     \
    __VA_ARGS__ static void WidenRow(DType dtype, const std::byte* from, int64_t next, int64_t n, T* to) {          \
      Widen(dtype, from, next, n, to);                                                                              \
    }                                                                                                               \
    __VA_ARGS__ static void ScaleRow(T* x, int64_t n, T factor) { Change(x, n, Scaled<T>{factor}); }                \
    __VA_ARGS__ static void AddRow(T* x, const T* addend, int64_t n) { Change(x, n, Added<T>{addend}); }            \
    __VA_ARGS__ static void ChooseRow(T* x, const T* part, int64_t n) { Change(x, n, Chosen<T>{part}); }            \
    __VA_ARGS__ static T MaxRow(T* scores, int64_t n) { return Max(scores, n); }                                    \
    __VA_ARGS__ static T PowersRow(T* scores, int64_t n, T shift) { return Powers(scores, n, shift); }              \
    __VA_ARGS__ static void GradientsRow(T* scores, T* of_powers, int64_t n, T lse, T delta) {                      \
      Gradients(scores, of_powers, n, lse, delta);                                                                  \
    }                                                                                                               \
    static constexpr RowLoops<T> kLoops = {WidenRow, ScaleRow, AddRow, ChooseRow, MaxRow, PowersRow, GradientsRow}; \
  }

HIR_ROW_LOOPS(Any, );
#ifdef __x86_64__
HIR_ROW_LOOPS(Avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))));
HIR_ROW_LOOPS(Avx2, __attribute__((target("avx2,fma"))));
#endif

}  // namespace

template <typename T>
std::vector<const RowLoops<T>*> AllRowLoops() {
  std::vector<const RowLoops<T>*> all;
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    all.push_back(&Avx512<T>::kLoops);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&Avx2<T>::kLoops);
#endif
  all.push_back(&Any<T>::kLoops);
  return all;
}
template std::vector<const RowLoops<float>*> AllRowLoops();
template std::vector<const RowLoops<double>*> AllRowLoops();

}  // namespace hir::codegen::library
