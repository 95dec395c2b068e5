#include "host_ir/rank/cpu/libraries.h"

#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/base/work_pool.h"
#include "csrc/codegen/library/onednn/onednn.h"
#include "host_ir/rank/library_descs.h"

namespace hir::rank {
namespace {

namespace library = codegen::library;

class CpuCall final : public host::LibraryCall {
 public:
  explicit CpuCall(std::unique_ptr<library::Call> call) : call_(std::move(call)) {}

  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    std::vector<const std::byte*> from;
    for (const device::Buffer& input : inputs) from.push_back(input.data);
    std::vector<std::byte*> to;
    for (const device::Buffer& output : outputs) to.push_back(output.data);
    stream.HostCallback([this, from = std::move(from), to = std::move(to)] {
      const std::scoped_lock lock(mutex_);
      call_->Run(from, to);
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
    HIR_ASSIGN(const library::ProductDesc wanted, ToLibrary(desc));
    return library::Make(wanted, {.num_threads = num_threads_});
  }

  Result<std::unique_ptr<library::Call>> MakeCall(const host::AttentionDesc& desc) {
    HIR_ASSIGN(const library::AttentionDesc wanted, ToLibrary(desc));
    return library::MakeAttention(wanted, Pool());
  }

  Result<std::unique_ptr<library::Call>> MakeCall(const host::IndexSumDesc& desc) {
    return library::MakeIndexSum(ToLibrary(desc), Pool());
  }

  Result<std::unique_ptr<library::Call>> MakeCall(const host::GroupedProductDesc& desc) {
    return library::MakeGroupedProduct(ToLibrary(desc), Pool());
  }

  base::WorkPool& Pool() {
    const std::scoped_lock lock(mutex_);
    // The thread that runs a call is one of them.
    if (pool_ == nullptr)
      pool_ = std::make_unique<base::WorkPool>(base::WorkPool::Options{.num_threads = num_threads_ - 1});
    return *pool_;
  }

  const int num_threads_;
  std::mutex mutex_;
  // For calls that oneDNN has not; made with the first of them. Guarded by mutex_; outlives calls.
  std::unique_ptr<base::WorkPool> pool_;
};

}  // namespace

std::unique_ptr<host::LibrarySource> MakeCpuLibraries(int num_threads) {
  return std::make_unique<CpuLibraries>(num_threads);
}

}  // namespace hir::rank
