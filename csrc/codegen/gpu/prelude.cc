// Small on purpose: the compiler reads it for every kernel. No header is included, those of bf16 and cooperative
// groups alone would cost more than a kernel.
#include "csrc/codegen/gpu/prelude.h"

namespace hir::codegen::gpu {

const std::string_view kIntrinsics = R"(
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
#define DEV static __device__ __forceinline__
#define ANY static __device__ __noinline__
#define SHARED __shared__
#define KERNEL(name, threads, ctas) extern "C" __global__ void __launch_bounds__(threads, ctas) \
  name(const __grid_constant__ Args a)
#define TID ((int)threadIdx.x)
#define CTA ((i64)blockIdx.x)
#define CTAS ((i64)gridDim.x)
DEV void sync() { __syncthreads(); }
DEV void warp_sync() { __syncwarp(); }
template <class T> DEV T shuffle(T x, int m) { return __shfl_xor_sync(0xffffffffu, x, m); }
DEV bool shuffle(bool x, int m) { return __shfl_xor_sync(0xffffffffu, (int)x, m) != 0; }
DEV float u2f(u32 x) { return __uint_as_float(x); }
DEV u32 f2u(float x) { return __float_as_uint(x); }
DEV double u2d(u64 x) { return __longlong_as_double((i64)x); }
DEV u64 d2u(double x) { return (u64)__double_as_longlong(x); }
DEV u32 bf2(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEV u32 hf2(float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEV u32 fma2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
DEV float hf(u32 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((u16)x)); return r; }
DEV float fmaxn(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEV float fminn(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEV float fast_ex2(float x) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float fast_tanh(float x) { float r; asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float fast_rcp(float x) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
DEV float full_div(float a, float b) { float r; asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
DEV u32 pick(u32 a, u32 b, u32 s) { return __byte_perm(a, b, s); }
DEV float down_f32(double x) { return __double2float_rz(x); }
DEV int f2i(float x) { return __float2int_rz(x); }
DEV int f2i(double x) { return __double2int_rz(x); }
DEV i64 f2l(float x) { return __float2ll_rz(x); }
DEV i64 f2l(double x) { return __double2ll_rz(x); }
DEV void keep(u32& x) { asm volatile("" : "+r"(x)); }
#if __CUDA_ARCH__ >= 900
DEV void after_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEV void start_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEV void after_previous() {}
DEV void start_next() {}
#endif
DEV uint4 stream16(const uint4* p) { return __ldcs(p); }
DEV uint4 keep16(const uint4* p) {
  u64 policy;
  uint4 v;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(policy));
  return v;
}
DEV void copy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
template <int B> DEV void copy_small(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
               ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "n"(B) : "memory");
}
DEV void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
// Copies of many bytes, of which a barrier in shared memory counts those that are still to come. Its phases alternate.
#define DYNAMIC(name) extern __shared__ uint4 name[]
#if __CUDA_ARCH__ >= 900
DEV void bulk_start(u64* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
}
DEV void bulk_started() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void bulk_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"((u32)__cvta_generic_to_shared(barrier)), "r"(bytes) : "memory");
}
DEV void bulk_copy(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes),
                 "r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
}
DEV bool bulk_done(u64* barrier, u32 phase) {
  u32 done;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"((u32)__cvta_generic_to_shared(barrier)), "r"(phase) : "memory");
  return done != 0;
}
DEV void bulk_wait(u64* barrier, u32 phase) { while (!bulk_done(barrier, phase)) {} }
#endif
)";

const std::string_view kPrelude = R"(
// Bytes of neighbouring elements, in registers.
template <int B> struct Pk { u32 w[B < 4 ? 1 : B / 4]; };
template <int B> DEV Pk<B> none() {
  Pk<B> r;
  for (int i = 0; i < (B < 4 ? 1 : B / 4); ++i) r.w[i] = 0;
  return r;
}
template <int B> DEV void keep(Pk<B>& x) {
  for (int i = 0; i < (B < 4 ? 1 : B / 4); ++i) keep(x.w[i]);
}
template <int B> DEV Pk<B> ldv(const void* p) {
  Pk<B> r;
  if constexpr (B >= 16) {
    for (int i = 0; i < B / 16; ++i) {
      const uint4 v = ((const uint4*)p)[i];
      r.w[4 * i] = v.x, r.w[4 * i + 1] = v.y, r.w[4 * i + 2] = v.z, r.w[4 * i + 3] = v.w;
    }
  } else if constexpr (B == 8) {
    const uint2 v = *(const uint2*)p;
    r.w[0] = v.x, r.w[1] = v.y;
  } else if constexpr (B == 4) {
    r.w[0] = *(const u32*)p;
  } else if constexpr (B == 2) {
    r.w[0] = *(const u16*)p;
  } else {
    r.w[0] = *(const u8*)p;
  }
  return r;
}
// The same for what is read for the last time, and for what is soon read again: the second-level cache gives up that
// first, and this last.
template <int B, bool K> DEV Pk<B> ldh(const void* p) {
  if constexpr (B < 16) {
    return ldv<B>(p);
  } else {
    Pk<B> r;
    for (int i = 0; i < B / 16; ++i) {
      const uint4 v = K ? keep16((const uint4*)p + i) : stream16((const uint4*)p + i);
      r.w[4 * i] = v.x, r.w[4 * i + 1] = v.y, r.w[4 * i + 2] = v.z, r.w[4 * i + 3] = v.w;
    }
    return r;
  }
}
template <int B> DEV Pk<B> lds(const void* p) { return ldh<B, false>(p); }
template <int B> DEV Pk<B> ldk(const void* p) { return ldh<B, true>(p); }
// The same of any address of elements of 2 or 4 bytes: from the pieces that it lies across, each of which has a byte of
// it.
template <int B> DEV Pk<B> ldu(const void* p) {
  constexpr int C = B < 16 ? B : 16, N = B / C;
  const int beyond = (int)((u64)p & (C - 1));
  const char* base = (const char*)p - beyond;
  u32 w[(B + C) / 4];
#pragma unroll
  for (int k = 0; k <= N; ++k) {
    const Pk<C> c = ldv<C>(base + (k == N && beyond == 0 ? N - 1 : k) * C);
#pragma unroll
    for (int i = 0; i < C / 4; ++i) w[k * (C / 4) + i] = c.w[i];
  }
#pragma unroll
  for (int step = C / 8; step > 0; step /= 2) {
    const bool moves = (beyond & (4 * step)) != 0;
#pragma unroll
    for (int i = 0; i + step < (B + C) / 4; ++i) w[i] = moves ? w[i + step] : w[i];
  }
  Pk<B> r;
#pragma unroll
  for (int i = 0; i < B / 4; ++i) r.w[i] = (u32)((((u64)w[i + 1] << 32) | w[i]) >> (8 * (beyond & 3)));
  return r;
}
template <int B> DEV void stv(void* p, const Pk<B>& r) {
  if constexpr (B >= 16) {
    for (int i = 0; i < B / 16; ++i)
      ((uint4*)p)[i] = make_uint4(r.w[4 * i], r.w[4 * i + 1], r.w[4 * i + 2], r.w[4 * i + 3]);
  } else if constexpr (B == 8) {
    *(uint2*)p = make_uint2(r.w[0], r.w[1]);
  } else if constexpr (B == 4) {
    *(u32*)p = r.w[0];
  } else if constexpr (B == 2) {
    *(u16*)p = (u16)r.w[0];
  } else {
    *(u8*)p = (u8)r.w[0];
  }
}
// `count` elements of E bytes to shared memory and back, by N threads. Both addresses are multiples of 16.
template <int N, int E> DEV void copy_in(void* to, const void* from, int count) {
  const int vectors = count * E / 16;
#pragma unroll 1
  for (int i = TID; i < vectors; i += N) copy16((char*)to + 16 * i, (const char*)from + 16 * i);
  for (int i = vectors * (16 / E) + TID; i < count; i += N) stv((char*)to + E * i, ldv<E>((const char*)from + E * i));
}
template <int N, int E> DEV void copy_out(void* to, const void* from, int count) {
  const int vectors = count * E / 16;
#pragma unroll 4
  for (int i = TID; i < vectors; i += N) stv((char*)to + 16 * i, ldv<16>((const char*)from + 16 * i));
  for (int i = vectors * (16 / E) + TID; i < count; i += N) stv((char*)to + E * i, ldv<E>((const char*)from + E * i));
}
template <int B> DEV u32 get1(const Pk<B>& r, int e) { return r.w[e >> 2] >> (8 * (e & 3)) & 255u; }
template <int B> DEV u32 get2(const Pk<B>& r, int e) { return e & 1 ? r.w[e >> 1] >> 16 : r.w[e >> 1] & 0xffffu; }
template <int B> DEV u64 get8(const Pk<B>& r, int e) { return (u64)r.w[2 * e + 1] << 32 | r.w[2 * e]; }
template <int B> DEV float get_bf16(const Pk<B>& r, int e) {
  return u2f(e & 1 ? r.w[e >> 1] & 0xffff0000u : r.w[e >> 1] << 16);
}
template <int B> DEV float get_f16(const Pk<B>& r, int e) { return hf(get2(r, e)); }
template <int B> DEV float get_f32(const Pk<B>& r, int e) { return u2f(r.w[e]); }
template <int B> DEV double get_f64(const Pk<B>& r, int e) { return u2d(get8(r, e)); }
template <int B> DEV bool get_bool(const Pk<B>& r, int e) { return get1(r, e) != 0; }
template <int B> DEV int get_u8(const Pk<B>& r, int e) { return (int)get1(r, e); }
template <int B> DEV int get_i8(const Pk<B>& r, int e) { return (i8)get1(r, e); }
template <int B> DEV int get_i32(const Pk<B>& r, int e) { return (int)r.w[e]; }
template <int B> DEV i64 get_i64(const Pk<B>& r, int e) { return (i64)get8(r, e); }
template <int E> DEV Pk<2 * E> put_bf16(const float (&x)[E]) {
  Pk<2 * E> r;
  for (int i = 0; i < E / 2; ++i) r.w[i] = bf2(x[2 * i], x[2 * i + 1]);
  return r;
}
template <int E> DEV Pk<2 * E> put_f16(const float (&x)[E]) {
  Pk<2 * E> r;
  for (int i = 0; i < E / 2; ++i) r.w[i] = hf2(x[2 * i], x[2 * i + 1]);
  return r;
}
template <int E> DEV Pk<4 * E> put_f32(const float (&x)[E]) {
  Pk<4 * E> r;
  for (int i = 0; i < E; ++i) r.w[i] = f2u(x[i]);
  return r;
}
template <int E> DEV Pk<4 * E> put_i32(const int (&x)[E]) {
  Pk<4 * E> r;
  for (int i = 0; i < E; ++i) r.w[i] = (u32)x[i];
  return r;
}
template <int E> DEV Pk<8 * E> put_i64(const i64 (&x)[E]) {
  Pk<8 * E> r;
  for (int i = 0; i < E; ++i) r.w[2 * i] = (u32)x[i], r.w[2 * i + 1] = (u32)((u64)x[i] >> 32);
  return r;
}
template <int E> DEV Pk<8 * E> put_f64(const double (&x)[E]) {
  Pk<8 * E> r;
  for (int i = 0; i < E; ++i) r.w[2 * i] = (u32)d2u(x[i]), r.w[2 * i + 1] = (u32)(d2u(x[i]) >> 32);
  return r;
}
template <int E> DEV Pk<E> put_bool(const bool (&x)[E]) {
  Pk<E> r = none<E>();
  for (int i = 0; i < E; ++i) r.w[i >> 2] |= (u32)x[i] << (8 * (i & 3));
  return r;
}
template <int E> DEV Pk<E> put_u8(const int (&x)[E]) {
  Pk<E> r = none<E>();
  for (int i = 0; i < E; ++i) r.w[i >> 2] |= ((u32)x[i] & 255u) << (8 * (i & 3));
  return r;
}
template <int E> DEV Pk<E> put_i8(const int (&x)[E]) { return put_u8(x); }
template <int B> DEV Pk<B> add_bf16(const Pk<B>& a, const Pk<B>& b) {
  Pk<B> r;
  for (int i = 0; i < B / 4; ++i) r.w[i] = fma2(a.w[i], 0x3f803f80u, b.w[i]);
  return r;
}
template <int B> DEV Pk<B> sub_bf16(const Pk<B>& a, const Pk<B>& b) {
  Pk<B> r;
  for (int i = 0; i < B / 4; ++i) r.w[i] = fma2(b.w[i], 0xbf80bf80u, a.w[i]);
  return r;
}
template <int B> DEV Pk<B> mul_bf16(const Pk<B>& a, const Pk<B>& b) {
  Pk<B> r;
  for (int i = 0; i < B / 4; ++i) r.w[i] = fma2(a.w[i], b.w[i], 0x80008000u);
  return r;
}
// One element.
DEV float ld_bf16(const u16* p) { return u2f((u32)*p << 16); }
DEV float ld_f16(const u16* p) { return hf(*p); }
DEV float ld_f32(const float* p) { return *p; }
DEV double ld_f64(const double* p) { return *p; }
DEV bool ld_bool(const u8* p) { return *p != 0; }
DEV int ld_u8(const u8* p) { return *p; }
DEV int ld_i8(const i8* p) { return *p; }
DEV int ld_i32(const int* p) { return *p; }
DEV i64 ld_i64(const i64* p) { return *p; }
DEV void st_bf16(u16* p, float x) { *p = (u16)bf2(x, x); }
DEV void st_f16(u16* p, float x) { *p = (u16)hf2(x, x); }
DEV void st_f32(float* p, float x) { *p = x; }
DEV void st_f64(double* p, double x) { *p = x; }
DEV void st_bool(u8* p, bool x) { *p = x; }
DEV void st_u8(u8* p, int x) { *p = (u8)x; }
DEV void st_i8(i8* p, int x) { *p = (i8)x; }
DEV void st_i32(int* p, int x) { *p = x; }
DEV void st_i64(i64* p, i64 x) { *p = x; }
// Rounded to 16 bits, and back.
DEV float round_bf16(float x) { return u2f(bf2(x, x) << 16); }
DEV float round_f16(float x) { return hf(hf2(x, x) & 0xffffu); }
// Rounded to odd: what is then rounded to 16 bits is rounded as if at once.
DEV float odd(double x) {
  const float f = down_f32(x);
  return (double)f == x || x != x ? f : u2f(f2u(f) | 1u);
}
DEV int to_i32(float x) { return x != x ? 0 : f2i(x); }
DEV int to_i32(double x) { return x != x ? 0 : f2i(x); }
template <class F> DEV int clamp_int(F x, int low, int high) {
  const int i = to_i32(x);
  return i < low ? low : i > high ? high : i;
}
DEV int to_u8(float x) { return clamp_int(x, 0, 255); }
DEV int to_u8(double x) { return clamp_int(x, 0, 255); }
DEV int to_i8(float x) { return clamp_int(x, -128, 127); }
DEV int to_i8(double x) { return clamp_int(x, -128, 127); }
DEV i64 to_i64(float x) { return x != x ? 0 : f2l(x); }
DEV i64 to_i64(double x) { return x != x ? 0 : f2l(x); }
DEV double fmaxn(double a, double b) { return a != a || a > b ? a : b; }
DEV double fminn(double a, double b) { return a != a || a < b ? a : b; }
template <class T> DEV T maxi(T a, T b) { return a > b ? a : b; }
template <class T> DEV T mini(T a, T b) { return a < b ? a : b; }
template <class T> DEV T divi(T a, T b) { return b == 0 ? 0 : b == -1 ? (T)(0 - (u64)a) : a / b; }
template <class T> DEV T remi(T a, T b) { return b == 0 || b == -1 ? 0 : a % b; }
template <class T> DEV T shl(T a, T b) { return b < 0 || b > (T)(8 * sizeof(T) - 1) ? 0 : (T)((u64)a << b); }
template <class T> DEV T shr(T a, T b) {
  const T most = (T)(8 * sizeof(T) - 1);
  return a >> (b < 0 || b > most ? most : b);
}
template <class U> DEV U gcd_of(U x, U y) { while (y != 0) { const U r = x % y; x = y, y = r; } return x; }
DEV int gcd(int a, int b) { return (int)gcd_of(a < 0 ? 0 - (u32)a : (u32)a, b < 0 ? 0 - (u32)b : (u32)b); }
DEV i64 gcd(i64 a, i64 b) { return (i64)gcd_of(a < 0 ? 0 - (u64)a : (u64)a, b < 0 ? 0 - (u64)b : (u64)b); }
template <class U> DEV U pow_of(U x, u64 y) { U p = 1; for (; y != 0; y >>= 1, x *= x) if (y & 1) p *= x; return p; }
template <class T> DEV T powi_below_0(T a, T b) { return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0; }
DEV int powi(int a, int b) { return b < 0 ? powi_below_0(a, b) : (int)pow_of((u32)a, (u64)b); }
DEV i64 powi(i64 a, i64 b) { return b < 0 ? powi_below_0(a, b) : (i64)pow_of((u64)a, (u64)b); }
template <class T> DEV T floor_div(T a, T b) { if (b == 0) return 0; const T q = a / b; return q * b > a ? q - 1 : q; }
template <class T> DEV T floor_mod(T a, T b) { if (b == 0) return 0; const T r = a % b; return r < 0 ? r + b : r; }
template <class T> DEV T ceil_div(T a, T b) { if (b == 0) return 0; const T q = a / b; return q * b < a ? q + 1 : q; }
constexpr float kLog2E = 1.44269504f;
DEV float fast_exp(float x) { return fast_ex2(x * kLog2E); }
DEV float fast_div(float a, float b) { return a * fast_rcp(b); }
// Reductions.
struct Sum { template <class T> DEV T of(T a, T b) { return a + b; } DEV bool of(bool a, bool b) { return a || b; } };
struct Prod { template <class T> DEV T of(T a, T b) { return a * b; } DEV bool of(bool a, bool b) { return a && b; } };
struct Max {
  DEV float of(float a, float b) { return fmaxn(a, b); }
  DEV double of(double a, double b) { return fmaxn(a, b); }
  DEV int of(int a, int b) { return a > b ? a : b; }
  DEV i64 of(i64 a, i64 b) { return a > b ? a : b; }
  DEV bool of(bool a, bool b) { return a || b; }
};
struct Min {
  DEV float of(float a, float b) { return fminn(a, b); }
  DEV double of(double a, double b) { return fminn(a, b); }
  DEV int of(int a, int b) { return a < b ? a : b; }
  DEV i64 of(i64 a, i64 b) { return a < b ? a : b; }
  DEV bool of(bool a, bool b) { return a && b; }
};
template <class Op, int W, class T> DEV T across(T x) {
#pragma unroll
  for (int m = W / 2; m > 0; m /= 2) x = Op::of(x, shuffle(x, m));
  return x;
}
// The value of W warps of a group, of which s holds one each, for every thread of it.
template <class Op, int W, class T> DEV T collect(const T* s, T neutral) {
  if constexpr (W <= 4) {
    T x = s[0];
#pragma unroll
    for (int i = 1; i < W; ++i) x = Op::of(x, s[i]);
    return x;
  } else {
    constexpr int kLanes = W <= 8 ? 8 : W <= 16 ? 16 : 32;
    const int lane = TID & (kLanes - 1);
    return across<Op, kLanes>(lane < W ? s[lane] : neutral);
  }
}
// Two sums in 5 shuffles: each half of a warp keeps one of them. x is then the sum of the lane's half.
DEV float across_halves(float x, float y) {
  const bool high = (TID & 16) != 0;
  const float sent = shuffle(high ? x : y, 16);
  return across<Sum, 16>((high ? y : x) + sent);
}
// The sums of W warps, C numbers each one after the other, for every thread; s lies at a multiple of 16 bytes.
template <int W, int C> DEV void collect_sums(const float* s, float (&x)[C]) {
  float all[W * C];
#pragma unroll
  for (int i = 0; i < W * C / 4; ++i) {
    const Pk<16> p = ldv<16>(s + 4 * i);
#pragma unroll
    for (int k = 0; k < 4; ++k) all[4 * i + k] = get_f32(p, k);
  }
#pragma unroll
  for (int i = W * C / 4 * 4; i < W * C; ++i) all[i] = s[i];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    x[c] = all[c];
#pragma unroll
    for (int w = 1; w < W; ++w) x[c] += all[w * C + c];
  }
}
// A tile that turns: 32-bit words of 64 rows (pairs of them for 16-bit elements), a line for each column. Chunks of 4
// words are permuted within a line so that neither side of the turn meets a bank twice.
template <int E> DEV int tile_word(int column, int word) {
  return column * 64 + (((word >> 2) ^ (column / E & 7)) << 2 | (word & 3));
}
template <int E> DEV void tile_put(u32* tile, int cv, int word, const Pk<4 * E>& a) {
#pragma unroll
  for (int e = 0; e < E; ++e) tile[tile_word<E>(cv * E + e, word)] = a.w[e];
}
template <int E> DEV void tile_put(u32* tile, int cv, int word, const Pk<2 * E>& a, const Pk<2 * E>& b) {
#pragma unroll
  for (int e = 0; e < E; ++e)
    tile[tile_word<E>(cv * E + e, word)] = pick(a.w[e / 2], b.w[e / 2], e & 1 ? 0x7632u : 0x5410u);
}
template <int E> DEV Pk<16> tile_get(const u32* tile, int column, int chunk) {
  return ldv<16>(tile + tile_word<E>(column, chunk * 4));
}
// A maximum so far and the sum of exp(x - maximum): both raised to `top`. Returns what to subtract.
DEV float online_raise(float& m, float& sum, float top) {
  if (!(top <= m)) {
    sum *= fast_exp(m - top);  // The first time 0 * 0.
    m = top;
  }
  return m == u2f(0xff800000u) ? 0.0f : m;
}
DEV float online_factor(float own, float all) { return own == all ? 1.0f : fast_exp(own - all); }
// The pairs of all threads of a group of W warps, or of L lanes of one, for each of them.
template <int W, int L> DEV void online_collect(float& m, float& sum, float* ms, float* sums, int warp) {
  float all = across<Max, L>(m);
  sum = across<Sum, L>(sum * online_factor(m, all));
  m = all;
  if constexpr (W > 1) {
    const int lane = TID & 31;
    if (lane == 0) ms[warp] = m, sums[warp] = sum;
    sync();
    if constexpr (W <= 4) {
      m = ms[0];
#pragma unroll
      for (int i = 1; i < W; ++i) m = fmaxn(m, ms[i]);
      sum = 0.0f;
#pragma unroll
      for (int i = 0; i < W; ++i) sum += sums[i] * online_factor(ms[i], m);
    } else {
      constexpr int kLanes = W <= 8 ? 8 : W <= 16 ? 16 : 32;
      const int part = TID & (kLanes - 1);
      const float own = part < W ? ms[part] : u2f(0xff800000u);
      m = across<Max, kLanes>(own);
      sum = across<Sum, kLanes>((part < W ? sums[part] : 0.0f) * online_factor(own, m));
    }
  }
}
// The values of Y rows of X threads with E columns each, for every row; s holds Y * X * E. Rows of a warp first.
template <class Op, int X, int Y, int E, class T> DEV void collect_columns(T (&x)[E], T* s) {
  constexpr int kRowsOfWarp = X < 32 && (X & (X - 1)) == 0 && X * Y >= 32 ? 32 / X : 1;
  const int column = TID % X * E, row = TID / X;
#pragma unroll
  for (int m = X; m < X * kRowsOfWarp; m *= 2) {
#pragma unroll
    for (int e = 0; e < E; ++e) x[e] = Op::of(x[e], shuffle(x[e], m));
  }
  if (row % kRowsOfWarp == 0) {
#pragma unroll
    for (int e = 0; e < E; ++e) s[row / kRowsOfWarp * (X * E) + column + e] = x[e];
  }
  sync();
  for (int c = TID; c < X * E; c += X * Y) {
    T sum = s[c];
#pragma unroll 4
    for (int y = 1; y < Y / kRowsOfWarp; ++y) sum = Op::of(sum, s[y * (X * E) + c]);
    s[c] = sum;
  }
  sync();
#pragma unroll
  for (int e = 0; e < E; ++e) x[e] = s[column + e];
  sync();
}
)";

}  // namespace hir::codegen::gpu
