#include "host_ir/eval/cuda/builtins_text.h"

namespace hir::host {

const std::string_view kBuiltinsIntrinsics = R"(
__device__ float HalfToFloat(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
__device__ unsigned short FloatToHalf(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ float BitsToFloat(unsigned x) { return __uint_as_float(x); }
__device__ unsigned FloatToBits(float x) { return __float_as_uint(x); }
)";

const std::string_view kBuiltinsText = R"(
typedef long long i64;
typedef unsigned long long u64;
constexpr int kThreads = 256;

struct Args { i64 slot[70]; };
struct alignas(16) Bytes16 { u64 low, high; };

// Elements: how they are loaded, computed with and stored; as csrc/base/dtype.h numbers them.
struct Half { unsigned short bits; };
struct BHalf { unsigned short bits; };

template <typename T> struct Number {
  typedef T Compute;
  __device__ static T Load(T x) { return x; }
  __device__ static T Store(T x) { return x; }
};
template <> struct Number<Half> {
  typedef float Compute;
  __device__ static float Load(Half x) { return HalfToFloat(x.bits); }
  __device__ static Half Store(float x) { Half y = {FloatToHalf(x)}; return y; }
};
template <> struct Number<BHalf> {
  typedef float Compute;
  __device__ static float Load(BHalf x) { return BitsToFloat((unsigned)x.bits << 16); }
  __device__ static BHalf Store(float x) {
    unsigned bits = FloatToBits(x);
    if (x != x) {
      bits = bits >> 16 | 0x40;
    } else {
      bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    BHalf y = {(unsigned short)bits};
    return y;
  }
};

enum Operator { kAdd, kSub, kMul, kDiv, kMax, kMin };

template <typename C> struct Unsigned {};
template <> struct Unsigned<int> { typedef unsigned Type; };
template <> struct Unsigned<i64> { typedef u64 Type; };

template <typename C> __device__ C ApplyFloat(i64 op, C a, C b) {
  const bool nan = a != a || b != b;
  switch (op) {
    case kAdd: return a + b;
    case kSub: return a - b;
    case kMul: return a * b;
    case kDiv: return a / b;
    case kMax: return nan ? (C)BitsToFloat(0x7fc00000u) : a < b ? b : a;
    default: return nan ? (C)BitsToFloat(0x7fc00000u) : b < a ? b : a;
  }
}
// Wraps; a division truncates, by zero gives zero.
template <typename C> __device__ C ApplyInt(i64 op, C a, C b) {
  typedef typename Unsigned<C>::Type U;
  switch (op) {
    case kAdd: return (C)((U)a + (U)b);
    case kSub: return (C)((U)a - (U)b);
    case kMul: return (C)((U)a * (U)b);
    case kDiv: return b == 0 ? 0 : b == -1 ? (C)((U)0 - (U)a) : a / b;
    case kMax: return a < b ? b : a;
    default: return b < a ? b : a;
  }
}
__device__ float Apply(i64 op, float a, float b) { return ApplyFloat(op, a, b); }
__device__ double Apply(i64 op, double a, double b) { return ApplyFloat(op, a, b); }
__device__ int Apply(i64 op, int a, int b) { return ApplyInt(op, a, b); }
__device__ i64 Apply(i64 op, i64 a, i64 b) { return ApplyInt(op, a, b); }
__device__ unsigned char Apply(i64 op, unsigned char a, unsigned char b) {
  switch (op) {
    case kAdd:
    case kMax: return a | b;
    case kSub: return a ^ b;
    default: return a & b;
  }
}

__device__ void SetNeutral(i64 op, float* x) {
  const float infinity = BitsToFloat(0x7f800000u);
  *x = op == kMul ? 1.0f : op == kMax ? -infinity : op == kMin ? infinity : 0.0f;
}
__device__ void SetNeutral(i64 op, double* x) {
  const double infinity = BitsToFloat(0x7f800000u);
  *x = op == kMul ? 1.0 : op == kMax ? -infinity : op == kMin ? infinity : 0.0;
}
__device__ void SetNeutral(i64 op, int* x) {
  *x = op == kMul ? 1 : op == kMax ? (int)0x80000000u : op == kMin ? 0x7fffffff : 0;
}
__device__ void SetNeutral(i64 op, i64* x) {
  const u64 top = (u64)1 << 63;
  *x = op == kMul ? 1 : op == kMax ? (i64)top : op == kMin ? (i64)(top - 1) : 0;
}
__device__ void SetNeutral(i64 op, unsigned char* x) { *x = op == kMul || op == kMin ? 1 : 0; }

__device__ __noinline__ i64 Product(const i64* extents, i64 count) {
  i64 product = 1;
#pragma unroll 1
  for (i64 i = 0; i < count; ++i) product *= extents[i];
  return product;
}

// The offset of the index-th word, row-major over the extents, of words of `per` elements along the last axis; with
// 32-bit divisions where that is enough. Not inlined: three kernels of seven types call it.
__device__ __noinline__ i64 OffsetOf(i64 index, i64 rank, const i64* extents, const i64* strides, i64 per) {
  i64 offset = 0;
#pragma unroll 1
  for (i64 axis = rank; axis-- > 0; per = 1) {
    const i64 extent = extents[axis] / per;
    i64 next;
    if (((u64)index | (u64)extent) >> 32 == 0) {
      next = (unsigned)index / (unsigned)extent;
    } else {
      next = index / extent;
    }
    offset += (index - next * extent) * strides[axis] * per;
    index = next;
  }
  return offset;
}

// per: elements in a T.
template <typename T>
__device__ void CopyAs(const Args& args, i64 per) {
  const i64 bytes = args.slot[2], rank = args.slot[3];
  const i64* extents = args.slot + 4;
  const char* src = (const char*)args.slot[0];
  char* dst = (char*)args.slot[1];
  const i64 count = Product(extents, rank) / per;
  const i64 step = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    *(T*)(dst + OffsetOf(i, rank, extents, extents + 2 * rank, per) * bytes) =
        *(const T*)(src + OffsetOf(i, rank, extents, extents + rank, per) * bytes);
  }
}

// Whether both sides are rows of whole 16-byte words.
__device__ bool IsWide(const Args& args) {
  const i64 rank = args.slot[3];
  if (rank == 0) return false;
  const i64 per = 16 / args.slot[2];
  i64 rest = args.slot[0] % 16 | args.slot[1] % 16 | args.slot[4 + rank - 1] % per;
  for (i64 axis = 0; axis + 1 < rank; ++axis) {
    rest |= args.slot[4 + rank + axis] % per | args.slot[4 + 2 * rank + axis] % per;
  }
  return rest == 0 && args.slot[4 + 2 * rank - 1] == 1 && args.slot[4 + 3 * rank - 1] == 1;
}

extern "C" __global__ void __launch_bounds__(kThreads) hir_host_copy(const __grid_constant__ Args args) {
  const i64 bytes = args.slot[2];
  if (IsWide(args)) {
    CopyAs<Bytes16>(args, 16 / bytes);
  } else if (bytes == 1) {
    CopyAs<unsigned char>(args, 1);
  } else if (bytes == 2) {
    CopyAs<unsigned short>(args, 1);
  } else if (bytes == 4) {
    CopyAs<unsigned>(args, 1);
  } else {
    CopyAs<u64>(args, 1);
  }
}

template <typename T>
__device__ void BinaryOf(const Args& args) {
  const i64 op = args.slot[4], rank = args.slot[5];
  const i64* extents = args.slot + 6;
  const i64* strides = extents + rank;
  const T* a = (const T*)args.slot[0];
  const T* b = (const T*)args.slot[1];
  T* out = (T*)args.slot[2];
  const i64 count = Product(extents, rank);
  const i64 step = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const T x = a[OffsetOf(i, rank, extents, strides, 1)];
    const T y = b[OffsetOf(i, rank, extents, strides + rank, 1)];
    out[OffsetOf(i, rank, extents, strides + 2 * rank, 1)] =
        Number<T>::Store(Apply(op, Number<T>::Load(x), Number<T>::Load(y)));
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) hir_host_binary(const __grid_constant__ Args args) {
  switch (args.slot[3]) {
    case 0: return BinaryOf<unsigned char>(args);
    case 1: return BinaryOf<int>(args);
    case 2: return BinaryOf<i64>(args);
    case 3: return BinaryOf<Half>(args);
    case 4: return BinaryOf<BHalf>(args);
    case 5: return BinaryOf<float>(args);
    default: return BinaryOf<double>(args);
  }
}

// Elements begin, begin + step, ... of a row of `length`, in that order.
template <typename T>
__device__ typename Number<T>::Compute ReduceRow(const Args& args, const T* row, i64 length, i64 begin, i64 step) {
  const i64 op = args.slot[3], kept = args.slot[4], reduced = args.slot[5];
  const i64* extents = args.slot + 6 + kept;
  const i64* strides = extents + reduced + kept;
  typename Number<T>::Compute value;
  SetNeutral(op, &value);
#pragma unroll 1
  for (i64 j = begin; j < length; j += step) {
    const i64 offset = reduced == 1 ? j * strides[0] : OffsetOf(j, reduced, extents, strides, 1);
    value = Apply(op, value, Number<T>::Load(row[offset]));
  }
  return value;
}

// A thread does a short reduction alone; a long one is a CTA's: each thread a part with a stride, then a tree.
template <typename T>
__device__ void ReduceOf(const Args& args) {
  typedef typename Number<T>::Compute C;
  __shared__ C partials[kThreads];
  const i64 op = args.slot[3], kept = args.slot[4], reduced = args.slot[5];
  const i64* extents = args.slot + 6;
  const i64* in_strides = extents + kept + reduced;
  const i64* out_strides = in_strides + kept + reduced;
  const T* in = (const T*)args.slot[0];
  T* out = (T*)args.slot[1];
  const i64 count = Product(extents, kept), length = Product(extents + kept, reduced);
  const bool alone = length <= 64;
  const i64 step = alone ? (i64)gridDim.x * blockDim.x : gridDim.x;
#pragma unroll 1
  for (i64 i = alone ? (i64)blockIdx.x * blockDim.x + threadIdx.x : blockIdx.x; i < count; i += step) {
    const T* row = in + OffsetOf(i, kept, extents, in_strides, 1);
    C value = ReduceRow(args, row, length, alone ? 0 : threadIdx.x, alone ? 1 : blockDim.x);
    if (!alone) {
      partials[threadIdx.x] = value;
      __syncthreads();
#pragma unroll 1
      for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
          partials[threadIdx.x] = Apply(op, partials[threadIdx.x], partials[threadIdx.x + half]);
        }
        __syncthreads();
      }
      value = partials[0];
      __syncthreads();
    }
    if (alone || threadIdx.x == 0) out[OffsetOf(i, kept, extents, out_strides, 1)] = Number<T>::Store(value);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) hir_host_reduce(const __grid_constant__ Args args) {
  switch (args.slot[2]) {
    case 0: return ReduceOf<unsigned char>(args);
    case 1: return ReduceOf<int>(args);
    case 2: return ReduceOf<i64>(args);
    case 3: return ReduceOf<Half>(args);
    case 4: return ReduceOf<BHalf>(args);
    case 5: return ReduceOf<float>(args);
    default: return ReduceOf<double>(args);
  }
}
)";

}  // namespace hir::host
