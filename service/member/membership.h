// Membership: this node's place in a cluster that etcd knows: registered, and perhaps its head. A thread keeps it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/status.h"
#include "service/etcd/grpc_kv.h"
#include "service/member/election.h"
#include "service/os/wakeup.h"

namespace hir::service {

// Threads: any.
class Membership {
 public:
  struct Options {
    ElectionOptions election = {};
    // Whether this node hears a head: while it does, whatever became of that one's lease, none is needed.
    std::function<bool()> hears_head = {};
    // Told of terms: orders of earlier ones are over.
    std::function<void(int64_t)> on_term = {};
  };
  Membership(Options options, std::unique_ptr<GrpcKv> kv);
  // Leaves, so that another head is elected at once, if etcd is there.
  ~Membership();

  // Waits until this node has a number. `waiting` is told now and then why it has none.
  // Errors: kFailedPrecondition: the cluster does not want it; `interrupt_fd` got readable: kCancelled.
  using Waiting = std::function<void(const std::string& why)>;
  Status WaitRegistered(int interrupt_fd, const Waiting& waiting);

  // From now on it may be elected; after a headship too.
  void Stand();
  // Readable after a change of the view, until then read by it.
  int fd() const { return changed_.fd(); }
  Election::View view();
  // A later head has been elected, as a node said: etcd may not be there to ask.
  void Deposed();
  // Written by the head, as soon as etcd is there; nothing: erased.
  void Keep(const std::string& key, std::optional<std::string> value);
  // Calls `done`, on the thread of this, when etcd has what was to be kept before; where it is away for long, without.
  // Errors: kUnavailable: this node heads no longer.
  void WhenWritten(std::function<void(const Status&)> done);

 private:
  struct Asked {
    std::function<void(const Status&)> done;
    base::Nanos until = {};  // Without etcd no longer.
  };
  void Loop();
  // Those of `asked` that are over are told, after a look that ended with `status`.
  void Answer(std::vector<Asked>& asked, const Status& status);

  const Options options_;
  std::mutex mutex_;  // Before what watches, as the next two.
  std::condition_variable wanted_;
  bool look_ = false;  // Guarded by mutex_: all below but for election_.
  const std::unique_ptr<GrpcKv> kv_;
  Election election_;  // The thread's own.
  Election::View view_;
  Status error_;  // Of the latest look.
  bool is_registered_ = false;
  bool stands_ = false;
  bool yielded_ = false;
  bool deposed_ = false;
  bool stopping_ = false;
  std::map<std::string, std::optional<std::string>> unwritten_;
  std::vector<Asked> asked_;
  Wakeup changed_;
  std::thread thread_;
};

}  // namespace hir::service
