#include "host_ir/eval/cuda/cuda_builtins.h"

#include <array>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/eval/builtins.h"
#include "host_ir/eval/cuda/builtins_text.h"

namespace hir::host {
namespace {

constexpr std::array kNames = {kCopyKernel, kBinaryKernel, kReduceKernel};

// The kernels under the names that evaluators ask for, which C++ does not allow.
class CudaBuiltins final : public device::KernelSource {
 public:
  explicit CudaBuiltins(std::unique_ptr<device::KernelSource> cubin) : cubin_(std::move(cubin)) {}
  Result<const device::Kernel*> Get(std::string_view name) override {
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (kNames[i] == name) return cubin_->Get(kBuiltinFunctions[i]);
    }
    return Status(Code::kNotFound, base::Cat("no built-in kernel ", name));
  }

 private:
  const std::unique_ptr<device::KernelSource> cubin_;
};

}  // namespace

Result<std::unique_ptr<device::KernelSource>> MakeCudaBuiltins(device::Device& device,
                                                               const CompileCuda& compile) {
  HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device));
  HIR_ASSIGN(const std::string cubin,
             compile(base::Cat(kBuiltinsIntrinsics, kBuiltinsText), facts.architecture));
  std::array<device::CudaKernelInfo, kNames.size()> infos;
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i] = {.name = kBuiltinFunctions[i],
                .threads = kBuiltinThreads,
                .ctas_per_sm = device::kCtasThatFit,
                .num_slots = kBuiltinSlots,
                .grid_per_cta = kNames[i] == kReduceKernel ? 1 : kBuiltinElements};
  }
  HIR_ASSIGN(auto kernels, device::LoadCubin(device, cubin, infos));
  return std::unique_ptr<device::KernelSource>(std::make_unique<CudaBuiltins>(std::move(kernels)));
}

}  // namespace hir::host
