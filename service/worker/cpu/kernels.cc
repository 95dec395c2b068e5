#include "service/worker/cpu/kernels.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/cpu.h"

namespace hir::service {
namespace {

// Several sources as one.
class JoinedKernels final : public device::KernelSource {
 public:
  void Add(const ::hostir::v1::Artifact& artifact, std::unique_ptr<device::KernelSource> source) {
    for (const std::string& kernel : artifact.kernels()) by_name_[kernel] = source.get();
    sources_.push_back(std::move(source));
  }
  Result<const device::Kernel*> Get(std::string_view name) override {
    const auto found = by_name_.find(name);
    if (found == by_name_.end())
      return Status(Code::kNotFound, base::Cat("no kernel ", name, " in the plan"));
    return found->second->Get(name);
  }

 private:
  std::vector<std::unique_ptr<device::KernelSource>> sources_;
  std::map<std::string, device::KernelSource*, std::less<>> by_name_;
};

}  // namespace

Result<std::unique_ptr<device::KernelSource>> LoadCpuKernels(const ::hostir::v1::Plan& plan) {
  auto joined = std::make_unique<JoinedKernels>();
  for (const ::hostir::v1::Artifact& artifact : plan.artifacts()) {
    if (artifact.backend() != "cpu") {
      return InvalidArgument(base::Cat("a CPU worker cannot load code for ", artifact.backend()));
    }
    HIR_ASSIGN(auto source,
               codegen::cpu::Load(
                   {artifact.code(), {artifact.kernels().begin(), artifact.kernels().end()}}));
    joined->Add(artifact, std::move(source));
  }
  return std::unique_ptr<device::KernelSource>(std::move(joined));
}

}  // namespace hir::service
