// KeptShards: the memory of the shards that a node keeps: by their ids, for longer than its ranks live.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "service/os/shared_memory.h"

namespace hir::service {

// Thread-safe, but for the bytes, which the order of runs orders.
class KeptShards {
 public:
  explicit KeptShards(int64_t bytes_max) : bytes_max_(bytes_max) {}

  using Memory = std::shared_ptr<const SharedMemory>;
  // The memory of shard `id`, of `bytes`, for an order; zeroed where it is new.
  // Errors: kResourceExhausted: the node is full; kInternal: it has another size.
  Result<Memory> Get(int64_t id, int64_t bytes);
  // The same for a client, of a new one. It takes no room from orders, for which the head has charged others: what was
  // freed is here until an order says so, and so the node may hold more than its limit for a moment.
  Result<Memory> GetForClient(int64_t id, int64_t bytes);
  // Null: it is not kept.
  Memory Find(int64_t id) const;
  // Some of its bytes, behind those before; the first make it.
  // Errors: those of Get; kInvalidArgument: they do not lie in it, or others are missing before them.
  Status Write(int64_t id, int64_t total, int64_t offset, std::string_view data);
  // Whether all of its bytes have come.
  bool HasArrived(int64_t id) const;
  // Gives them up; those that are not kept are ignored.
  void Drop(std::span<const int64_t> ids);

  // Whether all bytes of shards are those that somebody made: not while a run writes them, or some are to arrive. Those
  // that are not kept are ignored.
  void SetWhole(std::span<const int64_t> ids, bool whole);
  std::vector<int64_t> Whole() const;  // In order.
  // Gives up those that are not.
  void DropHalves();

  int64_t bytes() const;

 private:
  Result<Memory> Make(int64_t id, int64_t bytes, int64_t used);  // REQUIRES: the lock is held.

  const int64_t bytes_max_;
  mutable std::mutex mutex_;
  std::map<int64_t, Memory> memory_;    // Guarded by mutex_.
  std::set<int64_t> whole_;             // The same, as those below.
  std::map<int64_t, int64_t> arrived_;  // Bytes, of those that were written.
  std::set<int64_t> for_clients_;       // That no order has asked for.
  int64_t bytes_ = 0;
  int64_t bytes_for_clients_ = 0;
};

}  // namespace hir::service
