// What a worker is built from; the program puts real backends in, a test others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "host_ir/eval/library.h"
#include "hostir/v1/plan.pb.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/rendezvous/rendezvous.h"

namespace hir::service {

struct CommOptions {
  int64_t rank = 0;
  int64_t size = 1;
  int64_t generation = 0;
  base::Nanos setup_timeout = {};
  base::Nanos op_timeout = {};
};

struct Backends {
  std::function<Result<std::unique_ptr<device::Device>>(int64_t rank, int num_threads)> make_device;
  std::function<Result<std::unique_ptr<comm::Communicator>>(const CommOptions&, comm::Rendezvous&)>
      make_communicator;
  // The kernels of a plan's artifacts.
  std::function<Result<std::unique_ptr<device::KernelSource>>(const ::hostir::v1::Plan&)>
      load_kernels;
  std::function<std::unique_ptr<host::LibrarySource>(int num_threads)> make_libraries;
  std::function<std::unique_ptr<device::KernelSource>()> make_builtins;
};

}  // namespace hir::service
