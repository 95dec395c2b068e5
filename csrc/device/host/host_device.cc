#include "csrc/device/host/host_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/device/host/host_marks.h"
#include "csrc/device/host/host_stream.h"
#include "csrc/device/host/pool_executor.h"
#include "csrc/device/host/stream_core.h"

namespace hir::device {
namespace {

// From here on memory comes from the kernel in whole pages, and goes back to it when freed.
constexpr int64_t kMapBytesMin = 1 << 20;
// Tensors of equal sizes would lie whole sizes apart, and a kernel that goes through several at once would read, and
// write, addresses that are equal in all their lower bits. Caches look for lines by those: at a distance of 128 MiB a
// chain of three inputs in bfloat16 ran at 30 GB/s of 44 on two EPYC cores, at any other at 40. So each starts another
// page and line into its memory.
constexpr int64_t kPlaceBytes = 4096 + kAlignmentBytes;
constexpr uint64_t kPlaces = 16;

class HostAllocation final : public Allocation {
 public:
  // offset: of the buffer in memory that came from the kernel.
  HostAllocation(Buffer buffer, int64_t offset, std::atomic<int64_t>& in_use)
      : buffer_(buffer), offset_(offset), in_use_(in_use) {}
  ~HostAllocation() override {
    if (buffer_.bytes >= kMapBytesMin) {
      HIR_CHECK(munmap(buffer_.data - offset_, static_cast<size_t>(offset_ + buffer_.bytes)) == 0);
    } else {
      std::free(buffer_.data);
    }
    in_use_ -= buffer_.bytes;
  }
  Buffer buffer() const override { return buffer_; }

  // Null when the machine has none left. Memory from the kernel starts `offset` in.
  static std::byte* Get(int64_t bytes, int64_t offset) {
    if (bytes < kMapBytesMin) {
      const int64_t rounded = std::max<int64_t>(base::CeilDiv(bytes, kAlignmentBytes), 1) * kAlignmentBytes;
      return static_cast<std::byte*>(std::aligned_alloc(kAlignmentBytes, static_cast<size_t>(rounded)));
    }
    const auto size = static_cast<size_t>(offset + bytes);
    void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    madvise(data, size, MADV_HUGEPAGE);  // Advice: it may fail.
    return static_cast<std::byte*>(data) + offset;
  }

 private:
  const Buffer buffer_;
  const int64_t offset_;
  std::atomic<int64_t>& in_use_;
};

class HostDevice final : public Device {
 public:
  // executor: the caller's, or null for threads of our own.
  HostDevice(HostDeviceOptions options, Executor* executor) : options_(std::move(options)) {
    if (executor == nullptr) {
      const int64_t depth = options_.streams_max + HelpersMax(options_.num_threads);
      pool_.emplace(options_.num_threads, static_cast<size_t>(depth));
      executor = &*pool_;
    }
    executor_ = executor;
    helpers_ = static_cast<int>(HelpersMax(executor->num_threads()));
  }

  ~HostDevice() override {
    for (const auto& core : cores_) {
      HIR_CHECK(core->drained());
      while (!core->quiet()) std::this_thread::yield();  // Its last thread is on its way out.
    }
    HIR_CHECK(in_use_ == 0);
  }

  std::string_view name() const override { return options_.name; }
  int64_t allocated_bytes() const override { return in_use_; }
  int64_t memory_bytes_max() const override { return options_.memory_bytes_max; }

  Result<std::unique_ptr<Stream>> CreateStream() override {
    std::lock_guard lock(mutex_);
    StreamCore* core = TakeFreeCore();
    if (core == nullptr) {
      const auto id = static_cast<int64_t>(cores_.size());
      if (id >= options_.streams_max) {
        return ResourceExhausted(base::Cat(options_.name, ": limit streams_max: ", id, " streams exist"));
      }
      cores_.push_back(std::make_unique<StreamCore>(base::Cat(options_.name, " stream ", id), id,
                                                    options_.queued_ops_max, *executor_, helpers_));
      core = cores_.back().get();
    }
    return std::make_unique<HostStream>(*core, [this](StreamCore& released) {
      std::lock_guard lock(mutex_);
      free_.push_back(&released);
    });
  }

  Result<std::unique_ptr<Event>> CreateEvent() override { return std::make_unique<HostEvent>(); }
  Result<std::unique_ptr<Marks>> CreateMarks() override { return std::make_unique<HostMarks>(); }

  Result<std::unique_ptr<Allocation>> Allocate(int64_t bytes) override {
    HIR_CHECK(bytes >= 0);
    int64_t in_use = in_use_;
    do {
      if (bytes > options_.memory_bytes_max - in_use) {
        return ResourceExhausted(base::Cat(options_.name, ": limit device_bytes_max: ", options_.memory_bytes_max,
                                           " bytes, ", in_use, " in use, ", bytes,
                                           " asked for; run smaller sizes, or raise it (hostird --device-bytes-max)"));
      }
    } while (!in_use_.compare_exchange_weak(in_use, in_use + bytes));
    const int64_t offset = static_cast<int64_t>(next_place_.fetch_add(1) % kPlaces) * kPlaceBytes;
    std::byte* const data = HostAllocation::Get(bytes, offset);
    if (data == nullptr) {
      in_use_ -= bytes;
      return ResourceExhausted(base::Cat(options_.name, ": the machine has no ", bytes, " bytes left"));
    }
    return std::make_unique<HostAllocation>(Buffer{data, bytes}, offset, in_use_);
  }

 private:
  static int64_t HelpersMax(int num_threads) { return int64_t{8} * num_threads; }

  // A released stream's core can serve again once its work is done.
  StreamCore* TakeFreeCore() {
    const auto drained =
        std::find_if(free_.begin(), free_.end(), [](const StreamCore* core) { return core->drained(); });
    if (drained == free_.end()) return nullptr;
    StreamCore* const core = *drained;
    free_.erase(drained);
    core->ClearError();
    return core;
  }

  const HostDeviceOptions options_;
  std::atomic<int64_t> in_use_ = 0;  // Bytes.
  std::atomic<uint64_t> next_place_ = 0;
  std::atomic<int> helpers_ = 0;
  Executor* executor_ = nullptr;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StreamCore>> cores_;  // Guarded by mutex_, as is free_.
  std::vector<StreamCore*> free_;
  std::optional<PoolExecutor> pool_;  // Last: its threads end before what they touch.
};

Result<std::unique_ptr<Device>> Create(HostDeviceOptions options, Executor* executor) {
  if (executor == nullptr && options.num_threads < 1) {
    return InvalidArgument(base::Cat(options.name, ": num_threads is ", options.num_threads, ", at least 1 is needed"));
  }
  return std::make_unique<HostDevice>(std::move(options), executor);
}

}  // namespace

Result<std::unique_ptr<Device>> CreateHostDevice(HostDeviceOptions options) {
  return Create(std::move(options), nullptr);
}

Result<std::unique_ptr<Device>> CreateHostDevice(HostDeviceOptions options, Executor& executor) {
  return Create(std::move(options), &executor);
}

}  // namespace hir::device
