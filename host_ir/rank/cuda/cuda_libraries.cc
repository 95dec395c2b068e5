#include "host_ir/rank/cuda/cuda_libraries.h"

#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "csrc/base/text.h"
#include "csrc/codegen/library/cublaslt/cublaslt.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/activations.h"
#include "host_ir/rank/cuda/grouped_products.h"
#include "host_ir/rank/cuda/index_sums.h"

namespace hir::rank {
namespace {

namespace library = codegen::library;

class CudaCall final : public host::LibraryCall {
 public:
  explicit CudaCall(std::unique_ptr<library::DeviceCall> call) : call_(std::move(call)) {}
  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    call_->Queue(inputs, outputs[0], stream);
  }

 private:
  const std::unique_ptr<library::DeviceCall> call_;
};

library::Tensor ToTensor(const host::LibraryTensor& tensor) { return {tensor.dtype, tensor.shape, tensor.strides}; }

class CudaLibraries final : public host::LibrarySource {
 public:
  explicit CudaLibraries(device::Device& device) : device_(device), index_sums_(device), grouped_products_(device) {}

  Result<std::unique_ptr<host::LibraryCall>> Make(const host::LibraryDesc& desc) override {
    return std::visit([this](const auto& wanted) { return MakeCall(wanted); }, desc);
  }

 private:
  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::IndexSumDesc& desc) {
    return index_sums_.Make({ToTensor(desc.updates), ToTensor(desc.indices), ToTensor(desc.output), desc.axis});
  }

  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::GroupedProductDesc& desc) {
    return grouped_products_.Make(
        {desc.outer, ToTensor(desc.a), ToTensor(desc.b), ToTensor(desc.ends), ToTensor(desc.output), desc.first});
  }

  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::AttentionDesc&) {
    return Unimplemented("attention: plans for GPUs make products of it");
  }

  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::ProductDesc& desc) {
    if (cublaslt_ == nullptr) {
      library::CublasLtOptions options;
      options.native_stream = &device::NativeStream;
      options.make_current = &device::MakeCurrent;
      options.make_activation = [this](library::Epilogue epilogue, DType dtype) {
        return ActivationOf(epilogue, dtype);
      };
      HIR_ASSIGN(cublaslt_, library::CublasLt::Open(device_, options));
    }
    const std::optional<library::Epilogue> epilogue = library::EpilogueNamed(desc.epilogue);
    if (!epilogue) return Unimplemented(base::Cat(desc.op, " with the epilogue ", desc.epilogue));
    library::ProductDesc wanted = {
        .op = desc.op, .output = ToTensor(desc.output), .epilogue = *epilogue, .tf32 = desc.tf32};
    for (const host::LibraryTensor& input : desc.inputs) wanted.inputs.push_back(ToTensor(input));
    HIR_ASSIGN(auto call, cublaslt_->Make(wanted));
    return std::unique_ptr<host::LibraryCall>(std::make_unique<CudaCall>(std::move(call)));
  }

  // One kernel for all calls.
  Result<Activation> ActivationOf(library::Epilogue epilogue, DType dtype) {
    const std::scoped_lock lock(mutex_);
    Activation& activation = activations_[{epilogue, dtype}];
    if (activation == nullptr) {
      HIR_ASSIGN(activation, MakeActivation(epilogue, dtype, device_));
    }
    return activation;
  }

  device::Device& device_;
  IndexSums index_sums_;
  GroupedProducts grouped_products_;
  std::mutex mutex_;
  std::map<std::pair<library::Epilogue, DType>, Activation> activations_;  // Guarded by mutex_.
  std::unique_ptr<library::CublasLt> cublaslt_;
};

}  // namespace

std::unique_ptr<host::LibrarySource> MakeCudaLibraries(device::Device& device) {
  return std::make_unique<CudaLibraries>(device);
}

}  // namespace hir::rank
