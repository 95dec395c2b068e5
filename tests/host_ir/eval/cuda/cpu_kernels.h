// The text of the built-in GPU kernels as CPU code: compiled once a process by the compiler that built the test, with
// a block's threads as threads. So what the text computes is tested without a GPU.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "host_ir/eval/cuda/builtins_text.h"
#include "host_ir/eval/cuda/cuda_builtins.h"
#include "tests/csrc/device/cuda/fake_driver.h"

namespace hir::host {

inline constexpr std::string_view kCpuPrelude = R"(
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>
#define __device__
#define __global__
#define __noinline__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads)
struct Dim { unsigned x; };
static thread_local Dim threadIdx, blockIdx;
static Dim gridDim, blockDim;
static std::barrier<>* block_barrier;
static void __syncthreads() { block_barrier->arrive_and_wait(); }
float HalfToFloat(unsigned short x) { _Float16 y; std::memcpy(&y, &x, 2); return (float)y; }
unsigned short FloatToHalf(float x) { _Float16 y = (_Float16)x; unsigned short z; std::memcpy(&z, &y, 2); return z; }
float BitsToFloat(unsigned x) { float y; std::memcpy(&y, &x, 4); return y; }
unsigned FloatToBits(float x) { unsigned y; std::memcpy(&y, &x, 4); return y; }
)";
inline constexpr std::string_view kCpuLaunch = R"(
template <typename Kernel> void RunOnCpu(Kernel* kernel, const i64* slots, i64 ctas) {
  Args args;
  std::memcpy(&args, slots, sizeof(args));
  constexpr unsigned kCpuThreads = 4;
  std::barrier<> barrier(kCpuThreads);
  block_barrier = &barrier;
  gridDim.x = (unsigned)ctas;
  blockDim.x = kCpuThreads;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kCpuThreads; ++i) {
    threads.emplace_back([&, i] {
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
extern "C" void cpu_copy(const i64* slots, i64 ctas) { RunOnCpu(hir_host_copy, slots, ctas); }
extern "C" void cpu_binary(const i64* slots, i64 ctas) { RunOnCpu(hir_host_binary, slots, ctas); }
extern "C" void cpu_reduce(const i64* slots, i64 ctas) { RunOnCpu(hir_host_reduce, slots, ctas); }
)";

// copy, binary, reduce.
inline const std::array<device::FakeFunction, 3>& CpuKernels() {
  static const std::array<device::FakeFunction, 3> kernels = [] {
    const char* const tmp = std::getenv("TMPDIR");
    const std::string stem = base::Cat(tmp == nullptr ? "/tmp" : tmp, "/hir_builtins_", getpid());
    std::ofstream(stem + ".cc") << kCpuPrelude << kBuiltinsText << kCpuLaunch;
    const std::string command = base::Cat(HIR_CXX, " -std=c++20 -O1 -w -ffp-contract=off -fPIC -shared -pthread -o ",
                                          stem, ".so ", stem, ".cc");
    HIR_CHECK(std::system(command.c_str()) == 0);
    void* const library = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    HIR_CHECK(library != nullptr);
    unlink((stem + ".so").c_str());
    unlink((stem + ".cc").c_str());
    std::array<device::FakeFunction, 3> found = {};
    const char* const names[] = {"cpu_copy", "cpu_binary", "cpu_reduce"};
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = reinterpret_cast<device::FakeFunction>(dlsym(library, names[i]));
      HIR_CHECK(found[i] != nullptr);
    }
    return found;
  }();
  return kernels;
}

// What stands for the run-time compiler: a "cubin" of the functions above.
inline Result<std::string> CompileForCpu(std::string_view, int) {
  std::vector<device::FakeKernel> kernels;
  for (size_t i = 0; i < 3; ++i) {
    kernels.push_back(device::MakeFakeKernel(kBuiltinFunctions[i], CpuKernels()[i], kBuiltinSlots));
  }
  return device::FakeCubin(kernels);
}

}  // namespace hir::host
