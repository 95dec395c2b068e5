// UcxWorker: one UCX context and worker with an endpoint per peer, in our types.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

namespace hir::comm {

// A message that is under way. Owned by whoever posted it; stays put until it is told.
class UcxRequest {
 public:
  virtual ~UcxRequest() = default;
  // Called once, inside Progress, or Send or Recv when it was done at once. kCancelled after
  // Cancel.
  virtual void Over(Status status) = 0;

  void* handle = nullptr;  // UCX's, while it is pending.
  int64_t bytes = 0;       // Of a receive: as many must come.
};

// One thread at a time.
class UcxWorker {
 public:
  // transports: UCX's list; the environment's UCX_TLS comes first.
  static Result<std::unique_ptr<UcxWorker>> Create(const std::string& transports);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  Result<std::string> Address() const;  // What a peer Connects with.
  Status Connect(int64_t peer, std::string_view address);

  void Send(int64_t peer, uint64_t tag, const std::byte* data, int64_t bytes, UcxRequest& request);
  void Recv(uint64_t tag, std::byte* data, int64_t bytes, UcxRequest& request);
  void Cancel(UcxRequest& request);
  // Wakes `peer`, if it has armed its worker and sleeps. Nothing else comes of it, nor when it is lost.
  void Ring(int64_t peer);

  bool Progress() { return ucp_worker_progress(worker_) != 0; }  // Whether anything happened.
  // True when nothing is waiting to be progressed; then fd() becomes readable when something is.
  bool Arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  int fd() const { return fd_; }

  // Gives everything that was sent to the peers, and says goodbye to them; at most `timeout`.
  void Close(base::Nanos timeout);

 private:
  UcxWorker() = default;
  void Await(ucs_status_ptr_t request, base::Nanos deadline);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int fd_ = -1;
  std::vector<ucp_ep_h> endpoints_;  // By peer; null: not connected.
};

}  // namespace hir::comm
