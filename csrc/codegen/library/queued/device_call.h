// A library call on a device with streams, made once and queued any number of times.
#pragma once

#include <span>
#include <string>

#include "csrc/device/buffer.h"
#include "csrc/device/stream.h"

namespace hir::codegen::library {

// All sizes are known. One thread at a time queues, on any of the device's streams.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;
  // Queues the call and returns; addresses in the order of the description, of products one output; an output overlaps
  // none of the others. What the library refuses then fails the stream.
  virtual void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
                     device::Stream& stream) = 0;
  // "cublaslt 13.0.2", "cudnn 9.19.0", "nothing" (an empty result), "fill" (a sum of nothing): for explain and
  // benchmarks.
  virtual std::string implementation() const = 0;
};

}  // namespace hir::codegen::library
