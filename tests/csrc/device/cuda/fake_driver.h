// A CUDA driver without a GPU, as a shared library that tests name as the driver: memory is host memory, a
// stream is a thread, kernels are functions of the test. So all of csrc/device/cuda is executed but the GPU.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace hir::device {

// Errors of the driver, for tests that do not include its header.
inline constexpr int kFakeOutOfMemory = 2, kFakeNotFound = 500;

// Device memory, whatever addresses it is mapped at; 0 for other memory.
struct FakePlace {
  uint64_t memory = 0;
  int64_t offset = 0;
  auto operator<=>(const FakePlace&) const = default;
};
// What a host thread is about to queue on a stream.
struct FakeQueued {
  enum class Kind : uint8_t {
    kTakeWord,   // Waits until the word `dst` is 1, makes it 0.
    kWriteWord,  // Makes the word `dst` `value`.
    kCopy,
    kFill,
    kLaunch,  // With the addresses and numbers in `slots`.
    kRecord,  // `event`.
    kWait,    // `event`.
  };
  Kind kind = Kind::kCopy;
  const void* stream = nullptr;
  FakePlace dst = {}, src = {};
  int64_t bytes = 0;
  uint64_t value = 0;
  const void* event = nullptr;
  std::string kernel = {};
  std::vector<int64_t> slots = {};
};

// What a test tells the fake and asks it. Reset between tests.
struct FakeCuda {
  std::atomic<int> version = 13000;
  std::atomic<int> num_devices = 2;
  std::atomic<int> failing_device = -1;                  // Its context is refused.
  std::atomic<int64_t> memory_bytes = int64_t{1} << 30;  // Physical memory of each device.
  std::atomic<int64_t> created_bytes = 0;                // Of it, in use.
  std::atomic<int> init_result = 0;                      // What cuInit says.
  std::atomic<int> live_objects = 0;                     // Streams, events, contexts, modules, graphs, ranges.

  // Asked by the thread that queues, before it does: false leaves it out. Set while nothing is queued.
  std::function<bool(const FakeQueued&)> on_queue = {};

  // The next call of a function answers this instead of working.
  void FailNext(const std::string& function, int result) {
    std::lock_guard lock(mutex);
    fail_next[function] = result;
  }
  int64_t Calls(const std::string& function) {
    std::lock_guard lock(mutex);
    return calls[function];
  }
  void Reset() {
    std::lock_guard lock(mutex);
    version = 13000;
    num_devices = 2;
    failing_device = -1;
    memory_bytes = int64_t{1} << 30;
    init_result = 0;
    fail_next.clear();
    calls.clear();
    on_queue = {};
  }

  std::mutex mutex;
  std::map<std::string, int> fail_next;  // Guarded by mutex, as are the calls.
  std::map<std::string, int64_t> calls;
};

// A kernel of the fake: runs once a launch.
using FakeFunction = void (*)(const int64_t* slots, int64_t ctas);
struct FakeKernel {
  char name[48] = {};
  FakeFunction function = nullptr;
  int32_t num_slots = 0;
  int32_t threads_max = 1024;
  int32_t local_bytes = 0;
  int32_t ctas_that_fit = 2;
};
inline constexpr char kFakeMagic[8] = {'F', 'A', 'K', 'E', 'C', 'U', 'B', '1'};

// What LoadCubin takes for a cubin.
inline std::string FakeCubin(const std::vector<FakeKernel>& kernels) {
  std::string image(kFakeMagic, sizeof(kFakeMagic));
  const int64_t count = static_cast<int64_t>(kernels.size());
  image.append(reinterpret_cast<const char*>(&count), sizeof(count));
  for (const FakeKernel& kernel : kernels) image.append(reinterpret_cast<const char*>(&kernel), sizeof(kernel));
  return image;
}
inline FakeKernel MakeFakeKernel(const std::string& name, FakeFunction function, int num_slots) {
  FakeKernel kernel;
  std::strncpy(kernel.name, name.c_str(), sizeof(kernel.name) - 1);
  kernel.function = function;
  kernel.num_slots = num_slots;
  return kernel;
}

#ifdef HIR_FAKE_CUDA  // Its path, from CMake.
inline FakeCuda& Fake() {
  static FakeCuda* const fake = [] {
    void* const library = dlopen(HIR_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    return library == nullptr ? nullptr : reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
  }();
  return *fake;
}
inline FakePlace PlaceOf(const void* address) {
  static const auto place_of = reinterpret_cast<FakePlace (*)(const void*)>(
      dlsym(dlopen(HIR_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL), "fake_cuda_place"));
  return place_of(address);
}
#endif

}  // namespace hir::device
