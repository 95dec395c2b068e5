// Fleet: the worker processes of one node, one per rank, as one mesh that lives and dies together.
//
// A generation is one set of workers with the communicators between them. When one of its ranks dies, gets stuck or
// poisons its communicator, the whole generation is killed, and the next Start makes a new one.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/worker.pb.h"
#include "service/os/affinity.h"
#include "service/os/broadcast.h"
#include "service/os/channel.h"
#include "service/os/process.h"
#include "service/os/scratch_folder.h"
#include "service/os/wakeup.h"
#include "service/supervise/leaving.h"

namespace hir::service {

struct FleetOptions {
  int64_t num_ranks() const { return static_cast<int64_t>(devices.size()); }

  std::string worker_path;
  std::vector<std::string> worker_args = {};
  std::vector<std::string> devices = {};  // One a rank: "cuda:2".
  int64_t threads_per_rank = 1;
  std::vector<Cores> cores = {};  // What each rank is bound to; empty: none is.
  // Threads look a moment for what is to come before they sleep.
  bool busy_waits = false;
  base::Nanos setup_timeout = std::chrono::seconds(10);  // From the start of the processes until all are connected.
  base::Nanos comm_timeout = std::chrono::seconds(30);   // Of one communication.
};

// How long something may take, and the limit that says so: empty when the caller chose the time.
struct TimeLimit {
  base::Nanos time = {};
  std::string_view limit = {};
};

// A message to one rank, with the descriptors it names. Node, rank, generation and seq are filled in.
struct RankMessage {
  ::hostir::v1::ToWorker message = {};
  std::vector<int> fds = {};
};

// Threads: one owns it (and lives as long: workers die with the thread that started them); while that one sleeps in
// Watch, who holds its lock may Post, Look and TakePosted; snapshot() and Interrupt() from any.
class Fleet {
 public:
  explicit Fleet(FleetOptions options);
  ~Fleet();

  // Starts the next generation and returns when every rank is connected with every other. REQUIRES: !healthy().
  // Errors: kUnavailable, kDeadlineExceeded naming the rank; there is no worker then.
  Status Start();
  // Whether there is a generation to call.
  bool healthy() const { return !workers_.empty(); }
  // Why the latest generation ended; OK when none did.
  const Status& failure() const { return failure_; }

  // Sends messages[rank], in order, to every rank, and waits for all replies. `what` names it in errors: "run 7".
  // Errors: what a worker replied, with the generation going on; or, with healthy() false afterwards:
  //         kUnavailable       "rank 3 died (killed by signal 9) during run 7; the mesh is being restarted"
  //         kDeadlineExceeded  naming who is late, when it takes longer than `timeout`
  //         what poisoned the communicator; what it was interrupted with.
  // kEachOther: a rank that fails may leave others waiting for it, so they get a second to end.
  enum class Waits { kEachOther, kNobody };
  Status Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
              Waits waits = Waits::kEachOther);
  // What the ranks measured in the latest Call, by rank.
  const std::vector<::hostir::v1::Measured>& measured() const { return measured_; }
  // The two halves of a Call that gives all ranks the same to carry out, which nothing goes before. Post needs no
  // system call but one that wakes them; when it says no (it is too long for that) nothing was sent.
  // REQUIRES of Post: healthy(), no call in progress. Of Await: it said yes; the time is from then on.
  [[nodiscard]] bool Post(const ::hostir::v1::Execute& execute);
  Status Await(TimeLimit timeout, std::string_view what, Waits waits = Waits::kEachOther);
  // Whether all have carried out what was posted: then it is over, as after an Await that says OK. For a thread that
  // looks before the one that owns this wakes; it holds the lock of a Watch in progress. Between Look and StopLooking
  // nothing wakes that one when they have.
  bool TakePosted();
  void Look() { broadcast_->Look(); }
  void StopLooking() { broadcast_->StopLooking(); }
  bool busy_waits() const { return options_.busy_waits; }
  // Ends the call in progress, and every later one, with `cause`. Once.
  void Interrupt(const Status& cause);

  // Blocks until `wake_fd` is readable, or the mesh has failed (healthy() turns false), or all have carried out what
  // was posted meanwhile (or fail to), or `timeout`. `lock` is released while it sleeps. Whether `wake_fd` is readable.
  bool Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock);

  // What other threads may know.
  struct Snapshot {
    int64_t generation = 0;
    bool healthy = false;
    std::vector<int64_t> pids = {};
    std::string failure = {};
    std::vector<std::string> lingering = {};  // Killed workers of generations before that have not ended.
  };
  Snapshot snapshot() const;
  // `heard` is told at once, and again whenever it changes, whether the snapshot is healthy: on the thread that changes
  // it, under a lock, so that nothing here may be called. An empty one ends that; it returns when no call is under way.
  void OnHealth(std::function<void(bool healthy)> heard);
  int64_t generation() const { return generation_; }

 private:
  struct Worker {
    Process process;
    std::unique_ptr<Channel> channel;
    int64_t awaited = 0;           // Replies.
    std::set<std::string> wanted;  // Rendezvous keys it waits for.
  };
  struct Failure {  // A reply that is an error.
    Status status;
    bool poisoned = false;
  };

  Status Spawn(int64_t rank);
  Status Send(int64_t rank, RankMessage& message);
  // Waits until something arrives, a process ends, `wake_fd` is readable or it is `deadline`, and handles what there
  // is; the failure of the mesh is returned. kLast: what arrives does not wake it, but from the last rank whose reply
  // is awaited.
  enum class Wakes { kAny, kLast };
  Status Pump(base::Nanos deadline, std::string_view what, int wake_fd, Wakes wakes = Wakes::kAny);
  // What Pump sleeps on, in this order: socket and process of every rank, the answers to what was posted, `wake_fd`.
  std::vector<pollfd> Descriptors(int wake_fd, Wakes wakes) const;
  Status HandleReady(std::span<const pollfd> fds, std::string_view what, Wakes wakes);
  // When all ranks have answered what was posted.
  Status TakeAnswers();
  Status Receive(int64_t rank);
  Status Handle(int64_t rank, ::hostir::v1::FromWorker& message);
  Status Rendezvous(int64_t rank, const std::string& key);
  // Why `rank` no longer talks: how its process ended.
  Status Death(int64_t rank, std::string_view what);
  // The status of a process that has ended, or OK: looks for `timeout`.
  Status FindDead(std::string_view what, base::Nanos timeout);
  Status Stuck(std::string_view what, TimeLimit timeout);
  // What a rank said of its communicator, when that is beyond use.
  Status Poisoned(std::string_view what);
  Status interrupt() const;
  // What errors say of the time after them. A start that fails is its caller's to go on from.
  std::string_view Next() const { return starting_ ? "" : "; the mesh is being restarted"; }
  int64_t Awaited() const;
  bool UnderWay() const { return posted_ || Awaited() > 0; }
  // Kills the generation and keeps `cause`.
  Status Break(Status cause);
  std::string NameOf(size_t rank) const;
  void Publish();

  const FleetOptions options_;
  // Of this generation: where UCX puts segments of shared memory, and leaves them when a worker is killed in between.
  std::optional<ScratchFolder> segments_;     // Before its workers: it goes after them.
  Leaving leaving_;                           // Of generations before.
  std::vector<Worker> workers_;               // By rank; empty between generations.
  std::optional<BroadcastSender> broadcast_;  // To them.
  bool posted_ = false;                       // Their replies are awaited there, not by their sockets.
  int64_t generation_ = 0;
  bool starting_ = false;
  int64_t seq_ = 0;
  Status failure_;
  base::Nanos began_ = {};                        // The call in progress.
  Failure first_error_;                           // Of it.
  base::Nanos failed_at_ = {};                    // When it came.
  std::vector<::hostir::v1::Measured> measured_;  // In the latest Call.
  std::map<std::string, std::string> keys_;       // The rendezvous of this generation.
  std::vector<::hostir::v1::Dumped> dumped_;      // Answers while a stuck call is explained.

  Wakeup interrupted_;
  mutable std::mutex mutex_;
  Snapshot snapshot_;      // Guarded by mutex_: the one below too.
  Status interrupt_ = {};  // Not OK once interrupted.
  std::function<void(bool)> on_health_;
};

}  // namespace hir::service
