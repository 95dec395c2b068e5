#include "host_ir/rank/cpu/libraries.h"

#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/text.h"
#include "csrc/base/work_pool.h"
#include "csrc/codegen/library/onednn/onednn.h"

namespace hir::rank {
namespace {

namespace library = codegen::library;

class CpuCall final : public host::LibraryCall {
 public:
  explicit CpuCall(std::unique_ptr<library::Call> call) : call_(std::move(call)) {}

  void Queue(std::span<const device::Buffer> inputs, device::Buffer output, device::Stream& stream) override {
    std::vector<const std::byte*> addresses;
    for (const device::Buffer& input : inputs) addresses.push_back(input.data);
    stream.HostCallback([this, addresses = std::move(addresses), output] {
      const std::scoped_lock lock(mutex_);
      call_->Run(addresses, {&output.data, 1});
      return Status();
    });
  }

 private:
  // A call may be queued on several streams at once, as a loop over streams does; it runs on one at a time, on all
  // threads there are for it.
  std::mutex mutex_;
  const std::unique_ptr<library::Call> call_;
};

class CpuLibraries final : public host::LibrarySource {
 public:
  explicit CpuLibraries(int num_threads) : num_threads_(num_threads) {}

  Result<std::unique_ptr<host::LibraryCall>> Make(const host::LibraryDesc& desc) override {
    HIR_ASSIGN(auto call, std::visit([this](const auto& wanted) { return MakeCall(wanted); }, desc));
    return std::unique_ptr<host::LibraryCall>(std::make_unique<CpuCall>(std::move(call)));
  }

 private:
  Result<std::unique_ptr<library::Call>> MakeCall(const host::ProductDesc& desc) {
    const std::optional<library::Epilogue> epilogue = library::EpilogueNamed(desc.epilogue);
    if (!epilogue) return Unimplemented(base::Cat(desc.op, " with the epilogue ", desc.epilogue));
    library::ProductDesc wanted = {
        .op = desc.op, .output = ToTensor(desc.output), .epilogue = *epilogue, .tf32 = desc.tf32};
    for (const host::LibraryTensor& input : desc.inputs) wanted.inputs.push_back(ToTensor(input));
    return library::Make(wanted, {.num_threads = num_threads_});
  }

  Result<std::unique_ptr<library::Call>> MakeCall(const host::IndexSumDesc& desc) {
    const std::scoped_lock lock(mutex_);
    // The thread that runs the call is one of them.
    if (pool_ == nullptr)
      pool_ = std::make_unique<base::WorkPool>(base::WorkPool::Options{.num_threads = num_threads_ - 1});
    return library::MakeIndexSum({ToTensor(desc.updates), ToTensor(desc.indices), ToTensor(desc.output), desc.axis},
                                 *pool_);
  }

  static library::Tensor ToTensor(const host::LibraryTensor& tensor) {
    return {tensor.dtype, tensor.shape, tensor.strides};
  }
  const int num_threads_;
  std::mutex mutex_;
  std::unique_ptr<base::WorkPool> pool_;  // Of sums by index, from the first one on. Guarded by mutex_; outlives calls.
};

}  // namespace

std::unique_ptr<host::LibrarySource> MakeCpuLibraries(int num_threads) {
  return std::make_unique<CpuLibraries>(num_threads);
}

}  // namespace hir::rank
