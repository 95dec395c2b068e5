// Sums of rows by index on a GPU, by kernels of our own (csrc/codegen/gpu/index_sum.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/codegen/library/index_sum.h"
#include "csrc/codegen/library/queued/workspaces.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "host_ir/eval/library.h"

namespace hir::rank {

// Makes calls, whose kernels are compiled and loaded once for each pair of element types. Outlives its calls and their
// work; `device`, of csrc/device/cuda, outlives it. Thread-safe.
class IndexSums {
 public:
  explicit IndexSums(device::Device& device) : device_(device), workspaces_(device) {}
  // Errors: those of library::Normalize, of codegen::gpu::Compiler and Load, and of Device::Allocate.
  Result<std::unique_ptr<host::LibraryCall>> Make(const codegen::library::IndexSumDesc& desc);

 private:
  Result<device::KernelSource*> Kernels(DType dtype, DType index);

  device::Device& device_;
  codegen::library::Workspaces workspaces_;
  std::mutex mutex_;
  std::map<std::pair<DType, DType>, std::unique_ptr<device::KernelSource>> kernels_;  // Guarded by mutex_.
};

}  // namespace hir::rank
