// The built-in kernels (host_ir/eval/builtins.h) on the CPU.
#pragma once

#include <array>

#include "csrc/device/host/host_kernel.h"
#include "csrc/device/kernel.h"

namespace hir::host {

// Immutable; every program of a process may share one.
class HostBuiltins final : public device::KernelSource {
 public:
  HostBuiltins();
  Result<const device::Kernel*> Get(std::string_view name) override;

 private:
  const std::array<device::HostKernel, 3> kernels_;
};

}  // namespace hir::host
