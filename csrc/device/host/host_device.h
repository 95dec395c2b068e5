// The CPU as a device: kernels are functions, streams are continuation queues on a pool of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/host/executor.h"
#include "csrc/device/host/host_kernel.h"  // IWYU pragma: export

namespace hir::device {

struct HostDeviceOptions {
  std::string name = "host:0";
  int num_threads = 1;  // That run streams at once, those that wait for one included; a launch is split over them.
  int64_t memory_bytes_max = int64_t{1} << 62;  // Limit "device_bytes_max" of Allocate.
  int64_t streams_max = 1024;                   // Limit "streams_max" of CreateStream.
  int64_t queued_ops_max = int64_t{1} << 20;    // Limit "queued_ops_max" of one stream's queue; beyond, it fails.
};

// The device with threads of its own, named and joined by it.
// Its destructor REQUIRES that every stream is drained (Synchronize).
Result<std::unique_ptr<Device>> CreateHostDevice(HostDeviceOptions options);

// The same on an executor of the caller's, which outlives the device: for simulations. num_threads
// is not used.
Result<std::unique_ptr<Device>> CreateHostDevice(HostDeviceOptions options, Executor& executor);

}  // namespace hir::device
