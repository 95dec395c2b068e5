#include "csrc/device/cuda/staging.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "csrc/base/text.h"

namespace hir::device::cuda {
namespace {

// Longer than any copy of a block; who asks for copies has no deadline to give.
constexpr base::Nanos kBlockTimeout = std::chrono::seconds(60);

class PinnedMemory final : public Allocation {
 public:
  PinnedMemory(Context& context, Buffer buffer) : context_(context), buffer_(buffer) {}
  ~PinnedMemory() override {
    context_.Enter();
    if (buffer_.data != nullptr) context_.driver().MemFreeHost(buffer_.data);
  }
  Buffer buffer() const override { return buffer_; }

 private:
  Context& context_;
  const Buffer buffer_;
};

class MappedMemory final : public Allocation {
 public:
  MappedMemory(Context& context, std::byte* host, Buffer buffer) : context_(context), host_(host), buffer_(buffer) {}
  ~MappedMemory() override {
    context_.Enter();
    context_.driver().MemHostUnregister(host_);
  }
  Buffer buffer() const override { return buffer_; }

 private:
  Context& context_;
  std::byte* const host_;
  const Buffer buffer_;
};

}  // namespace

Staging::~Staging() {
  context_.Enter();
  for (const Block& block : blocks_) {
    if (block.data != nullptr) context_.driver().MemFreeHost(block.data);
    if (block.event != nullptr) context_.driver().EventDestroy(block.event);
  }
  if (stream_ != nullptr) context_.driver().StreamDestroy(stream_);
}

Status Staging::Prepare() {
  context_.Enter();
  const Driver& driver = context_.driver();
  if (stream_ == nullptr) {
    HIR_TRY(context_.Check(driver.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  }
  for (Block& block : blocks_) {
    if (block.event == nullptr) {
      HIR_TRY(context_.Check(driver.EventCreate(&block.event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
    }
    if (block.data != nullptr) continue;
    void* data = nullptr;
    HIR_TRY(context_.Check(driver.MemHostAlloc(&data, kBlockBytes, CU_MEMHOSTALLOC_PORTABLE), "cuMemHostAlloc"));
    block.data = static_cast<std::byte*>(data);
  }
  return {};
}

Status Staging::FromHost(Buffer dst, std::span<const std::byte> src) {
  HIR_CHECK(dst.bytes == static_cast<int64_t>(src.size()));
  if (src.empty()) return {};
  std::lock_guard lock(mutex_);
  HIR_TRY(Prepare());
  const Driver& driver = context_.driver();
  const std::string who = base::Cat(context_.name(), " copy from host");
  for (int64_t at = 0, i = 0; at < dst.bytes; at += kBlockBytes, ++i) {
    const Block& block = blocks_[static_cast<size_t>(i % 2)];
    const auto bytes = static_cast<size_t>(std::min(kBlockBytes, dst.bytes - at));
    HIR_TRY(context_.Await(block.event, who, kBlockTimeout));
    std::memcpy(block.data, src.data() + at, bytes);
    HIR_TRY(context_.Check(driver.MemcpyHtoDAsync(Address(dst.data + at), block.data, bytes, stream_), who));
    HIR_TRY(context_.Check(driver.EventRecord(block.event, stream_), "cuEventRecord"));
  }
  for (const Block& block : blocks_) HIR_TRY(context_.Await(block.event, who, kBlockTimeout));
  return {};
}

// The block that was asked for last is on its way while the one before is emptied.
Status Staging::ToHost(std::span<std::byte> dst, Buffer src) {
  HIR_CHECK(src.bytes == static_cast<int64_t>(dst.size()));
  if (dst.empty()) return {};
  std::lock_guard lock(mutex_);
  HIR_TRY(Prepare());
  const Driver& driver = context_.driver();
  const std::string who = base::Cat(context_.name(), " copy to host");
  const int64_t num_blocks = (src.bytes + kBlockBytes - 1) / kBlockBytes;
  const auto bytes_of = [&](int64_t i) {
    return static_cast<size_t>(std::min(kBlockBytes, src.bytes - i * kBlockBytes));
  };
  for (int64_t i = 0; i <= num_blocks; ++i) {
    if (i < num_blocks) {
      const Block& block = blocks_[static_cast<size_t>(i % 2)];
      HIR_TRY(context_.Check(
          driver.MemcpyDtoHAsync(block.data, Address(src.data + i * kBlockBytes), bytes_of(i), stream_), who));
      HIR_TRY(context_.Check(driver.EventRecord(block.event, stream_), "cuEventRecord"));
    }
    if (i == 0) continue;
    const Block& ready = blocks_[static_cast<size_t>((i - 1) % 2)];
    HIR_TRY(context_.Await(ready.event, who, kBlockTimeout));
    std::memcpy(dst.data() + (i - 1) * kBlockBytes, ready.data, bytes_of(i - 1));
  }
  return {};
}

Status Staging::OnDevice(Buffer dst, Buffer src) {
  HIR_CHECK(dst.bytes == src.bytes);
  if (src.bytes == 0) return {};
  std::lock_guard lock(mutex_);
  HIR_TRY(Prepare());
  const Driver& driver = context_.driver();
  const std::string who = base::Cat(context_.name(), " copy on the device");
  const CUevent done = blocks_.front().event;
  HIR_TRY(context_.Check(
      driver.MemcpyAsync(Address(dst.data), Address(src.data), static_cast<size_t>(src.bytes), stream_), who));
  HIR_TRY(context_.Check(driver.EventRecord(done, stream_), "cuEventRecord"));
  return context_.Await(done, who, kBlockTimeout);
}

Result<std::unique_ptr<Allocation>> AllocatePinned(Context& context, int64_t bytes) {
  HIR_CHECK(bytes >= 0);
  context.Enter();
  void* data = nullptr;
  if (bytes > 0) {
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    HIR_TRY(context.Check(context.driver().MemHostAlloc(&data, static_cast<size_t>(bytes), flags), "cuMemHostAlloc"));
  }
  return std::make_unique<PinnedMemory>(context, Buffer{static_cast<std::byte*>(data), bytes});
}

Result<std::unique_ptr<Allocation>> MapPinned(Context& context, std::span<std::byte> memory) {
  context.Enter();
  const Driver& driver = context.driver();
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  HIR_TRY(context.Check(driver.MemHostRegister(memory.data(), memory.size(), flags), "cuMemHostRegister"));
  CUdeviceptr address = 0;
  const CUresult result = driver.MemHostGetDevicePointer(&address, memory.data(), 0);
  if (result != CUDA_SUCCESS) driver.MemHostUnregister(memory.data());
  HIR_TRY(context.Check(result, "cuMemHostGetDevicePointer"));
  return std::make_unique<MappedMemory>(context, memory.data(),
                                        Buffer{Pointer(address), static_cast<int64_t>(memory.size())});
}

}  // namespace hir::device::cuda
