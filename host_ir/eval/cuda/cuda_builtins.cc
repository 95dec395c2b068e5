#include "host_ir/eval/cuda/cuda_builtins.h"

#include <array>

#include "csrc/base/text.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/eval/builtins.h"
#include "host_ir/eval/cuda/builtins_text.h"

namespace hir::host {
namespace {

constexpr std::array kNames = {kCopyKernel, kBinaryKernel, kReduceKernel};

}  // namespace

Result<std::unique_ptr<device::KernelSource>> MakeCudaBuiltins(device::Device& device, const CompileCuda& compile) {
  HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device));
  HIR_ASSIGN(const std::string cubin, compile(base::Cat(kBuiltinsIntrinsics, kBuiltinsText), facts.architecture));
  std::array<device::CudaKernelInfo, kNames.size()> infos;
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i] = {.name = std::string(kNames[i]),
                .symbol = kBuiltinFunctions[i],
                .threads = kBuiltinThreads,
                .ctas_per_sm = device::kCtasThatFit,
                .num_slots = kBuiltinSlots,
                .grid_per_cta = kNames[i] == kReduceKernel ? 1 : kBuiltinElements};
  }
  return device::LoadCubin(device, cubin, infos);
}

}  // namespace hir::host
