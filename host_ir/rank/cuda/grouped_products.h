// Products of groups of rows on a GPU, by kernels of our own (csrc/codegen/gpu/grouped_product.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/codegen/library/grouped_product.h"
#include "csrc/device/device.h"
#include "csrc/device/kernel.h"
#include "host_ir/eval/library.h"

namespace hir::rank {

// Makes calls, whose kernels are compiled and loaded once for each pair of element types. Outlives its calls and their
// work; `device`, of csrc/device/cuda, outlives it. Thread-safe.
class GroupedProducts {
 public:
  explicit GroupedProducts(device::Device& device) : device_(device) {}
  // Errors: those of library::Normalize, of codegen::gpu::Compiler and Load.
  Result<std::unique_ptr<host::LibraryCall>> Make(const codegen::library::GroupedProductDesc& desc);

 private:
  Result<device::KernelSource*> Kernels(DType dtype, DType index);

  device::Device& device_;
  std::mutex mutex_;
  std::map<std::pair<DType, DType>, std::unique_ptr<device::KernelSource>> kernels_;  // Guarded by mutex_.
};

}  // namespace hir::rank
