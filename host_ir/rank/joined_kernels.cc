#include "host_ir/rank/joined_kernels.h"

#include <utility>

#include "csrc/base/text.h"

namespace hir::rank {

void JoinedKernels::Add(std::span<const std::string> names, std::unique_ptr<device::KernelSource> source) {
  for (const std::string& name : names) by_name_[name] = source.get();
  sources_.push_back(std::move(source));
}

Result<const device::Kernel*> JoinedKernels::Get(std::string_view name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return Status(Code::kNotFound, base::Cat("no kernel ", name, " in the plan"));
  return found->second->Get(name);
}

}  // namespace hir::rank
