// Engine: the thread that makes progress for one communicator. It alone touches the UcxWorker once
// it runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/stream.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/numbering.h"
#include "multidevice/comm/team.h"
#include "multidevice/comm/ucx/algorithm.h"
#include "multidevice/comm/ucx/ucx_worker.h"

namespace hir::comm {

class Engine;

// Memory for what is on its way, aligned to 64 bytes.
struct ScratchMemory {
  std::unique_ptr<std::byte[]> owner = {};
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// A team, and what its members call it.
struct UcxTeam {
  const TeamInfo* info = nullptr;
  int64_t number = 0;                   // Here; a TeamId.
  std::vector<int64_t> number_at = {};  // At each member, by index.
};

// One communication of a post.
struct UcxOpDesc {
  CommDesc desc = {};
  const UcxTeam* team = nullptr;
  MatchNumbers numbers = {};
};

// What one post, or the posts of a group on one stream, enqueue. Owned by the engine, and used
// again.
class UcxPost final : public device::AsyncOp {
 public:
  explicit UcxPost(Engine& engine) : engine_(engine) {}
  void Start(device::Completion completion) override;
  void Skip(const Status& cause) override;

  std::vector<UcxOpDesc> ops;  // Complete before it is enqueued.

 private:
  friend class Engine;
  Engine& engine_;
  device::Completion completion_;
  int64_t unfinished_ = 0;
};

class UcxOp;

// Thread-safe, but for the constructor and destructor.
class Engine {
 public:
  struct Options {
    int64_t rank = 0;
    int64_t generation = 0;
    base::Nanos op_timeout = {};
  };
  Engine(const Options& options, std::unique_ptr<UcxWorker> worker);
  // REQUIRES: every post is over.
  ~Engine();

  UcxPost& NewPost();
  void Submit(UcxPost& post, device::Completion completion);
  void Release(UcxPost& post);

  // The first one counts. Pending posts end with it within a second.
  void Poison(const Status& cause);
  Status failure() const;
  CommProgress progress() const { return {.entered = entered_.load(), .left = left_.load()}; }

 private:
  friend class UcxOp;

  // The engine's thread.
  void Loop();
  bool Turn();  // One look at everything; whether anything happened.
  bool TakeSubmitted();
  void Begin(UcxPost& post);
  ScratchMemory TakeScratch(int64_t bytes);
  void GiveScratch(ScratchMemory scratch);
  void Finish(UcxOp& op);  // All its transfers are done.
  void CheckDeadlines();
  void Sleep(base::Nanos limit);
  void Idle(base::Nanos quiet_since);
  void Wake();
  void EndAll();  // After a failure: nothing is left pending, and nothing starts any more.
  void EndPost(UcxPost& post, const Status& status);

  const Options options_;
  std::unique_ptr<UcxWorker> worker_;
  const int wake_fd_;

  mutable std::mutex mutex_;
  std::deque<UcxPost*> submitted_;  // Guarded by mutex_, as are the next four.
  std::vector<std::unique_ptr<UcxPost>> posts_;
  std::vector<UcxPost*> free_;
  Status failure_;
  bool ended_ = false;                  // Nothing is taken any more.
  std::atomic<bool> poisoned_ = false;  // failure_ is set.
  std::atomic<bool> has_submitted_ = false;
  std::atomic<bool> sleeping_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<int64_t> entered_ = -1;
  std::atomic<int64_t> left_ = -1;

  // The engine's thread alone.
  std::vector<ScratchMemory> scratch_;  // Used before, and touched: new memory costs faults.
  std::list<std::unique_ptr<UcxOp>> active_;
  std::vector<UcxOp*> changed_;  // Have transfers that are done and not told to the algorithm.
  std::vector<std::unique_ptr<UcxOp>>
      orphans_;  // Ended by a failure while UCX still had requests of theirs.
  base::Nanos next_deadline_check_ = {};

  std::jthread thread_;  // Last: it ends first.
};

}  // namespace hir::comm
