// DeviceKind: what a program is run on, and how its time is read.
#pragma once

#include <functional>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "host_ir/rank/backends.h"

namespace hir::eval {

struct DeviceKind {
  rank::Backends backends = {};
  // Null where time is the host's: then samples are timed from an idle device to an idle device.
  std::function<Result<std::unique_ptr<device::Event>>(device::Device&)> make_timed_event = {};
  std::function<Result<double>(device::Event&, device::Event&)> elapsed_ms = {};
};

// `comm`: "mpi", or anything else for UCX.
DeviceKind CpuKind(std::string_view comm);
DeviceKind CudaKind();

}  // namespace hir::eval
