// The text of comm/peer's GPU kernels as CPU code: compiled once a process by the compiler that built the test, with a
// block's threads as threads. So what the text computes, and how ranks meet in it, is tested without a GPU.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "multidevice/comm/peer/kernels_text.h"
#include "tests/csrc/device/cuda/fake_driver.h"

namespace hir::comm {

inline constexpr std::string_view kPeerCpuPrelude = R"(
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>
typedef unsigned long long u64;
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads)
struct Dim { unsigned x; };
static thread_local Dim threadIdx, blockIdx, gridDim, blockDim;
static thread_local std::barrier<>* block_barrier;
static void __syncthreads() { block_barrier->arrive_and_wait(); }
float HalfToFloat(unsigned short x) { _Float16 y; std::memcpy(&y, &x, 2); return (float)y; }
unsigned short FloatToHalf(float x) { _Float16 y = (_Float16)x; unsigned short z; std::memcpy(&z, &y, 2); return z; }
float BitsToFloat(unsigned x) { float y; std::memcpy(&y, &x, 4); return y; }
unsigned FloatToBits(float x) { unsigned y; std::memcpy(&y, &x, 4); return y; }
extern "C" {
bool (*peer_loses_unit)(u64 address, unsigned number) = nullptr;
bool (*peer_skips_wait)(u64 address, unsigned number) = nullptr;
void (*peer_reads_unit)(u64 address, unsigned number) = nullptr;
}
void StoreUnit(u64 address, u64 data, unsigned number) {
  if (peer_loses_unit != nullptr && peer_loses_unit(address, number)) return;
  auto* const halves = (std::atomic<u64>*)address;
  halves[0].store((u64)number << 32 | (unsigned)data);
  halves[1].store((u64)number << 32 | (data >> 32));
}
bool LoadUnit(u64 address, unsigned number, u64* data) {
  if (peer_reads_unit != nullptr) peer_reads_unit(address, number);
  auto* const halves = (const std::atomic<u64>*)address;
  const u64 low = halves[0].load(), high = halves[1].load();
  *data = high << 32 | (unsigned)low;
  if (peer_skips_wait != nullptr && peer_skips_wait(address, number)) return true;
  return low >> 32 == number && high >> 32 == number;
}
u64 LoadWord(const u64* word) {
  std::this_thread::yield();
  return ((const std::atomic<u64>*)word)->load();
}
u64 AddToWord(u64* word) { return ((std::atomic<u64>*)word)->fetch_add(1); }
u64 Nanoseconds() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
)";
inline constexpr std::string_view kPeerCpuLaunch = R"(
template <typename Kernel> void RunOnCpu(Kernel* kernel, const i64* slots, i64 ctas) {
  Args args;
  std::memcpy(&args, slots, sizeof(args));
  constexpr unsigned kCpuThreads = 3;
  std::barrier<> barrier(kCpuThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kCpuThreads; ++i) {
    threads.emplace_back([&, i] {
      block_barrier = &barrier;
      gridDim.x = (unsigned)ctas;
      blockDim.x = kCpuThreads;
      threadIdx.x = i;
      for (unsigned block = 0; block < gridDim.x; ++block) {
        blockIdx.x = block;
        kernel(args);
        barrier.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
extern "C" void cpu_push(const i64* slots, i64 ctas) { RunOnCpu(hir_peer_push, slots, ctas); }
extern "C" void cpu_reduce(const i64* slots, i64 ctas) { RunOnCpu(hir_peer_reduce, slots, ctas); }
)";

// The text, compiled. Thread-safe.
inline void* PeerCpuLibrary() {
  static void* const opened = [] {
    const char* const tmp = std::getenv("TMPDIR");
    const std::string stem = base::Cat(tmp == nullptr ? "/tmp" : tmp, "/hir_peer_", getpid());
    std::ofstream(stem + ".cc") << kPeerCpuPrelude << kPeerText << kPeerCpuLaunch;
    const std::string command = base::Cat(HIR_CXX, " -std=c++20 -O1 -w -ffp-contract=off -fPIC -shared -pthread -o ",
                                          stem, ".so ", stem, ".cc");
    HIR_CHECK(std::system(command.c_str()) == 0);
    void* const library = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    HIR_CHECK(library != nullptr);
    unlink((stem + ".so").c_str());
    unlink((stem + ".cc").c_str());
    return library;
  }();
  return opened;
}

// What the kernels ask and tell for each unit. Set while no kernel runs; null: nothing.
struct PeerUnitHooks {
  bool (*loses)(unsigned long long address, unsigned number) = nullptr;  // It is lost on its way to `address`.
  bool (*skips)(unsigned long long address, unsigned number) = nullptr;  // Who awaits it goes on with what there is.
  void (*reads)(unsigned long long address, unsigned number) = nullptr;  // It is about to be looked for.
};
inline void SetPeerUnitHooks(const PeerUnitHooks& hooks) {
  const auto set = [](const char* name, auto hook) {
    *static_cast<decltype(hook)*>(dlsym(PeerCpuLibrary(), name)) = hook;
  };
  set("peer_loses_unit", hooks.loses);
  set("peer_skips_wait", hooks.skips);
  set("peer_reads_unit", hooks.reads);
}

// What stands for the run-time compiler: a "cubin" of the text as functions. Thread-safe.
inline Result<std::string> CompilePeerForCpu(std::string_view, int) {
  static const std::array<device::FakeFunction, 2> kernels = [] {
    std::array<device::FakeFunction, 2> found = {};
    const char* const names[] = {"cpu_push", "cpu_reduce"};
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = reinterpret_cast<device::FakeFunction>(dlsym(PeerCpuLibrary(), names[i]));
      HIR_CHECK(found[i] != nullptr);
    }
    return found;
  }();
  return device::FakeCubin({device::MakeFakeKernel("hir_peer_push", kernels[0], kPeerSlots),
                            device::MakeFakeKernel("hir_peer_reduce", kernels[1], kPeerSlots)});
}

}  // namespace hir::comm
