// Cubins to kernels of a device.
#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/device/cuda/cuda_device.h"

namespace hir::codegen::gpu {

namespace {

// Of a plan without launches.
class NoKernels final : public device::KernelSource {
 public:
  Result<const device::Kernel*> Get(std::string_view name) override {
    return Status(hir::Code::kNotFound, base::Cat("no kernel ", name));
  }
};

}  // namespace

Result<std::unique_ptr<device::KernelSource>> Load(const Artifact& artifact,
                                                   device::Device& device) {
  HIR_ASSIGN(const Code code, Unpack(artifact.bytes));
  if (code.kernels.size() != artifact.kernels.size()) {
    return InvalidArgument(
        base::Cat(code.kernels.size(), " kernels with ", artifact.kernels.size(), " names"));
  }
  if (code.kernels.empty()) return std::make_unique<NoKernels>();
  HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device));
  // A cubin runs on its own generation, from its minor version on.
  if (facts.architecture / 10 != code.architecture / 10 || facts.architecture < code.architecture) {
    return Status(hir::Code::kFailedPrecondition,
                  base::Cat("kernels for sm_", code.architecture, " do not run on ", facts.model,
                            ", sm_", facts.architecture));
  }
  std::vector<device::CudaKernelInfo> infos;
  for (size_t i = 0; i < code.kernels.size(); ++i) {
    const KernelInfo& info = code.kernels[i];
    infos.push_back({.name = artifact.kernels[i],
                     .symbol = base::Cat("k", i),
                     .threads = info.threads,
                     .shared_bytes = info.shared_bytes,
                     .ctas_per_sm = info.ctas_per_sm,
                     .dependent = info.dependent,
                     .num_slots = info.num_slots,
                     .grid_per_cta = info.items_per_cta});
  }
  return device::LoadCubin(device, code.cubin, infos);
}

}  // namespace hir::codegen::gpu
