#include "host_ir/rank/cuda/cuda_libraries.h"

#include <map>
#include <mutex>
#include <utility>
#include <variant>

#include "csrc/codegen/library/cublaslt/cublaslt.h"
#include "csrc/codegen/library/cudnn/cudnn.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/activations.h"
#include "host_ir/rank/cuda/grouped_products.h"
#include "host_ir/rank/cuda/index_sums.h"
#include "host_ir/rank/cuda/strided_copies.h"
#include "host_ir/rank/library_descs.h"

namespace hir::rank {
namespace {

namespace library = codegen::library;

class CudaCall final : public host::LibraryCall {
 public:
  explicit CudaCall(std::unique_ptr<library::DeviceCall> call) : call_(std::move(call)) {}
  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    call_->Queue(inputs, outputs, stream);
  }

 private:
  const std::unique_ptr<library::DeviceCall> call_;
};

class CudaLibraries final : public host::LibrarySource {
 public:
  explicit CudaLibraries(device::Device& device)
      : device_(device), index_sums_(device), grouped_products_(device), copies_(device) {}

  Result<std::unique_ptr<host::LibraryCall>> Make(const host::LibraryDesc& desc) override {
    return std::visit([this](const auto& wanted) { return MakeCall(wanted); }, desc);
  }

 private:
  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::IndexSumDesc& desc) {
    return index_sums_.Make(ToLibrary(desc));
  }

  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::GroupedProductDesc& desc) {
    return grouped_products_.Make(ToLibrary(desc));
  }

  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::AttentionDesc& desc) {
    HIR_ASSIGN(const library::AttentionDesc wanted, ToLibrary(desc));
    if (cudnn_ == nullptr) {
      library::CudnnOptions options;
      options.native_stream = &device::NativeStream;
      options.make_current = &device::MakeCurrent;
      options.copy = [this](device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
                            std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
                            device::Stream& stream) {
        return copies_.Queue(to, to_strides, from, from_strides, shape, bytes, stream);
      };
      HIR_ASSIGN(cudnn_, library::Cudnn::Open(device_, options));
    }
    HIR_ASSIGN(auto call, cudnn_->Make(wanted));
    return std::unique_ptr<host::LibraryCall>(std::make_unique<CudaCall>(std::move(call)));
  }

  Result<std::unique_ptr<host::LibraryCall>> MakeCall(const host::ProductDesc& desc) {
    HIR_ASSIGN(const library::ProductDesc wanted, ToLibrary(desc));
    if (cublaslt_ == nullptr) {
      library::CublasLtOptions options;
      options.native_stream = &device::NativeStream;
      options.make_current = &device::MakeCurrent;
      options.make_activation = [this](library::Epilogue epilogue, DType dtype) {
        return ActivationOf(epilogue, dtype);
      };
      HIR_ASSIGN(cublaslt_, library::CublasLt::Open(device_, options));
    }
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
  StridedCopies copies_;
  std::mutex mutex_;
  std::map<std::pair<library::Epilogue, DType>, Activation> activations_;  // Guarded by mutex_.
  std::unique_ptr<library::CublasLt> cublaslt_;
  std::unique_ptr<library::Cudnn> cudnn_;
};

}  // namespace

std::unique_ptr<host::LibrarySource> MakeCudaLibraries(device::Device& device) {
  return std::make_unique<CudaLibraries>(device);
}

}  // namespace hir::rank
