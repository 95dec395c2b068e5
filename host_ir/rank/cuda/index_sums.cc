#include "host_ir/rank/cuda/index_sums.h"

#include <array>
#include <string>
#include <vector>

#include "csrc/codegen/disk_cache.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/index_sum.h"
#include "csrc/device/cuda/cuda_device.h"

namespace hir::rank {
namespace {

namespace gpu = codegen::gpu;
namespace library = codegen::library;

using Loaded = std::array<const device::Kernel*, gpu::kIndexSumKernels.size()>;

class IndexSumCall final : public host::LibraryCall {
 public:
  IndexSumCall(const library::IndexSum& sum, const Loaded& kernels, library::Workspaces& workspaces)
      : sum_(sum), kernels_(kernels), workspaces_(workspaces) {}

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    const gpu::IndexSumWorkspace wanted = gpu::WorkspaceOf(sum_);
    Result<device::Buffer> workspace = workspaces_.For(stream, wanted.bytes);
    if (!workspace.ok()) {
      stream.HostCallback([status = workspace.status()] { return status; });
      return;
    }
    const auto launches =
        gpu::LaunchesOf(sum_, Address(inputs[0]), Address(inputs[1]), Address(outputs[0]), Address(*workspace));
    if (launches.empty()) return;
    stream.Fill(workspace->Slice(0, wanted.bytes_set), ~uint64_t{0}, sizeof(uint64_t));
    for (const gpu::IndexSumLaunch& launch : launches)
      stream.Launch(*kernels_[static_cast<size_t>(launch.kernel)], launch.args, launch.grid);
  }

 private:
  const library::IndexSum sum_;
  const Loaded kernels_;
  library::Workspaces& workspaces_;
};

}  // namespace

Result<std::unique_ptr<host::LibraryCall>> IndexSums::Make(const library::IndexSumDesc& desc) {
  HIR_ASSIGN(const library::IndexSum sum, library::Normalize(desc));
  HIR_TRY(workspaces_.Reserve(gpu::WorkspaceOf(sum).bytes));
  HIR_ASSIGN(device::KernelSource* const source, Kernels(sum.dtype, sum.index));
  Loaded kernels = {};
  for (size_t k = 0; k < kernels.size(); ++k) {
    HIR_ASSIGN(kernels[k], source->Get(gpu::kIndexSumKernels[k]));
  }
  return std::unique_ptr<host::LibraryCall>(std::make_unique<IndexSumCall>(sum, kernels, workspaces_));
}

Result<device::KernelSource*> IndexSums::Kernels(DType dtype, DType index) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<device::KernelSource>& source = kernels_[{dtype, index}];
  if (source == nullptr) {
    HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device_));
    gpu::Compiler compiler({.cache_directory = codegen::DefaultCacheDirectory()});
    const std::vector<std::string> names(gpu::kIndexSumKernels.begin(), gpu::kIndexSumKernels.end());
    HIR_ASSIGN(const codegen::Artifact artifact,
               compiler.Compile(gpu::EmitIndexSum(dtype, index), names, facts.architecture));
    HIR_ASSIGN(source, gpu::Load(artifact, device_));
  }
  return source.get();
}

}  // namespace hir::rank
