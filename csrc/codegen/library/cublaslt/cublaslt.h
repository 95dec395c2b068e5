// Matrix products on NVIDIA GPUs by cuBLASLt, which is loaded at run time. Built without its header, opening answers
// kUnimplemented.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/library/library.h"
#include "csrc/codegen/library/queued/device_call.h"
#include "csrc/device/buffer.h"
#include "csrc/device/device.h"
#include "csrc/device/stream.h"

namespace hir::codegen::library {

struct CublasLtOptions {
  // What an algorithm may use: NVIDIA's advice for Hopper.
  int64_t workspace_bytes = int64_t{32} << 20;
  // The first that can be loaded, behind the one that $HOSTIR_CUBLASLT names.
  std::vector<std::string> libraries = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
  // The driver's own handle of a stream, and the device's context made current: those of csrc/device/cuda. REQUIRED.
  void* (*native_stream)(device::Stream&) = nullptr;
  void (*make_current)(device::Device&) = nullptr;
  // Makes what queues an epilogue on what was written, in place, for problems that cuBLASLt has no algorithm with it
  // for. Null: those are refused.
  using Activation = std::function<Status(device::Buffer, device::Stream&)>;
  std::function<Result<Activation>(Epilogue, DType)> make_activation = nullptr;
};

// cuBLASLt on one device. Outlives the calls it made and the work queued with them. Thread-safe.
class CublasLt {
 public:
  // Errors: kUnimplemented without the header, kFailedPrecondition when no library of the options can be loaded,
  // kUnavailable when it does not come up on this device.
  static Result<std::unique_ptr<CublasLt>> Open(device::Device& device, const CublasLtOptions& options);
  virtual ~CublasLt() = default;
  // Sums of 16-bit floats are carried in float32, of others in their type; a sum of nothing is 0, or the bias. The bias
  // and the epilogue act on sums before they are rounded, but where cuBLASLt has no algorithm for that.
  // Chooses an algorithm, which takes 10 to 100 us and is remembered for equal problems: make calls when sizes are
  // known, not in a run. Errors: as Normalize's; kUnimplemented for other types than f16, bf16, f32, f64, and for what
  // cuBLASLt has no algorithm for; those of Device::Allocate for workspaces.
  virtual Result<std::unique_ptr<DeviceCall>> Make(const ProductDesc& desc) = 0;
};

}  // namespace hir::codegen::library
