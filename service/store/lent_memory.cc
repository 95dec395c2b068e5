#include "service/store/lent_memory.h"

#include <utility>

#include "csrc/base/checked.h"

namespace hir::service {
namespace {

constexpr int64_t kGrain = 512;  // Bytes: as far apart as allocations of a device are.

int64_t Rounded(int64_t bytes) { return base::CeilDiv(bytes, kGrain) * kGrain; }

}  // namespace

LentMemory::LentMemory(std::shared_ptr<Tensor> tensor) : tensor_(std::move(tensor)) {
  HIR_CHECK(tensor_->shards().shards().size() == 1);
  if (const int64_t bytes = shard().bytes / kGrain * kGrain; bytes > 0) free_.Add(0, bytes);
}

std::shared_ptr<const LentPlace> LentMemory::Take(int64_t bytes) {
  if (tensor_->condition().state != TensorState::kReady) return nullptr;
  const int64_t rounded = Rounded(bytes);
  const std::scoped_lock lock(mutex_);
  const std::optional<int64_t> offset = free_.Take(rounded);
  if (!offset.has_value()) return nullptr;
  return std::make_shared<LentPlace>(shared_from_this(), *offset, rounded);
}

LentPlace::~LentPlace() {
  const std::scoped_lock lock(memory_->mutex_);
  memory_->free_.Add(offset_, bytes_);
}

}  // namespace hir::service
