#include "host_ir/rank/cuda/grouped_products.h"

#include <string>
#include <vector>

#include "csrc/codegen/disk_cache.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/grouped_product.h"
#include "csrc/device/cuda/cuda_device.h"

namespace hir::rank {
namespace {

namespace gpu = codegen::gpu;
namespace library = codegen::library;

class GroupedProductCall final : public host::LibraryCall {
 public:
  GroupedProductCall(const library::GroupedProduct& product, const device::Kernel& kernel)
      : product_(product), kernel_(kernel) {}

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    const gpu::GroupedProductLaunch launch =
        gpu::LaunchOf(product_, Address(inputs[0]), Address(inputs[1]), Address(inputs[2]), Address(outputs[0]));
    if (launch.grid > 0) stream.Launch(kernel_, launch.args, launch.grid);
  }

 private:
  const library::GroupedProduct product_;
  const device::Kernel& kernel_;
};

}  // namespace

Result<std::unique_ptr<host::LibraryCall>> GroupedProducts::Make(const library::GroupedProductDesc& desc) {
  HIR_ASSIGN(const library::GroupedProduct product, library::Normalize(desc));
  HIR_ASSIGN(device::KernelSource* const source, Kernels(product.dtype, product.index));
  HIR_ASSIGN(const device::Kernel* const kernel, source->Get(gpu::kGroupedProductKernels[product.outer ? 1 : 0]));
  return std::unique_ptr<host::LibraryCall>(std::make_unique<GroupedProductCall>(product, *kernel));
}

Result<device::KernelSource*> GroupedProducts::Kernels(DType dtype, DType index) {
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<device::KernelSource>& source = kernels_[{dtype, index}];
  if (source == nullptr) {
    HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device_));
    gpu::Compiler compiler({.cache_directory = codegen::DefaultCacheDirectory()});
    const std::vector<std::string> names(gpu::kGroupedProductKernels.begin(), gpu::kGroupedProductKernels.end());
    HIR_ASSIGN(const codegen::Artifact artifact,
               compiler.Compile(gpu::EmitGroupedProduct(dtype, index), names, facts.architecture));
    HIR_ASSIGN(source, gpu::Load(artifact, device_));
  }
  return source.get();
}

}  // namespace hir::rank
