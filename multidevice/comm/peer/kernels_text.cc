#include "multidevice/comm/peer/kernels_text.h"

namespace hir::comm {

const std::string_view kPeerIntrinsics = R"(
typedef unsigned long long u64;
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

// A unit: 8 bytes, each half with its number; the hardware keeps a half and its number together.
__device__ void StoreUnit(u64 address, u64 data, unsigned number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(address), "r"((unsigned)data), "r"(number),
               "r"((unsigned)(data >> 32))
               : "memory");
}
__device__ bool LoadUnit(u64 address, unsigned number, u64* data) {
  unsigned low, first, high, second;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(low), "=r"(first), "=r"(high), "=r"(second)
               : "l"(address)
               : "memory");
  *data = (u64)high << 32 | low;
  return first == number && second == number;
}
__device__ u64 LoadWord(const u64* word) { return *(const volatile u64*)word; }
__device__ u64 Nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
__device__ u64 AddToWord(u64* word) {
  __threadfence();
  return atomicAdd(word, (u64)1);
}
)";

const std::string_view kPeerText = R"(
typedef long long i64;
struct Args { i64 slot[48]; };
struct alignas(16) Bytes16 { u64 low, high; };

// As multidevice/comm/communicator.h and csrc/base/dtype.h number them.
enum Operator { kSum, kProd, kMin, kMax, kMean };
enum Type { kBool, kUInt8, kInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64 };

// Elements: how they are loaded, computed with and stored.
struct Half { unsigned short bits; };
struct BHalf { unsigned short bits; };
struct Truth { unsigned char bits; };
template <typename T> struct Number {
  typedef T Compute;
  __device__ static T Load(T x) { return x; }
  __device__ static T Store(T x) { return x; }
};
template <> struct Number<Truth> {
  typedef int Compute;
  __device__ static int Load(Truth x) { return x.bits != 0; }
  __device__ static Truth Store(int x) { Truth y = {(unsigned char)x}; return y; }
};
template <> struct Number<unsigned char> {
  typedef int Compute;
  __device__ static int Load(unsigned char x) { return x; }
  __device__ static unsigned char Store(int x) { return (unsigned char)x; }
};
template <> struct Number<signed char> {
  typedef int Compute;
  __device__ static int Load(signed char x) { return x; }
  __device__ static signed char Store(int x) { return (signed char)x; }
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
    bits = x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    BHalf y = {(unsigned short)bits};
    return y;
  }
};
// Integers wrap: computed without sign.
__device__ float Add(float a, float b) { return a + b; }
__device__ double Add(double a, double b) { return a + b; }
__device__ int Add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ i64 Add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
__device__ float Multiply(float a, float b) { return a * b; }
__device__ double Multiply(double a, double b) { return a * b; }
__device__ int Multiply(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ i64 Multiply(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
template <typename C> __device__ C Combine(i64 op, C a, C b) {
  switch (op) {
    case kProd: return Multiply(a, b);
    case kMin: return a < b || a != a ? a : b;  // a != a: a NaN stays. If b is one, a < b is false.
    case kMax: return a > b || a != a ? a : b;
    default: return Add(a, b);
  }
}
template <typename C> __device__ C Finish(i64 op, C x, i64 ranks) { return op == kMean ? x / (C)ranks : x; }
// On truth values "or" is the maximum and "and" the minimum.
__device__ i64 OperatorOn(i64 op, i64 type) {
  if (type != kBool) return op;
  return op == kSum ? kMax : op == kProd ? kMin : op;
}

template <typename Word, typename T> union Elements {
  Word word;
  T element[sizeof(Word) / sizeof(T)];
};

// The first `bytes` of `from` as 8, wherever they lie.
__device__ u64 LoadBytes(const char* from, i64 bytes) {
  if (bytes >= 8 && ((u64)from & 7) == 0) return *(const u64*)from;
  u64 data = 0;
  for (int i = 0; i < 8 && i < bytes; ++i) data |= (u64)(unsigned char)from[i] << 8 * i;
  return data;
}
__device__ void StoreBytes(char* to, i64 bytes, u64 data) {
  if (bytes >= 8 && ((u64)to & 7) == 0) {
    *(u64*)to = data;
    return;
  }
  for (int i = 0; i < 8 && i < bytes; ++i) to[i] = (char)(data >> 8 * i);
}

// One call's view of its messages.
struct Messages {
  const Args& args;
  unsigned number;   // Of the call.
  i64 room;          // Bytes of one, numbers included.
  u64 half;          // Offset of the rooms that this call uses.
  u64 end;           // When to give up.

  __device__ u64 Room(i64 at, i64 from) const { return (u64)args.slot[16 + at] + half + (u64)(from * room); }
  // False: the call was aborted, or took too long.
  __device__ bool Await(i64 from, i64 unit, u64* data) const {
    const u64 address = Room(args.slot[8], from) + (u64)unit * 16;
    for (unsigned spins = 1; !LoadUnit(address, number, data); ++spins) {
      if ((spins & 255) != 0) continue;
      if (LoadWord((const u64*)args.slot[9] + 2) != 0 || Nanoseconds() > end) return false;
    }
    return true;
  }
};

template <typename T>
__device__ bool ReduceUnit(const Messages& messages, i64 op, i64 unit, u64 own, u64* result) {
  typedef typename Number<T>::Compute Compute;
  constexpr int kElements = 8 / (int)sizeof(T), kAtOnce = kElements < 4 ? kElements : 4;  // More of 8 bits are spilled.
  const i64 ranks = messages.args.slot[7], place = messages.args.slot[8];
  Elements<u64, T> out;
#pragma unroll
  for (int first = 0; first < kElements; first += kAtOnce) {
    Compute sum[kAtOnce];
    for (i64 from = 0; from < ranks; ++from) {
      Elements<u64, T> next;
      next.word = own;
      if (from != place && !messages.Await(from, unit, &next.word)) return false;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const Compute x = Number<T>::Load(next.element[first + i]);
        sum[i] = from == 0 ? x : Combine(op, sum[i], x);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) out.element[first + i] = Number<T>::Store(Finish(op, sum[i], ranks));
  }
  *result = out.word;
  return true;
}

__device__ bool ReduceUnitOf(const Messages& messages, i64 unit, u64 own, u64* result) {
  const i64 type = messages.args.slot[6], op = OperatorOn(messages.args.slot[5], type);
  switch (type) {
    case kBool: return ReduceUnit<Truth>(messages, op, unit, own, result);
    case kUInt8: return ReduceUnit<unsigned char>(messages, op, unit, own, result);
    case kInt8: return ReduceUnit<signed char>(messages, op, unit, own, result);
    case kInt32: return ReduceUnit<int>(messages, op, unit, own, result);
    case kInt64: return ReduceUnit<i64>(messages, op, unit, own, result);
    case kFloat16: return ReduceUnit<Half>(messages, op, unit, own, result);
    case kBFloat16: return ReduceUnit<BHalf>(messages, op, unit, own, result);
    case kFloat32: return ReduceUnit<float>(messages, op, unit, own, result);
    default: return ReduceUnit<double>(messages, op, unit, own, result);
  }
}

extern "C" __global__ void __launch_bounds__(512) hir_peer_push(const __grid_constant__ Args args) {
  char* const dst = (char*)args.slot[0];
  const char* const src = (const char*)args.slot[1];
  const i64 bytes = args.slot[2], src_stride = args.slot[3], dst_stride = args.slot[4], reduce = args.slot[5];
  const i64 ranks = args.slot[7], place = args.slot[8], room = args.slot[10] * 16;
  u64* const control = (u64*)args.slot[9];
  // Calls take turns with two halves: a rank is at most one call ahead of another, which sends to all in each.
  const unsigned last = (unsigned)LoadWord(control);
  const unsigned number = last == 0xfffffffeu ? 1 : last + 1;  // Never 0, which rooms hold in the beginning.
  const Messages messages = {args, number, room, (u64)((number & 1) * ranks * room),
                             Nanoseconds() + (u64)args.slot[11]};
  if (LoadWord(control + 2) != 0) return;  // Aborted: what it was given to send may be anything.
  const i64 units = (bytes + 7) / 8;
  const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
  for (i64 unit = first; unit < units; unit += step) {
    const i64 at = unit * 8;
    u64 data = src_stride == 0 ? LoadBytes(src + at, bytes - at) : 0;
    for (i64 i = 1; i < ranks; ++i) {
      const i64 to = place + i < ranks ? place + i : place + i - ranks;
      if (src_stride != 0) data = LoadBytes(src + to * src_stride + at, bytes - at);
      StoreUnit(messages.Room(to, place) + (u64)unit * 16, data, number);
    }
  }
  bool in_time = true;
  for (i64 unit = first; unit < units && in_time; unit += step) {
    const i64 at = unit * 8;
    const u64 own = LoadBytes(src + place * src_stride + at, bytes - at);
    if (reduce >= 0) {
      u64 result = 0;
      in_time = ReduceUnitOf(messages, unit, own, &result);
      if (in_time) StoreBytes(dst + at, bytes - at, result);
    } else {
      if (dst + place * dst_stride != src + place * src_stride) {
        StoreBytes(dst + place * dst_stride + at, bytes - at, own);
      }
      for (i64 from = 0; from < ranks && in_time; ++from) {
        u64 data = 0;
        if (from == place) continue;
        in_time = messages.Await(from, unit, &data);
        if (in_time) StoreBytes(dst + from * dst_stride + at, bytes - at, data);
      }
    }
  }
  __syncthreads();
  if (threadIdx.x != 0 || AddToWord(control + 1) + 1 != gridDim.x) return;
  control[1] = 0;
  control[0] = number;
}

template <typename T> __device__ void ReduceAll(const Args& args, i64 op) {
  typedef typename Number<T>::Compute Compute;
  constexpr int kElements = 16 / (int)sizeof(T);
  T* const dst = (T*)args.slot[0];
  const i64 count = args.slot[1], ranks = args.slot[4];
  u64 addresses = (u64)dst;
  for (i64 from = 0; from < ranks; ++from) addresses |= (u64)args.slot[16 + from];
  const i64 words = (addresses & 15) == 0 ? count / kElements : 0;
  const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x, step = (i64)gridDim.x * blockDim.x;
  for (i64 word = first; word < words; word += step) {
    Compute sum[kElements];
    for (i64 from = 0; from < ranks; ++from) {
      Elements<Bytes16, T> next;
      next.word = ((const Bytes16*)args.slot[16 + from])[word];
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const Compute x = Number<T>::Load(next.element[i]);
        sum[i] = from == 0 ? x : Combine(op, sum[i], x);
      }
    }
    Elements<Bytes16, T> out;
#pragma unroll
    for (int i = 0; i < kElements; ++i) out.element[i] = Number<T>::Store(Finish(op, sum[i], ranks));
    ((Bytes16*)dst)[word] = out.word;
  }
  for (i64 i = words * kElements + first; i < count; i += step) {
    Compute sum = Number<T>::Load(((const T*)args.slot[16])[i]);
    for (i64 from = 1; from < ranks; ++from) {
      sum = Combine(op, sum, (Compute)Number<T>::Load(((const T*)args.slot[16 + from])[i]));
    }
    dst[i] = Number<T>::Store(Finish(op, sum, ranks));
  }
}

extern "C" __global__ void __launch_bounds__(512) hir_peer_reduce(const __grid_constant__ Args args) {
  const i64 type = args.slot[3], op = OperatorOn(args.slot[2], type);
  switch (type) {
    case kBool: return ReduceAll<Truth>(args, op);
    case kUInt8: return ReduceAll<unsigned char>(args, op);
    case kInt8: return ReduceAll<signed char>(args, op);
    case kInt32: return ReduceAll<int>(args, op);
    case kInt64: return ReduceAll<i64>(args, op);
    case kFloat16: return ReduceAll<Half>(args, op);
    case kBFloat16: return ReduceAll<BHalf>(args, op);
    case kFloat32: return ReduceAll<float>(args, op);
    default: return ReduceAll<double>(args, op);
  }
}
)";

}  // namespace hir::comm
