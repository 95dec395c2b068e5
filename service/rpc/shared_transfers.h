// SharedTransfers: tensors on their way in memory that the daemon and a client on the same host both have. The client
// knows a transfer by its token; whoever sends that to the daemon's Unix socket, as the user whose session it is, gets
// the descriptors, or, where the memory is the client's, of devices, brings them.
#pragma once

#include <grpcpp/alarm.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "service/engine/node_transfer.h"
#include "service/engine/transfer.h"

namespace hir::service {

// Descriptors of one transfer: one message carries them, and the kernel puts no more into one (SCM_MAX_FD).
inline constexpr size_t kSharedPartsMax = 253;

// Thread-safe.
class SharedTransfers {
 public:
  // A transfer that is not taken within `idle`, and the time that its bytes may take, ends, on a thread of `pool`,
  // which outlives it.
  SharedTransfers(base::Nanos idle, base::WorkPool& pool) : idle_(idle), pool_(pool) {}
  ~SharedTransfers();

  // The token of `transfer`, for `session` of `principal`. Errors: kFailedPrecondition: it has too many parts.
  Result<std::string> Add(std::string session, std::string principal, std::unique_ptr<Upload> transfer);
  Result<std::string> Add(std::string session, std::string principal, std::unique_ptr<Download> transfer);
  Result<std::string> Add(std::string session, std::string principal, std::unique_ptr<DeviceTransfer> transfer);
  Result<std::string> Add(std::string session, std::string principal, std::unique_ptr<NodeTransfer> transfer);

  // Sends the descriptors of `token` through `socket`, if it is `principal`'s and nobody has them yet; or takes those
  // that came with it, and sends a byte. Who gets nothing sees the connection end. Never blocks.
  void Exchange(base::Fd socket, std::string_view token, std::vector<base::Fd> brought, std::string_view principal);

  // One that a client commits. Errors: kNotFound: there is none, or no longer; kInvalidArgument: one that it reads.
  using Committed =
      std::variant<std::unique_ptr<Upload>, std::unique_ptr<DeviceTransfer>, std::unique_ptr<NodeTransfer>>;
  Result<Committed> Take(std::string_view session, std::string_view token);
  // The transfer that it was between a client and nodes; else null. Errors: kNotFound.
  Result<std::unique_ptr<NodeTransfer>> Release(std::string_view session, std::string_view token);
  void EndSession(std::string_view session);

 private:
  struct Transfer {
    std::string session;
    std::string principal;
    std::unique_ptr<Upload> upload = nullptr;  // One of the four.
    std::unique_ptr<Download> download = nullptr;
    std::unique_ptr<DeviceTransfer> devices = nullptr;
    std::unique_ptr<NodeTransfer> nodes = nullptr;
    bool is_none() const { return upload == nullptr && download == nullptr && devices == nullptr && nodes == nullptr; }
    bool given = false;
    std::unique_ptr<grpc::Alarm> alarm = nullptr;
  };
  // Alarms that go off late find it gone.
  struct State {
    std::mutex mutex;
    std::map<std::string, Transfer, std::less<>> transfers;  // By token. Guarded by mutex, as the next.
    bool over = false;
  };
  Result<std::string> Add(Transfer transfer, const std::vector<SharedPart>& parts);
  Result<std::string> Add(Transfer transfer, base::Nanos time);
  static Transfer Take(State& state, std::string_view token);
  Result<Transfer> TakeOf(std::string_view session, std::string_view token);

  const base::Nanos idle_;
  base::WorkPool& pool_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace hir::service
