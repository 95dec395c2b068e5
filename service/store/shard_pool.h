// ShardPool: memory of outputs that were freed, mapped by the workers still, for the next outputs of their size. Fresh
// memory costs a page fault and a zeroed page for every 4 KiB, in whoever touches it first: for a large output more
// than its computation.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "service/store/tensor.h"

namespace hir::service {

// What a session freed, that session alone gets again: the bytes are still there. Thread-safe.
class ShardPool {
 public:
  // Those of all sessions: each shard has a descriptor. A step of training frees four tensors a parameter.
  static constexpr int64_t kTensorsMax = 2048;

  // What is given up goes to `released`.
  ShardPool(int64_t bytes_max, std::shared_ptr<ReleasedShards> released)
      : bytes_max_(bytes_max), released_(std::move(released)) {}

  struct Kept {
    std::vector<ShardSet::Shard> shards;
    std::shared_ptr<HostShards> host;
  };
  // From Open to Close something is kept for `session`; Close gives it up.
  void Open(std::string_view session);
  void Close(std::string_view session);

  // Keeps what nobody else uses, or gives it up: the session has ended, or it does not fit. Who was kept for longest
  // goes first.
  void Keep(std::string_view session, Kept kept);
  // The latest that `session` freed with shards of `bytes` on `devices`, in their order, if any.
  std::optional<Kept> Take(std::string_view session, std::span<const int64_t> devices, int64_t bytes);
  // Gives up what was kept for longest until at most `bytes` are kept.
  void Trim(int64_t bytes);

  int64_t bytes() const;  // In whole pages.

 private:
  struct Entry {
    std::string session;
    Kept kept;
    int64_t bytes = 0;
  };
  static int64_t BytesOf(const Kept& kept);
  // Moves an entry to `given_up`. REQUIRES: mutex_ is held.
  void Remove(std::list<Entry>::iterator entry, std::list<Entry>& given_up);
  void TrimLocked(int64_t bytes, std::list<Entry>& given_up);
  void GiveUp(std::list<Entry> entries);

  const int64_t bytes_max_;
  const std::shared_ptr<ReleasedShards> released_;
  mutable std::mutex mutex_;
  std::set<std::string, std::less<>> open_;  // Guarded by mutex_: the ones below too.
  std::list<Entry> entries_;                 // The latest kept first.
  int64_t bytes_ = 0;
};

}  // namespace hir::service
