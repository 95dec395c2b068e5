#include "host_ir/eval/pool.h"

namespace hir::host {

Result<std::shared_ptr<const device::Allocation>> Pool::Reserve(int64_t bytes) {
  if (memory_ == nullptr || memory_->buffer().bytes < bytes) {
    HIR_ASSIGN(std::unique_ptr<device::Allocation> larger, device_.Allocate(bytes));
    if (memory_ != nullptr) replaced_.push_back(std::move(memory_));
    memory_ = std::move(larger);
  }
  return memory_;
}

}  // namespace hir::host
