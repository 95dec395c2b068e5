// Ranks: the seam between the order of runs and who carries them out, as one mesh that lives and dies together: the
// processes of this node (fleet.h), or ranks simulated on a clock of their own.
//
// A generation is one set of ranks with the communicators between them. When one of them dies, gets stuck or poisons
// its communicator, the whole generation ends, and the next Start makes a new one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/busy_wait.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/worker.pb.h"

namespace hir::service {

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

// For a client, which writes or reads the bytes of shards where they are kept, past whoever heads: once.
struct Ticket {
  std::string secret = {};
  std::string receipt = {};  // Of who has written all of them.
  bool writes = false;
  int64_t rank = 0;                  // Whose shards they are, or one of its node.
  std::vector<int64_t> shards = {};  // That get the same bytes; to be read: one.
  int64_t bytes = 0;                 // Of each.
};

// Some tickets, which end with it. Threads: any, one at a time.
class Grant {
 public:
  virtual ~Grant() = default;
  // OK, or why what was written is not there any more, as far as is known.
  virtual Status failure() const = 0;
};

// Threads: one owns it (and lives as long: processes die with the thread that started them); while that one sleeps in
// Watch, who holds its lock may Post, Look and TakePosted; snapshot(), Interrupt(), Nudge(), OnHealth(), Pause() and
// Ask() from any.
class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual int64_t size() const = 0;
  // That all times here are of.
  virtual const base::Clock& clock() const = 0;

  // Starts the next generation and returns when every rank is connected with every other. REQUIRES: !healthy().
  // Errors: kUnavailable, kDeadlineExceeded naming the rank; there is no generation then.
  virtual Status Start() = 0;
  // Whether there is a generation to call.
  virtual bool healthy() const = 0;
  // Why the latest generation ended; OK when none did.
  virtual const Status& failure() const = 0;
  virtual int64_t generation() const = 0;

  // Sends messages[rank], in order, to every rank, and waits for all replies. `what` names it in errors: "run 7".
  // Errors: what a rank replied, with the generation going on; or, with healthy() false afterwards:
  //         kUnavailable       "rank 3 died (killed by signal 9) during run 7; the mesh is being restarted"
  //         kDeadlineExceeded  naming who is late, when it takes longer than `timeout`
  //         what poisoned the communicator; what it was interrupted with; why OnWait's function gave it up, and where
  //         the ranks were.
  // kEachOther: a rank that fails may leave others waiting for it, so they get a second to end.
  enum class Waits { kEachOther, kNobody };
  virtual Status Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
                      Waits waits) = 0;
  // What the ranks measured in the latest Call, by rank.
  virtual const std::vector<::hostir::v1::Measured>& measured() const = 0;

  // The two halves of a Call that gives all ranks the same to carry out, which nothing goes before. Post needs no
  // system call but one that wakes them; when it says no (it is too long for that) nothing was sent.
  // REQUIRES of Post: healthy(), no call in progress. Of Await: it said yes; the time is from then on.
  [[nodiscard]] virtual bool Post(const ::hostir::v1::Execute& execute) = 0;
  virtual Status Await(TimeLimit timeout, std::string_view what, Waits waits) = 0;

  // Whether threads look a moment for what is to come before they sleep: the calls below.
  virtual base::BusyWait& busy_wait() = 0;
  // Whether all have carried out what was posted: then it is over, as after an Await that says OK. For a thread that
  // looks before the one that owns this wakes; it holds the lock of a Watch in progress. Between Look and StopLooking
  // nothing wakes that one when they have.
  virtual bool TakePosted() = 0;
  virtual void Look() = 0;
  virtual void StopLooking() = 0;
  // Gives others a moment.
  virtual void Pause() = 0;

  // Blocks until `wake_fd` is readable, or the mesh has failed (healthy() turns false), or all have carried out what
  // was posted meanwhile (or fail to), or `timeout`. `lock` is released while it sleeps. Whether `wake_fd` is readable.
  virtual bool Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) = 0;
  // `late` is told each second of a call that takes longer what its ranks are at ("run 7", "rank 3 has not entered
  // ..."), on the thread that waits for it. To be set before the first Start.
  using Late = std::function<void(std::string_view what, std::string_view where)>;
  virtual void OnLate(Late late) = 0;
  // `look` is asked, on the thread that waits for a call, or for a start, before it sleeps, at the time that it named
  // last, and after each Nudge: for the next such time, or why the call is not waited for any longer. To be set before
  // the first Start.
  using Waiting = std::function<Result<base::Nanos>()>;
  virtual void OnWait(Waiting look) = 0;
  virtual void Nudge() = 0;
  // Ends the call in progress, and every later one, with `cause`. Once.
  virtual void Interrupt(const Status& cause) = 0;

  // Whether what is bound at `rank` outlives its generation: it is there when it is bound again. Of the generation that
  // ended last it is known when the next one has started; until then what may be there counts as if it were.
  virtual bool Keeps(int64_t /*rank*/) const { return false; }
  // The same of one shard: where something was cut off on its way, a rank may keep others, and not this one.
  virtual bool KeepsShard(int64_t rank, int64_t /*shard*/) const { return Keeps(rank); }

  // OK, or why the rank is not there in this generation, which goes on without it: messages to it are dropped, and what
  // was released meanwhile is when it is back.
  virtual Status WhyAbsent(int64_t /*rank*/) const { return {}; }
  // Between calls: ends the generation where the next one would have others. REQUIRES: healthy().
  virtual void Renew() {}
  // Node `node` is to have no part in later generations, or to have one again. Any thread.
  // Errors: kNotFound: there is no such node; kFailedPrecondition: there is but one.
  virtual Status SetDrained(int64_t /*node*/, bool /*drained*/) {
    return {Code::kFailedPrecondition, "this daemon is no cluster's: it has no nodes to drain"};
  }

  // `granted` gets tickets that are good, once, on any thread; it must not block.
  // Errors: kFailedPrecondition: no client gets past this daemon; kUnavailable: a node is not there;
  //         kResourceExhausted: it has no room for shards that are to be written.
  using Granted = std::function<void(Result<std::unique_ptr<Grant>>)>;
  virtual void Ask(std::vector<Ticket> /*tickets*/, Granted granted) {
    granted(Status(Code::kFailedPrecondition, "all shards are this daemon's, or its devices'"));
  }

  // What other threads may know.
  struct Snapshot {
    int64_t generation = 0;
    bool healthy = false;
    std::vector<int64_t> pids = {};
    // Use of ranks of other machines, by rank; no entries: there are none.
    struct Usage {
      int64_t resident_bytes = 0;
      int64_t cpu_ms = 0;
      int64_t num_threads = 0;
    };
    std::vector<Usage> usage = {};
    std::vector<std::string> absent = {};  // By rank, why it is not there; empty: it is. Or no entries: all are.
    ::hostir::v1::Links links = {};        // Between the nodes, as measured; unset: there is one.
    std::string failure = {};
    std::vector<std::string> lingering = {};  // Killed processes of generations before that have not ended.
  };
  virtual Snapshot snapshot() const = 0;
  // `heard` is told at once, and again whenever it changes, whether the snapshot is healthy: on the thread that changes
  // it, under a lock, so that nothing here may be called. An empty one ends that; it returns when no call is under way.
  virtual void OnHealth(std::function<void(bool healthy)> heard) = 0;
};

}  // namespace hir::service
