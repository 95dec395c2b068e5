// TensorStore: sessions, their handles, and the tensors behind them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "service/store/journal.h"
#include "service/store/lent_memory.h"
#include "service/store/shard_pool.h"
#include "service/store/tensor.h"

namespace hir::service {

// A node of a cluster, whose devices are numbered through.
struct StoreNode {
  std::string name = {};
  int64_t num_devices = 0;
  int64_t bytes_max = 0;  // That tensors may take there.
};

struct StoreOptions {
  int64_t num_devices = 1;
  int64_t tensor_bytes_max = int64_t{1} << 30;
  int64_t tensors_max = 65536;
  int64_t sessions_max = 256;
  // The share of each principal.
  int64_t principal_bytes_max = int64_t{1} << 62;
  int64_t principal_tensors_max = int64_t{1} << 62;
  int64_t principal_sessions_max = int64_t{1} << 62;
  // Devices have memory of their own: what is here of a tensor is on its way, and counts as staging.
  bool on_devices = false;
  int64_t staging_bytes_max = int64_t{1} << 30;
  int64_t recycled_bytes_max = int64_t{1} << 28;
  std::shared_ptr<Journal> journal = {};  // Null: nobody comes later.
  int64_t first_shard = 1;
  std::vector<StoreNode> nodes = {};  // None: all devices are here.
};

// Thread-safe.
class TensorStore {
 public:
  TensorStore(StoreOptions options, std::shared_ptr<ReleasedShards> released);

  // `principal`: whose it is; of many sessions. `lease_ms`: for the journal.
  Result<std::string> OpenSession(std::string principal = {}, int64_t lease_ms = 0);
  // Before anything else. All that it takes over, and may read, each tensor once; a session, handle or name that no
  // limit leaves room for is dropped.
  std::vector<std::shared_ptr<Tensor>> Inherit(const Inheritance& inheritance);
  // All that happens from now on is the end of this daemon alone: where there is a journal, nothing is released.
  void EndJournal();
  std::string PrincipalOf(std::string_view session) const;  // Empty: there is no such session.
  // Frees its handles. A tensor lives on while a run still uses it.
  void CloseSession(std::string_view session);
  Status CheckSession(std::string_view session) const;

  enum class Use { kUpload, kOutput, kLent };
  // Memory for `spec`: of uploads zeroed; of outputs that are written on devices with memory of their own none here,
  // but perhaps a place in what `session` has lent; of others perhaps what it freed before, with the bytes that were
  // there. Lent memory is the client's. The bytes of outputs, and of what is lent, count from now on, but in lent
  // memory; those of uploads as the owner of the charges adds to them, who then calls MakeRoom.
  // Errors: kInvalidArgument  CheckSpec; kResourceExhausted  a limit, or the machine has no more.
  Result<std::shared_ptr<ShardSet>> Allocate(std::string_view session, const TensorSpec& spec, Use use);
  // Whether a tensor of `spec` can be lent memory. Errors: kFailedPrecondition.
  Status CheckLends(const TensorSpec& spec) const;
  // From now on outputs of `session` may lie in the memory of `tensor`, until it frees a handle of that.
  // Errors: kFailedPrecondition: there is no such session. REQUIRES: allocated as kLent.
  Status Lend(std::string_view session, std::shared_ptr<Tensor> tensor);
  // Gives up recycled memory until tensors and it are within tensor_bytes_max.
  void MakeRoom() { pool_->Trim(options_.tensor_bytes_max - bytes_.used()); }
  // Zeroed memory for a copy of the shards at `positions` (in mesh order) of a tensor that only devices have.
  // Errors: kResourceExhausted naming staging_bytes_max.
  Result<std::shared_ptr<HostShards>> AllocateCopy(const ShardSet& shards, std::span<const size_t> positions);

  // A new random handle of `session`.
  Result<std::string> AddHandle(std::string_view session, std::shared_ptr<Tensor> tensor);
  // Errors: kNotFound            no such handle in this session;
  //         kFailedPrecondition  it was freed; or there is no such session.
  Result<std::shared_ptr<Tensor>> Find(std::string_view session, std::string_view handle) const;
  // All or none; or, `those_there`, whichever the session has. What they stood for is the caller's to let go of, which
  // takes time where it is much.
  using Freed = std::vector<std::shared_ptr<Tensor>>;
  Result<Freed> Free(std::string_view session, std::span<const std::string> handles, bool those_there = false);

  // From now on `handle` stands for `made`, which is in the memory of `old`, for which it stood. False, and nothing
  // changes, where anything else may still read that: a handle, a name, a run, a download, another process; or where a
  // later daemon would go on with it. REQUIRES: the caller has one pointer to `old`.
  bool Replace(std::string_view session, std::string_view handle, const std::shared_ptr<Tensor>& old,
               std::shared_ptr<Tensor> made);
  // Takes that back, for a run that was refused. REQUIRES: the handle is gone, or stands for what Replace made it.
  void PutBack(std::string_view session, std::string_view handle, std::shared_ptr<Tensor> old);

  // What has a name, and counts as one more handle of the principal.
  struct Published {
    std::shared_ptr<Tensor> tensor = {};              // Or, null,
    std::shared_ptr<const std::string> program = {};  // a text, whose bytes are the principal's.
  };
  // Gives what `handle` stands for, or a program, a name that outlives the session; what had the name loses it.
  // `everyone`: other principals may read it, too.
  // Errors: those of Find; kInvalidArgument: the name; kResourceExhausted naming a limit.
  Status Publish(std::string_view session, std::string_view handle, const std::string& name, bool everyone);
  Status PublishProgram(std::string_view session, std::string text, const std::string& name, bool everyone);
  // What `owner`, or, empty, the session's principal, named so. Errors: kNotFound: nothing that it may read.
  Result<Published> FindNamed(std::string_view session, std::string_view owner, std::string_view name) const;
  // Errors: kNotFound: the session's principal has no such name.
  Status Withdraw(std::string_view session, std::string_view name);
  struct Named {
    std::string owner;
    std::string name;
    bool everyone = false;
    Published published;
  };
  // Those that the session may read, by owner and name.
  Result<std::vector<Named>> Names(std::string_view session) const;

  bool on_devices() const { return options_.on_devices; }
  int64_t num_tensors() const;
  int64_t num_sessions() const;
  int64_t tensor_bytes() const { return bytes_.used(); }
  int64_t recycled_bytes() const { return pool_->bytes(); }
  int64_t staging_bytes() const { return staging_.used(); }
  std::map<std::string, int64_t> sessions_by_principal() const;

 private:
  struct Principal {
    explicit Principal(const StoreOptions& options, Budget& all)
        : bytes("principal_bytes_max", "bytes of this user's tensors", options.principal_bytes_max, &all) {}
    Budget bytes;
    int64_t num_sessions = 0;
    int64_t num_handles = 0;
  };
  struct Session {
    std::string principal;
    Principal* quota = nullptr;
    std::unordered_map<std::string, std::shared_ptr<Tensor>> tensors;
    std::deque<std::string> freed;  // The latest, so that errors can tell freed from unknown.
    std::vector<std::shared_ptr<LentMemory>> lent = {};
  };
  Result<const Session*> FindSession(std::string_view session) const;
  // Counts one more handle or name, of `tensor` unless that is null, or one less. Errors: kResourceExhausted naming a
  // limit.
  Status Count(Principal& quota, const Tensor* tensor);
  void Uncount(Principal& quota, const Tensor* tensor);
  // REQUIRES: the lock is held. What had the name comes back in `published`.
  struct Name {
    Published published;
    Charge charge;  // Of a program.
    bool everyone = false;
  };
  Status SetName(const std::string& owner, Principal& quota, const std::string& name, Name& given);
  static Result<std::shared_ptr<Tensor>> FindIn(const Session& session, std::string_view handle);
  // Charges each node for shards of `bytes` on these devices. Errors: kResourceExhausted naming the node.
  Result<std::vector<Charge>> ChargeNodes(std::span<const int64_t> devices, int64_t bytes);
  Status AddSession(std::string id, std::string principal);
  Status Insert(Session& session, const std::string& handle, std::shared_ptr<Tensor> tensor);
  // A place in what the session has lent; null: there is none.
  Result<std::shared_ptr<ShardSet>> AllocateInLent(std::string_view session, const mesh::DeviceMesh& mesh,
                                                   int64_t bytes);
  // A descriptor and `bytes` for each of `count` shards.
  Result<std::shared_ptr<HostShards>> Create(size_t count, int64_t bytes);

  const StoreOptions options_;
  const std::shared_ptr<ReleasedShards> released_;
  const std::shared_ptr<ShardPool> pool_;
  Budget bytes_;
  Budget staging_;
  std::vector<std::unique_ptr<Budget>> of_nodes_;
  std::vector<size_t> node_of_;  // By device.
  mutable std::mutex mutex_;
  std::shared_ptr<Journal> journal_;  // Guarded by mutex_, as all below; null: nobody is told.
  // By name; as long as the store, since charges refer to them. Guarded by mutex_: the ones below too.
  std::map<std::string, std::unique_ptr<Principal>> principals_;
  std::map<std::string, Session, std::less<>> sessions_;
  std::map<std::pair<std::string, std::string>, Name> named_;  // By owner and name.
  std::unordered_map<const Tensor*, int64_t> handles_;
  int64_t num_handles_ = 0;
  int64_t next_shard_;
};

// 128 random bits as text.
std::string RandomId();

}  // namespace hir::service
