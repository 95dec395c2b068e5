// Fleet: the worker processes of one node, one per rank, as one mesh that lives and dies together.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/busy_wait.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/worker.pb.h"
#include "service/os/affinity.h"
#include "service/os/broadcast.h"
#include "service/os/channel.h"
#include "service/os/process.h"
#include "service/os/scratch_folder.h"
#include "service/os/wakeup.h"
#include "service/supervise/heartbeat.h"
#include "service/supervise/leaving.h"
#include "service/supervise/ranks.h"
#include "service/supervise/rendezvous_table.h"

namespace hir::service {

struct FleetOptions {
  int64_t num_ranks() const { return static_cast<int64_t>(devices.size()); }  // Here.

  std::string worker_path;
  std::vector<std::string> worker_args = {};
  std::vector<std::string> devices = {};  // One a rank: "cuda:2".
  int64_t threads_per_rank = 1;
  std::vector<Cores> cores = {};                                // What each rank is bound to; empty: none is.
  base::BusyWait::Mode busy_wait = base::BusyWait::Mode::kOff;  // Of the threads that wait here, and of the workers'.
  base::Nanos setup_timeout = std::chrono::seconds(10);  // From the start of the processes until all are connected.
  base::Nanos comm_timeout = std::chrono::seconds(30);   // Of one communication.
  // Starts what is at the other end of a rank's socket, in place of a process of worker_path: for tests. Null: that.
  std::function<Result<Process>(const base::Fd& inherited)> spawn = {};
  base::Nanos heartbeat = {};  // How often ranks at rest show that they live; 0: never.

  // Where these ranks are only some of a mesh: the number of the first, how many there are in all (0: these), and who
  // is told the keys of their rendezvous, on the thread of the fleet.
  struct Abroad {
    int64_t first_rank = 0;
    int64_t num_ranks = 0;
    std::vector<int64_t> absent = {};  // Of these the ones that are not there, ascending.
    std::vector<int64_t> nodes = {};   // The first of each node that is there, where they measure links.
    std::function<void(const std::string& key, const std::string& value)> published = {};
    std::function<void(const std::string& key)> wanted = {};  // Until Provide.
  };
  Abroad abroad = {};
};

class Fleet final : public Ranks {
 public:
  explicit Fleet(FleetOptions options);
  ~Fleet() override;

  int64_t size() const override { return options_.num_ranks(); }
  const base::Clock& clock() const override { return base::Clock::Steady(); }
  Status Start() override { return Start(generation_ + 1); }
  Status Start(int64_t generation);  // Its number, where others choose it.
  // A key that was wanted of ranks elsewhere. Only from what OnWait set, and between calls. Errors: a rank is gone.
  Status Provide(const std::string& key, const std::string& value);
  bool healthy() const override { return !workers_.empty(); }
  const Status& failure() const override { return failure_; }
  int64_t generation() const override { return generation_; }
  Status Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
              Waits waits) override;
  const std::vector<::hostir::v1::Measured>& measured() const override { return measured_; }
  [[nodiscard]] bool Post(const ::hostir::v1::Execute& execute) override;
  Status Await(TimeLimit timeout, std::string_view what, Waits waits) override;
  base::BusyWait& busy_wait() override { return busy_wait_; }
  bool TakePosted() override;
  void Look() override { broadcast_->Look(); }
  void StopLooking() override { broadcast_->StopLooking(); }
  void Pause() override;
  bool Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) override;
  void OnLate(Late late) override { late_ = std::move(late); }
  void OnWait(Waiting look) override { look_ = std::move(look); }
  void Nudge() override;
  void Interrupt(const Status& cause) override;
  Snapshot snapshot() const override;
  void OnHealth(std::function<void(bool healthy)> heard) override;

 private:
  struct Worker {
    Process process;
    std::unique_ptr<Channel> channel;
    int64_t awaited = 0;  // Replies.
    bool asked = false;   // It owes a Dumped: one that does not read is not sent more.
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
  Status Tell(int64_t rank, const std::string& key, const std::string& value);
  // Why `rank` no longer talks: how its process ended.
  Status Death(int64_t rank, std::string_view what);
  // The status of a process that has ended, or OK: looks for `timeout`.
  Status FindDead(std::string_view what, base::Nanos timeout);
  Status Stuck(std::string_view what, TimeLimit timeout);
  // Asks all ranks what they are at, and waits a moment for the answers, or for the end of the call; `where` says who
  // holds up whom. Errors: the failure of the mesh.
  Status Ask(std::string_view what, std::string& where);
  // Whether the ranks, at rest, show that they live. Errors: who does not, since when.
  Status Beat();
  // What a rank said of its communicator, when that is beyond use.
  Status Poisoned(std::string_view what);
  Status interrupt() const;
  // Whether there was a Nudge since the last time.
  bool TakeNudge();
  // What errors say of the time after them. A start that fails is its caller's to go on from.
  std::string_view Next() const { return starting_ ? "" : "; the mesh is being restarted"; }
  int64_t Awaited() const;
  bool UnderWay() const { return posted_ || Awaited() > 0; }
  // Kills the generation and keeps `cause`.
  Status Break(Status cause);
  int64_t NumberOf(size_t rank) const { return options_.abroad.first_rank + static_cast<int64_t>(rank); }
  std::string NameOf(size_t rank) const;
  void Publish();

  const FleetOptions options_;
  base::BusyWait busy_wait_;
  // Where UCX puts this generation's segments of shared memory, and leaves them when a worker is killed in between.
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
  RendezvousTable keys_;                          // Of this generation.
  std::vector<::hostir::v1::Dumped> dumped_;      // Answers while a stuck call is explained.
  int64_t calls_ = 0;                             // And what was posted.
  Heartbeat heartbeat_;
  int64_t heard_calls_ = 0;  // calls_ when the ranks had last something to do.
  Late late_;
  Waiting look_;

  Wakeup interrupted_;  // Or nudged.
  std::atomic<bool> nudged_ = false;
  mutable std::mutex mutex_;
  Snapshot snapshot_;      // Guarded by mutex_: the one below too.
  Status interrupt_ = {};  // Not OK once interrupted.
  std::function<void(bool)> on_health_;
};

}  // namespace hir::service
