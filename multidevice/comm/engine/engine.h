// Engine: makes progress for one communicator over a transport of messages or collectives. One thread at a time has the
// turn, and touches the transport: whoever posts or waits, else a thread of the engine's own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/background_work.h"
#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/stream.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/numbering.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

class Engine;

// Memory for what is on its way, aligned to 64 bytes.
struct ScratchMemory {
  std::unique_ptr<std::byte[]> owner = {};
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// A team, and what a transport knows of it.
struct TransportTeam {
  virtual ~TransportTeam() = default;
  virtual int64_t bytes() const { return 0; }  // Memory for data on its way; of this rank.
  const TeamInfo* info = nullptr;
};

// One communication of a post.
struct CommOp {
  CommDesc desc = {};
  const TransportTeam* team = nullptr;
  MatchNumbers numbers = {};
};

// A communication that a transport has under way. Whoever has the turn.
class PendingComm {
 public:
  virtual ~PendingComm() = default;
  virtual void Dispose() { delete this; }  // Instead of delete: a transport may use it again.
  virtual void Begin() = 0;
  // Called after Engine::Changed, outside Transport::Progress.
  virtual void Advance() = 0;
  virtual bool over() const = 0;
  // After a failure: whatever can be taken back is; the rest is waited for while `receiving`, for a while.
  virtual void Cancel() = 0;
  virtual bool receiving() const = 0;  // Whether the transport may still write into our memory.
  virtual bool idle() const = 0;       // Whether the transport has no address of ours.
  // "rank 2 has not sent anything for allgather #17; rank 0 waiting 5.0 s"
  virtual std::string WhatIsMissing(base::Nanos waited) const = 0;
};

struct DisposeComm {
  void operator()(PendingComm* comm) const { comm->Dispose(); }
};
using PendingPtr = std::unique_ptr<PendingComm, DisposeComm>;

// What carries communications. Whoever has the turn.
class Transport {
 public:
  virtual ~Transport() = default;
  // `op` outlives what is made.
  virtual PendingPtr Make(Engine& engine, const CommOp& op) = 0;
  virtual base::Found Progress() = 0;
  // True when nothing is waiting to be progressed; then fd(), if there is one, becomes readable when something is.
  virtual bool Arm() = 0;
  // The engine's thread looks again. After each Arm, whatever it returned, in a later turn.
  virtual void Disarm() {}
  virtual int fd() const = 0;                 // -1: there is none, and the engine sleeps no longer than sleep_max().
  virtual base::Nanos sleep_max() const = 0;  // While something is pending.
  // Nothing has failed and nothing is pending: says goodbye to the peers; at most `timeout`.
  virtual void Close(base::Nanos timeout) = 0;
};

// What one post, or the posts of a group on one stream, enqueue. Owned by the engine, and used again.
class EnginePost final : public device::AsyncOp {
 public:
  explicit EnginePost(Engine& engine) : engine_(engine) {}
  void Start(device::Completion completion) override;
  void Skip(const Status& cause) override;

  std::vector<CommOp> ops;  // Complete before it is enqueued.

 private:
  friend class Engine;
  Engine& engine_;
  device::Completion completion_;
  int64_t unfinished_ = 0;
};

// Thread-safe, but for the constructor and destructor, and what is said to be for transports.
class Engine final : private base::BackgroundWork {
 public:
  Engine(std::unique_ptr<Transport> transport, base::Nanos op_timeout);
  // REQUIRES: every post is over.
  ~Engine() override;

  EnginePost& NewPost();
  void Submit(EnginePost& post, device::Completion completion);
  void Release(EnginePost& post);

  // The first one counts. Pending posts end with it within a second.
  void Poison(const Status& cause);
  Status failure() const;
  CommProgress progress() const { return {.entered = entered_.load(), .left = left_.load()}; }
  int64_t peak_scratch_bytes() const { return peak_scratch_bytes_; }

  // For transports, in a turn: `op` has something to do in Advance; memory that was used before.
  void Changed(PendingComm& op) { changed_.push_back(&op); }
  ScratchMemory TakeScratch(int64_t bytes);
  void GiveScratch(ScratchMemory scratch);

 private:
  struct Active {
    EnginePost* post = nullptr;
    CommOp op = {};
    base::Nanos deadline = {};  // Set by the first check, which has looked at the clock anyway.
    PendingPtr pending = {};
  };

  base::Found Help() override;
  void Leave() override;
  bool IsUnderWay() const override { return !poisoned_ && (pending_ > 0 || has_submitted_); }

  // A turn: one look at everything.
  base::Found Turn();
  bool TryTakeTurn() { return !turn_taken_.exchange(true); }
  void TakeTurn();
  void EndTurn();  // What was submitted meanwhile is taken up.
  // In a turn, as are pending_, entered_, left_ and peak_scratch_bytes_: nobody else writes, and EndTurn publishes.
  void CountHelp() { helped_.store(helped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  base::Found Look();
  bool BeginNow(EnginePost& post);  // False: somebody has the turn.
  bool Queue(EnginePost& post);     // False: nothing is taken any more.
  bool TakeSubmitted();
  void Begin(EnginePost& post);
  Active& NewActive();
  bool FinishOver();  // Ends those that are over; whether there was one.
  void CheckDeadlines();

  // The engine's thread.
  void Loop();
  bool HelpedByOthers();        // Since the last call.
  bool Nap(base::Nanos limit);  // Whether it was woken; as the next.
  // Until something happens, or a moment where the transport cannot tell. Whether it found something to do instead.
  bool Sleep();
  bool AwaitWake(int fd, base::Nanos limit);
  void Wake();
  void EndAll();  // After a failure: nothing is left pending, and nothing starts any more.
  void EndPost(EnginePost& post, const Status& status);

  const base::Nanos op_timeout_;
  std::unique_ptr<Transport> transport_;
  const int wake_fd_;

  mutable std::mutex mutex_;
  std::vector<EnginePost*> submitted_;  // Guarded by mutex_, as are the next four.
  std::vector<std::unique_ptr<EnginePost>> posts_;
  std::vector<EnginePost*> free_;
  Status failure_;
  bool ended_ = false;                             // Nothing is taken any more.
  std::atomic<EnginePost*> spare_post_ = nullptr;  // One more of free_, without mutex_.
  std::atomic<bool> poisoned_ = false;             // failure_ is set.
  std::atomic<bool> has_submitted_ = false;
  std::atomic<bool> sleeping_ = false;
  std::atomic<bool> napping_ = false;
  std::atomic<bool> turn_taken_ = false;
  std::atomic<int> inside_ = 0;               // Threads in Submit; the last post may be over before they leave.
  std::atomic<int64_t> helped_ = 0;           // Turns of other threads.
  std::atomic<std::thread::id> helper_ = {};  // Whose was the last of them.
  std::atomic<int64_t> pending_ = 0;          // active_.size().
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> entered_ = -1;
  std::atomic<int64_t> left_ = -1;
  std::atomic<int64_t> peak_scratch_bytes_ = 0;

  // Whoever has the turn.
  std::vector<ScratchMemory> scratch_;  // Used before, and touched: new memory costs faults.
  int64_t scratch_bytes_ = 0;           // Of these, and of those taken.
  std::list<Active> active_;            // Its elements stay where they are.
  std::list<Active> spare_active_;      // For the next that begin.
  std::vector<PendingComm*> changed_;
  std::vector<EnginePost*> taken_;  // Of submitted_; empty between turns.
  std::list<Active> orphans_;       // Ended by a failure while the transport still had addresses of theirs.
  base::Nanos next_deadline_check_ = {};

  int64_t helped_before_ = 0;  // The engine's thread alone.

  std::jthread thread_;  // Last: it ends first.
};

}  // namespace hir::comm
