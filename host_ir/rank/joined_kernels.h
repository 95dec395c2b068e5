// JoinedKernels: several kernel sources as one.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/device/kernel.h"

namespace hir::rank {

// Threads: one at a time.
class JoinedKernels final : public device::KernelSource {
 public:
  // Adds the kernels `names` of `source`.
  void Add(std::span<const std::string> names, std::unique_ptr<device::KernelSource> source);
  Result<const device::Kernel*> Get(std::string_view name) override;

 private:
  std::vector<std::unique_ptr<device::KernelSource>> sources_;
  std::map<std::string, device::KernelSource*, std::less<>> by_name_;
};

}  // namespace hir::rank
