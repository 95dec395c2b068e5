// Staging: pinned memory through which host memory is copied to and from a device.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>

#include "csrc/device/cuda/context.h"

namespace hir::device::cuda {

// Two blocks, so that the processor fills or empties one while the device works on the other. Made at the
// first copy. Thread-safe: copies come one after the other.
class Staging {
 public:
  explicit Staging(Context& context) : context_(context) {}
  ~Staging();

  Status FromHost(Buffer dst, std::span<const std::byte> src);
  Status ToHost(std::span<std::byte> dst, Buffer src);
  Status OnDevice(Buffer dst, Buffer src);  // Past the blocks.

 private:
  static constexpr int64_t kBlockBytes = int64_t{8} << 20;
  struct Block {
    std::byte* data = nullptr;
    CUevent event = nullptr;
  };
  Status Prepare();

  Context& context_;
  std::mutex mutex_;
  CUstream stream_ = nullptr;  // Guarded by mutex_, as are the blocks.
  std::array<Block, 2> blocks_ = {};
};

// Pinned memory of its own, or memory of others made known to the device.
Result<std::unique_ptr<Allocation>> AllocatePinned(Context& context, int64_t bytes);
Result<std::unique_ptr<Allocation>> MapPinned(Context& context, std::span<std::byte> memory);

}  // namespace hir::device::cuda
