// Attention on NVIDIA GPUs by cuDNN's fused kernels; the library is loaded at run time. Built without its headers,
// opening answers kUnimplemented.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/library/library.h"
#include "csrc/codegen/library/queued/device_call.h"
#include "csrc/device/buffer.h"
#include "csrc/device/device.h"
#include "csrc/device/stream.h"

namespace hir::codegen::library {

struct CudnnOptions {
  // The driver's own handle of a stream, and the device's context made current: those of csrc/device/cuda. REQUIRED.
  void* (*native_stream)(device::Stream&) = nullptr;
  void (*make_current)(device::Device&) = nullptr;
  // FlashOptions::copy. REQUIRED.
  std::function<Status(device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
                       std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
                       device::Stream& stream)>
      copy;
};

// Loads the library of $HOSTIR_CUDNN, else the first that is found, and CUDA's runtime, which it needs; they stay
// loaded. kFailedPrecondition when none can be loaded or it is older than 9.0, kUnimplemented without its headers.
// Thread-safe.
Status LoadCudnn();

// cuDNN on one device. Outlives the calls it made and the work queued with them. Thread-safe.
class Cudnn {
 public:
  // Errors: LoadCudnn's; kUnavailable when it does not come up on this device.
  static Result<std::unique_ptr<Cudnn>> Open(device::Device& device, const CudnnOptions& options);
  virtual ~Cudnn() = default;
  // Takes a tenth of a second for a new problem, which is remembered: make calls when sizes are known, not in a run.
  // Errors: MakeFlash's, and kUnimplemented for what cuDNN has no kernel for.
  virtual Result<std::unique_ptr<DeviceCall>> Make(const AttentionDesc& desc) = 0;
};

}  // namespace hir::codegen::library
