#include "tests/csrc/codegen/gpu/emulator.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "csrc/codegen/gpu/prelude.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

// kIntrinsics for a CPU, and what runs CTAs.
constexpr std::string_view kHost = R"(
#include <ucontext.h>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>
typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct alignas(16) uint4 { u32 x, y, z, w; };
struct alignas(8) uint2 { u32 x, y; };
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
#define DEV static inline
#define ANY static
#define SHARED static
namespace host {
int tid, threads;
i64 cta, ctas;
int arrived, generation;
int warp_arrived[32], warp_generation[32];
u64 slots[1024];
ucontext_t home, fibers[1024];
std::vector<char> stacks[1024];
bool done[1024];
void (*body)(const void*);
const void* args;
static void next() {  // The next thread that is not done, round and round.
  const int self = tid;
  int to = self;
  do { to = (to + 1) % threads; } while (done[to] && to != self);
  if (to == self) {
    if (!done[self]) std::abort();  // It waits for threads that have left.
    setcontext(&home);
  }
  tid = to;
  if (done[self]) setcontext(&fibers[to]);
  swapcontext(&fibers[self], &fibers[to]);
}
static void entry() {
  body(args);
  done[tid] = true;
  next();
}
static void meet(int& count, int& gen, int all) {
  const int mine = gen;
  if (++count == all) { count = 0; ++gen; return; }
  while (gen == mine) next();
}
static void warp_meet() {
  const int w = tid / 32;
  meet(warp_arrived[w], warp_generation[w], 32);
}
static void check_copies();
static void run(void (*function)(const void*), const void* a, int num_threads, i64 num_ctas) {
  body = function, args = a, threads = num_threads, ctas = num_ctas;
  for (cta = 0; cta < num_ctas; ++cta) {
    for (int t = 0; t < threads; ++t) {
      done[t] = false;
      stacks[t].resize(128 << 10);
      getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = stacks[t].data();
      fibers[t].uc_stack.ss_size = stacks[t].size();
      fibers[t].uc_link = &home;
      makecontext(&fibers[t], entry, 0);
    }
    tid = 0;
    swapcontext(&home, &fibers[0]);
    if (arrived != 0) std::abort();  // Some waited for those that had left.
    check_copies();
  }
}
}  // namespace host
#define TID (host::tid)
#define CTA (host::cta)
#define CTAS (host::ctas)
DEV void sync() { host::meet(host::arrived, host::generation, host::threads); }
DEV void warp_sync() { host::warp_meet(); }
template <class T> DEV T shuffle(T x, int m) {
  const int self = host::tid;
  std::memcpy(&host::slots[self], &x, sizeof x);
  host::warp_meet();
  T r;
  std::memcpy(&r, &host::slots[self ^ m], sizeof r);
  host::warp_meet();
  return r;
}
template <class To, class From> DEV To cast(From x) {
  To r;
  static_assert(sizeof r == sizeof x);
  std::memcpy(&r, &x, sizeof r);
  return r;
}
DEV float u2f(u32 x) { return cast<float>(x); }
DEV u32 f2u(float x) { return cast<u32>(x); }
DEV double u2d(u64 x) { return cast<double>(x); }
DEV u64 d2u(double x) { return cast<u64>(x); }
DEV u32 bf1(float x) {
  const u32 b = f2u(x);
  return x != x ? (b >> 16) | 0x40u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
}
DEV u32 bf2(float lo, float hi) { return bf1(lo) | bf1(hi) << 16; }
DEV float up(u32 x) { return u2f(x << 16); }
DEV u32 fma2(u32 a, u32 b, u32 c) {
  return bf2(up(a & 65535u) * up(b & 65535u) + up(c & 65535u), up(a >> 16) * up(b >> 16) + up(c >> 16));
}
DEV u32 hf1(float x) { const _Float16 h = (_Float16)x; return cast<u16>(h); }
DEV u32 hf2(float lo, float hi) { return hf1(lo) | hf1(hi) << 16; }
DEV float hf(u32 x) { return (float)cast<_Float16>((u16)x); }
DEV float fmaxn(float a, float b) { return a != a || a > b ? a : b; }
DEV float fminn(float a, float b) { return a != a || a < b ? a : b; }
DEV float fast_ex2(float x) { return exp2f(x); }
DEV float fast_tanh(float x) { return tanhf(x); }
DEV float fast_rcp(float x) { return 1.0f / x; }
DEV float full_div(float a, float b) { return a / b; }
// What CUDA has and C lacks, by bisection.
DEV double erfcinv(double x) {
  if (!(x >= 0 && x <= 2)) return NAN;
  if (x == 0 || x == 2) return x == 0 ? INFINITY : -INFINITY;
  double low = 0, high = 28;
  const double tail = x <= 1 ? x : 2 - x;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2, v = 0.5 / (middle * middle);
    bool above = erfc(middle) > tail;
    if (tail < 1e-290 && middle > 25) {  // Where erfc has few digits, by the logarithm of its asymptotic series.
      const double series = 1 - v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v * (1 - 9 * v))));
      above = -middle * middle - log(middle * 1.7724538509055160 / series) > log(tail);
    }
    (above ? low : high) = middle;
  }
  return x <= 1 ? low : -low;
}
DEV double erfinv(double x) {
  if (!(fabs(x) < 0.5)) return copysign(erfcinv(1 - fabs(x)), x);
  if (fabs(x) < 1e-9) return x * 0.88622692545275801;  // The next term of the series is x^3.
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (erf(middle) < fabs(x) ? low : high) = middle;
  }
  return copysign(low, x);
}
DEV float erfcinvf(float x) { return (float)erfcinv((double)x); }
DEV float erfinvf(float x) { return (float)erfinv((double)x); }
DEV u32 pick(u32 a, u32 b, u32 s) {
  const u64 both = (u64)b << 32 | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) r |= (u32)(both >> (8 * (s >> (4 * i) & 7)) & 255u) << (8 * i);
  return r;
}
DEV float down_f32(double x) {
  const float f = (float)x;
  return std::fabs((double)f) > std::fabs(x) ? std::nextafterf(f, 0.0f) : f;
}
template <class T> DEV T saturate(double x) {
  constexpr T low = std::numeric_limits<T>::min();
  return x <= (double)low ? low : x >= -(double)low ? std::numeric_limits<T>::max() : (T)x;
}
DEV int f2i(float x) { return saturate<int>(x); }
DEV int f2i(double x) { return saturate<int>(x); }
DEV i64 f2l(float x) { return saturate<i64>(x); }
DEV i64 f2l(double x) { return saturate<i64>(x); }
DEV void keep(u32&) {}
DEV void after_previous() {}
DEV void start_next() {}
DEV uint4 stream16(const uint4* p) { return *p; }
DEV uint4 keep16(const uint4* p) { return *p; }
DEV void copy16(void* to, const void* from) { std::memcpy(to, from, 16); }
template <int B> DEV void copy_small(void* to, const void* from) { std::memcpy(to, from, B); }
DEV void copies_end() {}
template <int N> DEV void copies_wait() {}
// Bytes of a bulk copy come when somebody waits for them; until then there is garbage. A barrier is two phases' count:
// bit 0 the phase, bit 1 that bytes are announced, above them how many are still to come.
#define DYNAMIC(name) alignas(128) static uint4 name[(227 << 10) / 16]
namespace host {
struct Copy { void* to; const void* from; u32 bytes; u64* barrier; };
std::vector<Copy> copies;
static void check_copies() { if (!copies.empty()) std::abort(); }  // A CTA has left before its bytes came.
}  // namespace host
DEV void bulk_start(u64* barrier) { *barrier = 0; }
DEV void bulk_started() {}
DEV void bulk_expect(u64* barrier, u32 bytes) {
  if (*barrier >> 1 != 0 || bytes == 0) std::abort();
  *barrier |= (u64)bytes << 2 | 2u;
}
DEV void bulk_copy(void* to, const void* from, u32 bytes, u64* barrier) {
  if (((u64)to | (u64)from | bytes) % 16 != 0) std::abort();
  std::memset(to, 0xff, bytes);
  host::copies.push_back({to, from, bytes, barrier});
}
DEV void bulk_wait(u64* barrier, u32 phase) {
  if ((*barrier & 1) == phase) {
    std::vector<host::Copy> rest;
    for (const host::Copy& copy : host::copies) {
      if (copy.barrier != barrier) { rest.push_back(copy); continue; }
      std::memcpy(copy.to, copy.from, copy.bytes);
      *barrier -= (u64)copy.bytes << 2;
    }
    host::copies.swap(rest);
    if (*barrier >> 1 != 1) std::abort();  // More was announced than copied, or nothing.
    *barrier ^= 3;
  }
}
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define KERNEL(name, threads, ctas_per_sm)                                            \
  static void body_##name(const Args& a);                                             \
  static void erased_##name(const void* a) { body_##name(*(const Args*)a); }          \
  extern "C" void JOIN(PLAN, name)(const void* a, int num_threads, i64 num_ctas) {    \
    host::run(erased_##name, a, num_threads, num_ctas);                               \
  }                                                                                   \
  static void body_##name([[maybe_unused]] const Args& a)
)";

}  // namespace

bool CanEmulate() { return std::system("c++ --version > /dev/null 2>&1") == 0; }

Emulator::Emulator() {
  std::string name = (std::filesystem::temp_directory_path() / "hostir-emulator-XXXXXX").string();
  HIR_CHECK(mkdtemp(name.data()) != nullptr);
  directory_ = name;
}

Emulator::~Emulator() {
  if (library_ != nullptr) dlclose(library_);
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

Result<int> Emulator::Add(const KernelPlan& plan) {
  HIR_ASSIGN(const Source source, EmitCuda(plan));
  return Add(source);
}

int Emulator::Add(const Source& source) {
  plans_.push_back({base::Join(source.parts, ""), source.kernels});
  return static_cast<int>(plans_.size()) - 1;
}

Status Emulator::Build() {
  const std::string file = directory_ + "/kernels.cc", library = directory_ + "/kernels.so";
  {
    std::ofstream out(file);
    out << kHost << kPrelude;
    for (size_t i = 0; i < plans_.size(); ++i) {
      out << "#undef PLAN\n#define PLAN p" << i << "_\nnamespace p" << i << " {\n" << plans_[i].text << "}\n";
    }
  }
  // Vectors at addresses that are not theirs trap: what a GPU does.
  const std::string command =
      Cat("c++ -std=c++17 -O1 -fwrapv -fno-strict-aliasing -ffp-contract=off -w -fPIC -shared "
          "-fsanitize=alignment -fsanitize-undefined-trap-on-error -o ",
          library, " ", file, " 2> ", directory_, "/log");
  if (std::system(command.c_str()) != 0) {
    std::ifstream log(directory_ + "/log");
    std::stringstream words;
    words << log.rdbuf();
    return Internal(Cat("the emulated kernels do not compile: ", words.str().substr(0, 4000)));
  }
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return Internal(Cat("the emulated kernels do not load: ", dlerror()));
  return {};
}

void Emulator::Run(int plan, int kernel, std::span<const int64_t> args, int64_t items) {
  const KernelInfo& info = plans_[static_cast<size_t>(plan)].kernels[static_cast<size_t>(kernel)];
  HIR_CHECK(static_cast<int>(args.size()) == info.num_slots);
  using Function = void (*)(const void*, int, long long);
  const auto function = reinterpret_cast<Function>(dlsym(library_, Cat("p", plan, "_k", kernel).c_str()));
  HIR_CHECK(function != nullptr);
  std::vector<int64_t> block(args.begin(), args.end());
  block.push_back(0);
  const int64_t ctas = (items + info.items_per_cta - 1) / info.items_per_cta;
  if (ctas > 0) function(block.data(), info.threads, ctas);
}

}  // namespace hir::codegen::gpu
