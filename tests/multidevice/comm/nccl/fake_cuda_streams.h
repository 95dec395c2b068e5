// The fake libnccl on the fake CUDA driver: what comm/nccl gets for the streams of csrc/device/cuda, so that all of
// both is executed, captures and graphs too, but GPU and NCCL themselves.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>

#include "csrc/device/cuda/cuda_device.h"
#include "multidevice/comm/nccl/nccl.h"
#include "tests/csrc/device/cuda/fake_driver.h"
#include "tests/multidevice/comm/nccl/fake_nccl.h"

namespace hir::comm {

// The NcclOptions::native_stream of a stream on the fake driver: what a cudaStream_t is for the fake libnccl.
inline void* FakeNativeStream(device::Stream& stream) {
  static std::mutex mutex;
  static auto& streams = *new std::map<void*, std::unique_ptr<FakeStream>>();
  static const auto queue = reinterpret_cast<void (*)(void*, std::function<void()>)>(
      dlsym(dlopen(HIR_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL), "fake_cuda_queue"));
  static const auto capturing =
      reinterpret_cast<bool (*)(void*)>(dlsym(dlopen(HIR_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL), "fake_cuda_capturing"));
  void* const handle = device::NativeStream(stream);
  std::lock_guard lock(mutex);
  std::unique_ptr<FakeStream>& known = streams[handle];
  if (known == nullptr) {
    known = std::make_unique<FakeStream>();
    known->queue = [handle](std::function<void(FakeStream::Done)> start) {
      queue(handle, [start = std::move(start)] {  // On the stream's own thread: it may wait.
        auto over = std::make_shared<std::promise<void>>();
        start([over] { over->set_value(); });
        over->get_future().wait();
      });
    };
    known->capturing = [handle] { return capturing(handle); };
  }
  return known.get();
}

inline NcclOptions FakeGpuOptions(int64_t rank, int64_t size, device::Device& device) {
  return {.rank = rank,
          .size = size,
          .generation = 3,
          .setup_timeout = std::chrono::seconds(20),
          .library = HIR_FAKE_NCCL,
          .device = &device,
          .native_stream = &FakeNativeStream,
          .begin_work = &device::BeginWork,
          .work_mark = &device::WorkMark,
          .is_capturing = &device::IsCapturing};
}

}  // namespace hir::comm
