#include "host_ir/rank/cuda/strided_copies.h"

#include <string>
#include <vector>

#include "csrc/codegen/disk_cache.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/strided_copy.h"
#include "csrc/device/cuda/cuda_device.h"

namespace hir::rank {
namespace {

namespace gpu = codegen::gpu;

}  // namespace

Status StridedCopies::Queue(device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
                            std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
                            device::Stream& stream) {
  const gpu::StridedCopyLaunch launch = gpu::LaunchOf(Address(to), to_strides, Address(from), from_strides, shape);
  if (launch.grid == 0) return {};
  HIR_ASSIGN(const device::Kernel* const kernel, KernelFor(bytes));
  stream.Launch(*kernel, launch.args, launch.grid);
  return {};
}

Result<const device::Kernel*> StridedCopies::KernelFor(int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<device::KernelSource>& source = kernels_[bytes];
  if (source == nullptr) {
    HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device_));
    gpu::Compiler compiler({.cache_directory = codegen::DefaultCacheDirectory()});
    const std::vector<std::string> names = {gpu::kStridedCopyKernel};
    HIR_ASSIGN(const codegen::Artifact artifact,
               compiler.Compile(gpu::EmitStridedCopy(bytes), names, facts.architecture));
    HIR_ASSIGN(source, gpu::Load(artifact, device_));
  }
  return source->Get(gpu::kStridedCopyKernel);
}

}  // namespace hir::rank
