// LentMemory: memory of a device that a client has lent, in which later tensors of its session lie; both see them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "csrc/base/free_ranges.h"
#include "service/store/tensor.h"

namespace hir::service {

// Thread-safe. Owned by shared pointers.
class LentMemory : public std::enable_shared_from_this<LentMemory> {
 public:
  // REQUIRES: `tensor`, whose memory it is, is one shard.
  explicit LentMemory(std::shared_ptr<Tensor> tensor);

  const Tensor& tensor() const { return *tensor_; }
  int64_t device() const { return shard().device; }

  // A place for `bytes`; null: there is none, or the memory is lost. REQUIRES: bytes > 0.
  std::shared_ptr<const LentPlace> Take(int64_t bytes);

 private:
  friend class LentPlace;
  const ShardSet::Shard& shard() const { return tensor_->shards().shards().front(); }

  const std::shared_ptr<Tensor> tensor_;
  std::mutex mutex_;
  base::FreeRanges free_;  // Guarded by mutex_.
};

// Is free again with its end; keeps the memory.
class LentPlace {
 public:
  LentPlace(std::shared_ptr<LentMemory> memory, int64_t offset, int64_t bytes)
      : memory_(std::move(memory)), offset_(offset), bytes_(bytes) {}
  LentPlace(const LentPlace&) = delete;
  LentPlace& operator=(const LentPlace&) = delete;
  ~LentPlace();

  int64_t shard() const { return memory_->shard().id; }
  // The memory's own: lost where a process of the device's has died since.
  Readiness::Condition condition() const { return memory_->tensor().condition(); }
  int64_t offset() const { return offset_; }

 private:
  const std::shared_ptr<LentMemory> memory_;
  const int64_t offset_, bytes_;
};

}  // namespace hir::service
