// Cubins to kernels of a device.
#include <map>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/device/cuda/cuda_device.h"

namespace hir::codegen::gpu {

namespace {

// Those of a plan, each with its cubin; there are plans without any.
class Kernels final : public device::KernelSource {
 public:
  void Add(std::string name, std::unique_ptr<device::KernelSource> source) {
    sources_[std::move(name)] = std::move(source);
  }
  Result<const device::Kernel*> Get(std::string_view name) override {
    const auto found = sources_.find(name);
    if (found == sources_.end()) return Status(hir::Code::kNotFound, base::Cat("no kernel ", name));
    return found->second->Get(name);
  }

 private:
  std::map<std::string, std::unique_ptr<device::KernelSource>, std::less<>> sources_;
};

}  // namespace

Result<std::unique_ptr<device::KernelSource>> Load(const Artifact& artifact, device::Device& device) {
  HIR_ASSIGN(const Code code, Unpack(artifact.bytes));
  if (code.kernels.size() != artifact.kernels.size()) {
    return InvalidArgument(base::Cat(code.kernels.size(), " kernels with ", artifact.kernels.size(), " names"));
  }
  if (code.kernels.empty()) return std::make_unique<Kernels>();
  HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device));
  // A cubin runs on its own generation, from its minor version on.
  if (facts.architecture / 10 != code.architecture / 10 || facts.architecture < code.architecture) {
    return Status(hir::Code::kFailedPrecondition, base::Cat("kernels for sm_", code.architecture, " do not run on ",
                                                            facts.model, ", sm_", facts.architecture));
  }
  auto kernels = std::make_unique<Kernels>();
  for (size_t i = 0; i < code.kernels.size(); ++i) {
    const KernelInfo& info = code.kernels[i];
    const device::CudaKernelInfo loaded[] = {{.name = artifact.kernels[i],
                                              .symbol = base::Cat("k", i),
                                              .threads = info.threads,
                                              .shared_bytes = info.shared_bytes,
                                              .ctas_per_sm = info.ctas_per_sm,
                                              .dependent = info.dependent,
                                              .num_slots = info.num_slots,
                                              .grid_per_cta = info.items_per_cta}};
    HIR_ASSIGN(auto source, device::LoadCubin(device, code.cubins[i], loaded));
    kernels->Add(artifact.kernels[i], std::move(source));
  }
  return std::unique_ptr<device::KernelSource>(std::move(kernels));
}

}  // namespace hir::codegen::gpu
