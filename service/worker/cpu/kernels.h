// The kernels of a plan's artifacts, by name.
#pragma once

#include <memory>

#include "csrc/base/status.h"
#include "csrc/device/kernel.h"
#include "hostir/v1/plan.pb.h"

namespace hir::service {

// Errors: kInvalidArgument for artifacts of another backend; those of codegen::cpu::Load.
Result<std::unique_ptr<device::KernelSource>> LoadCpuKernels(const ::hostir::v1::Plan& plan);

}  // namespace hir::service
