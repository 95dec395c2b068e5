// Watch: the thread that follows what a communicator has in flight: how far the device is, whether
// NCCL has found an error, whether a deadline has passed; and that ends it all after a failure.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/device/device.h"
#include "csrc/device/stream.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

// What one post, the posts of a group on one stream, or a graph have in flight: between two events.
struct InFlight {
  std::unique_ptr<device::Event> entered = {};
  std::unique_ptr<device::Event> left = {};
  bool follows = false;          // On what was followed last on its stream, at once: `entered` says nothing.
  device::Completion over = {};  // Of the work on its stream.
  CommDesc first = {};           // The first of them,
  const TeamInfo* team = nullptr;
  int64_t entered_seq = 0;  // What progress is when it is entered,
  int64_t last_seq = 0;     // and when it is left.
  int64_t graph_posts = 0;  // So many posts of a graph; 0: it is no graph.
  int64_t order = 0;        // Among all that is followed, on whatever stream; the watch's.
  // Scratch that was replaced by a larger one while this still uses it.
  std::vector<std::unique_ptr<device::Allocation>> scratch = {};
};

// Thread-safe, but for the constructor and destructor.
class Watch {
 public:
  struct Options {
    int64_t rank = 0;
    base::Nanos op_timeout = {};
    device::Device* device = nullptr;
    // NCCL's own opinion, asked now and then while something is in flight.
    std::function<Status()> async_error = {};
    // Makes what is in flight end; called once, after the first failure.
    std::function<void()> abort = {};
  };
  explicit Watch(Options options);
  // REQUIRES: what was followed is over on the device. A failure has been dealt with after it.
  ~Watch();

  // Two events, used before or new.
  Result<InFlight> Take();
  // `left` was recorded on `stream`.
  void Follow(device::Stream& stream, InFlight in_flight);

  // Until it is told that there is none, a deadline that is not that of work on a stream: `what` is
  // in the failure.
  void SetDeadline(std::optional<base::Nanos> deadline, std::string_view what = {});

  // The first one counts. What is in flight is over with it.
  void Poison(const Status& cause);
  Status failure() const;
  bool poisoned() const { return poisoned_; }
  CommProgress progress() const { return {.entered = entered_.load(), .left = left_.load()}; }

 private:
  struct Followed {
    InFlight what;
    std::optional<base::Nanos> entered_at = {};
  };
  struct Queue {  // Empty, it may belong to a stream that is gone.
    device::Stream* stream = nullptr;
    std::deque<Followed> followed = {};
  };

  // The thread.
  void Loop();
  void Look(std::unique_lock<std::mutex>& lock);

  // Takes off what is done. REQUIRES of these: mutex_ is held.
  void Advance(Queue& queue);
  static size_t NumLeft(const Queue& queue);
  void SetEntered(const InFlight& what, int64_t seq);
  void SetLeft(const InFlight& what);
  void CheckDeadline(const Followed& followed);
  void PoisonLocked(const Status& cause);
  bool Busy() const;

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Queue> queues_;  // One a stream. Guarded by mutex_, as are the next.
  std::vector<InFlight> free_;
  int64_t num_followed_ = 0;
  int64_t entered_order_ = -1;  // Of what entered_ and left_ tell.
  int64_t left_order_ = -1;
  std::vector<Followed> ended_;  // By the failure; the device may still be in them.
  Status failure_;
  bool stopping_ = false;
  bool asleep_ = false;  // The thread waits to be told.
  std::optional<base::Nanos> deadline_;
  std::string what_;
  base::Nanos busy_at_ = {};
  base::Nanos next_async_look_ = {};
  std::atomic<bool> poisoned_ = false;  // failure_ is set.
  std::atomic<int64_t> entered_ = -1;
  std::atomic<int64_t> left_ = -1;

  std::jthread thread_;  // Last: it ends first.
};

}  // namespace hir::comm
