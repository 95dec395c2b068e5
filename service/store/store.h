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
#include <vector>

#include "csrc/base/status.h"
#include "service/store/tensor.h"

namespace hir::service {

struct StoreOptions {
  int64_t num_devices = 1;
  int64_t tensor_bytes_max = int64_t{1} << 30;
  int64_t tensors_max = 65536;
  int64_t sessions_max = 256;
};

// Thread-safe.
class TensorStore {
 public:
  TensorStore(StoreOptions options, std::shared_ptr<ReleasedShards> released);

  Result<std::string> OpenSession();
  // Frees its handles. A tensor lives on while a run still uses it.
  void CloseSession(std::string_view session);
  Status CheckSession(std::string_view session) const;

  // Zeroed memory for `spec`. With `charged`, all its bytes count from now on; else what the owner of the tensor's
  // charge adds to it.
  // Errors: kInvalidArgument  CheckSpec; kResourceExhausted  a limit, or the machine has no more.
  Result<std::shared_ptr<ShardSet>> Allocate(const TensorSpec& spec, bool charged);

  // A new random handle of `session`.
  Result<std::string> AddHandle(std::string_view session, std::shared_ptr<Tensor> tensor);
  // Errors: kNotFound            no such handle in this session;
  //         kFailedPrecondition  it was freed; or there is no such session.
  Result<std::shared_ptr<Tensor>> Find(std::string_view session, std::string_view handle) const;
  // All or none.
  Status Free(std::string_view session, std::span<const std::string> handles);

  int64_t num_tensors() const;
  int64_t num_sessions() const;
  int64_t tensor_bytes() const { return bytes_.used(); }

 private:
  struct Session {
    std::unordered_map<std::string, std::shared_ptr<Tensor>> tensors;
    std::deque<std::string> freed;  // The latest, so that errors can tell freed from unknown.
  };
  Result<const Session*> FindSession(std::string_view session) const;
  static Result<std::shared_ptr<Tensor>> FindIn(const Session& session, std::string_view handle);

  const StoreOptions options_;
  const std::shared_ptr<ReleasedShards> released_;
  Budget bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, Session, std::less<>> sessions_;  // Guarded by mutex_: the ones below too.
  std::unordered_map<const Tensor*, int64_t> handles_;
  int64_t num_handles_ = 0;
  int64_t next_shard_ = 1;
};

// 128 random bits as text.
std::string RandomId();

}  // namespace hir::service
