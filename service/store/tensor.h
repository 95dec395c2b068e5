// Tensor: shards, in memory that the daemon owns and workers map, or in the memory of devices; and whether their
// contents are there yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "service/os/shared_memory.h"
#include "service/store/budget.h"
#include "service/store/spec.h"

namespace hir::service {

// Ids of shards whose memory is gone from the store, for the workers to unmap. Thread-safe.
class ReleasedShards {
 public:
  // `notify` runs after each Add, on any thread; it must not block.
  explicit ReleasedShards(std::function<void()> notify) : notify_(std::move(notify)) {}
  void Add(std::vector<int64_t> ids);
  std::vector<int64_t> Take();
  // All that goes from here on is not said to workers: another daemon goes on with it.
  void End();

 private:
  const std::function<void()> notify_;
  std::mutex mutex_;
  std::vector<int64_t> ids_;  // Guarded by mutex_, as is the one below.
  bool ended_ = false;
};

// The bytes of a tensor's shards in memory that the daemon owns; all that there are, or a copy.
struct HostShards {
  std::vector<SharedMemory> memory;  // In mesh order; a shard that nobody asked for is empty.
  Charge staging;                    // What a copy counts as; grows while an upload arrives.

  std::vector<std::byte*> Addresses() const;
};

class LentPlace;  // service/store/lent_memory.h

// The memory of a tensor. Thread-safe, but for the bytes, which the sequence of runs orders.
class ShardSet {
 public:
  struct Shard {
    int64_t device = 0;
    int64_t id = 0;  // Unique in the daemon; never 0.
    int64_t bytes = 0;
    int64_t within = 0;  // Not 0: the memory is part of this shard's,
    int64_t offset = 0;  // from this byte on.
  };
  // `host` null: only devices have it. `recycle`, when there is one, gets what a set leaves behind that nobody reads
  // any more, instead of `released`.
  using Recycle = std::function<void(std::vector<Shard>, std::shared_ptr<HostShards>)>;
  ShardSet(std::vector<Shard> shards, std::shared_ptr<HostShards> host, std::shared_ptr<ReleasedShards> released,
           Recycle recycle = {})
      : shards_(std::move(shards)),
        released_(std::move(released)),
        recycle_(std::move(recycle)),
        host_(std::move(host)) {}
  ~ShardSet();

  const std::vector<Shard>& shards() const { return shards_; }  // In mesh order.

  // Null when only devices have it.
  std::shared_ptr<HostShards> host() const;
  // The devices have it now. Who reads it from host() goes on.
  void DropHost();

  std::string made_in;  // The session that may write there; empty: none may.
  // Another session has descriptors of the memory: no later tensor gets it.
  std::atomic<bool> is_seen_by_others = false;
  bool is_lent = false;                   // The memory is a client's, which has lent it.
  std::shared_ptr<const LentPlace> lent;  // Where the memory is part of such.
  Charge charge;                          // Bytes; grows while an upload arrives, by its one owner.
  std::vector<Charge> node_charges;       // All of them, of each node.

 private:
  const std::vector<Shard> shards_;
  const std::shared_ptr<ReleasedShards> released_;
  const Recycle recycle_;
  mutable std::mutex mutex_;
  std::shared_ptr<HostShards> host_;  // Guarded by mutex_.
};

enum class TensorState { kPending, kReady, kPoisoned, kLost };

// Whether a tensor's contents are there; apart from its memory, so that who makes them lets go of that before anybody
// hears of it. Thread-safe.
class Readiness {
 public:
  explicit Readiness(TensorState state) : state_(state) {}

  // The state, and when poisoned or lost why.
  struct Condition {
    TensorState state = TensorState::kPending;
    Status error = {};
  };
  Condition condition() const;
  // Ready when `outcome` is OK, else poisoned with it. REQUIRES: pending.
  void Settle(const Status& outcome);
  // The only memory is gone. Changes nothing unless it is ready.
  void Lose(const Status& cause);
  // Calls `then` once, when it is not pending: at once, or in Settle, on its thread. It may be what holds the tensor.
  // The number that Forget takes; 0: it has been called.
  int64_t WhenSettled(std::function<void()> then);
  // Destroys what WhenSettled gave this number to, uncalled; nothing once Settle has begun to call.
  void Forget(int64_t number);

 private:
  mutable std::mutex mutex_;
  TensorState state_;  // Guarded by mutex_: all below.
  Status error_;
  std::map<int64_t, std::function<void()>> waiting_;
  int64_t last_number_ = 0;
};

// What one call waits for. Thread-safe.
class Subscriptions {
 public:
  Subscriptions() = default;
  Subscriptions(const Subscriptions&) = delete;
  Subscriptions& operator=(const Subscriptions&) = delete;
  ~Subscriptions() { End(); }

  // As of Readiness; after End `then` is destroyed uncalled.
  void WhenSettled(const std::shared_ptr<Readiness>& readiness, std::function<void()> then);
  // Destroys whatever waits, uncalled: who has gone holds no tensor. What another thread calls just now runs on.
  void End();

 private:
  std::mutex mutex_;
  bool ended_ = false;  // Guarded by mutex_: waiting_ too.
  std::vector<std::pair<std::shared_ptr<Readiness>, int64_t>> waiting_;
};

// Thread-safe.
class Tensor {
 public:
  Tensor(TensorSpec spec, std::shared_ptr<ShardSet> shards, TensorState state)
      : Tensor(std::make_shared<const TensorSpec>(std::move(spec)), std::move(shards), state) {}
  Tensor(std::shared_ptr<const TensorSpec> spec, std::shared_ptr<ShardSet> shards, TensorState state)
      : spec_(std::move(spec)), shards_(std::move(shards)), readiness_(std::make_shared<Readiness>(state)) {}

  const TensorSpec& spec() const { return *spec_; }
  const std::shared_ptr<const TensorSpec>& shared_spec() const { return spec_; }
  ShardSet& shards() const { return *shards_; }
  // For another tensor in the same memory.
  const std::shared_ptr<ShardSet>& shared_shards() const { return shards_; }
  int64_t stored_bytes() const { return ShardBytes(*spec_) * spec_->sharding.mesh.num_devices(); }
  const std::shared_ptr<Readiness>& readiness() const { return readiness_; }
  Readiness::Condition condition() const { return readiness_->condition(); }

 private:
  const std::shared_ptr<const TensorSpec> spec_;
  const std::shared_ptr<ShardSet> shards_;
  const std::shared_ptr<Readiness> readiness_;
};

}  // namespace hir::service
