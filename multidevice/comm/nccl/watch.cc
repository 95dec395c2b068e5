#include "multidevice/comm/nccl/watch.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"

namespace hir::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How far progress may lag behind the device, and deadlines behind their time. Asking an event
// takes the driver's lock for about a microsecond.
constexpr base::Nanos kLookEvery = microseconds(500);
constexpr base::Nanos kAsyncErrorEvery = milliseconds(20);
// So long after the last work the thread keeps looking: waking it costs a post some microseconds.
constexpr base::Nanos kStayAwake = milliseconds(50);

using base::Now;

}  // namespace

Watch::Watch(Options options) : options_(std::move(options)), thread_([this] { Loop(); }) {}

Watch::~Watch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (Queue& queue : queues_) Advance(queue);
  HIR_CHECK(poisoned_ || !Busy());  // Its streams have been synchronized.
}

Result<InFlight> Watch::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      InFlight taken = std::move(free_.back());
      free_.pop_back();
      return taken;
    }
  }
  InFlight made;
  HIR_ASSIGN(made.entered, options_.device->CreateEvent());
  HIR_ASSIGN(made.left, options_.device->CreateEvent());
  return made;
}

void Watch::Follow(device::Stream& stream, InFlight in_flight) {
  std::lock_guard lock(mutex_);
  if (poisoned_) {
    in_flight.over.Done(failure_);
    ended_.push_back({.what = std::move(in_flight)});
    return;
  }
  auto queue =
      std::find_if(queues_.begin(), queues_.end(), [&](const Queue& known) { return known.stream == &stream; });
  if (queue == queues_.end()) {
    queue = queues_.emplace(queues_.end());
    queue->stream = &stream;
  }
  in_flight.order = num_followed_++;
  queue->followed.push_back({.what = std::move(in_flight)});
  if (std::exchange(asleep_, false)) changed_.notify_all();
}

void Watch::SetDeadline(std::optional<base::Nanos> deadline, std::string_view what) {
  std::lock_guard lock(mutex_);
  deadline_ = deadline;
  what_ = what;
  if (std::exchange(asleep_, false)) changed_.notify_all();
}

void Watch::Poison(const Status& cause) {
  std::lock_guard lock(mutex_);
  PoisonLocked(cause);
}

void Watch::PoisonLocked(const Status& cause) {
  if (!failure_.ok()) return;
  failure_ = cause;
  // Before anything is aborted: a stream that goes on then must not look as if all were well.
  for (Queue& queue : queues_) {
    Advance(queue);
    for (Followed& followed : queue.followed) followed.what.over.Done(cause);
    ended_.insert(ended_.end(), std::move_iterator(queue.followed.begin()), std::move_iterator(queue.followed.end()));
    queue.followed.clear();
  }
  poisoned_ = true;
  changed_.notify_all();
}

Status Watch::failure() const {
  if (!poisoned_) return {};
  std::lock_guard lock(mutex_);
  return failure_;
}

bool Watch::Busy() const {
  const auto busy = [](const Queue& queue) { return !queue.followed.empty(); };
  return deadline_.has_value() || std::any_of(queues_.begin(), queues_.end(), busy);
}

void Watch::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !poisoned_) {
    if (Busy()) {
      busy_at_ = Now();
      Look(lock);
    }
    if (stopping_ || poisoned_) break;
    // However long the look took: nobody wakes this thread for what is followed already.
    if (Busy() || Now() - busy_at_ < kStayAwake) {
      changed_.wait_for(lock, kLookEvery);
    } else {
      asleep_ = true;
      changed_.wait(lock);
      asleep_ = false;
      busy_at_ = Now();
    }
  }
  if (!poisoned_) return;
  lock.unlock();
  options_.abort();
}

void Watch::Look(std::unique_lock<std::mutex>& lock) {
  for (Queue& queue : queues_) {
    Advance(queue);
    if (!queue.followed.empty()) CheckDeadline(queue.followed.front());
  }
  const base::Nanos now = Now();
  if (deadline_ && now > *deadline_) {
    PoisonLocked({Code::kDeadlineExceeded, base::Cat(what_, ": a rank did not come in time")});
  }
  if (poisoned_ || now < next_async_look_) return;
  next_async_look_ = now + kAsyncErrorEvery;
  lock.unlock();  // A post that is being made holds what this needs, and wants the mutex.
  const Status error = options_.async_error();
  lock.lock();
  if (!error.ok()) PoisonLocked(error);
}

// Those of a stream are left in order. Asking takes the driver's lock, which posts need: the last is asked first, since
// mostly all are over, then by halves.
size_t Watch::NumLeft(const Queue& queue) {
  const std::deque<Followed>& followed = queue.followed;
  if (followed.empty()) return 0;
  if (followed.back().what.left->Fired()) return followed.size();
  const auto end = std::partition_point(followed.begin(), followed.end() - 1,
                                        [](const Followed& one) { return one.what.left->Fired(); });
  return static_cast<size_t>(end - followed.begin());
}

void Watch::Advance(Queue& queue) {
  for (size_t num_left = NumLeft(queue); num_left > 0; --num_left) {
    InFlight over = std::move(queue.followed.front().what);
    queue.followed.pop_front();
    SetEntered(over, over.last_seq);
    SetLeft(over);
    over.over.Done({});
    over.scratch.clear();
    free_.push_back(std::move(over));
  }
  if (queue.followed.empty()) return;
  Followed& front = queue.followed.front();
  if (front.entered_at || !(front.what.follows || front.what.entered->Fired())) return;
  front.entered_at = Now();
  SetEntered(front.what, front.what.entered_seq);
}

// One look finds the ends of several streams, in the order of the streams: the latest post counts.
void Watch::SetEntered(const InFlight& what, int64_t seq) {
  if (what.order < entered_order_) return;
  entered_order_ = what.order;
  entered_ = seq;
}

void Watch::SetLeft(const InFlight& what) {
  if (what.order < left_order_) return;
  left_order_ = what.order;
  left_ = what.last_seq;
}

void Watch::CheckDeadline(const Followed& followed) {
  if (!followed.entered_at || Now() < *followed.entered_at + options_.op_timeout) return;
  char time[32];
  std::snprintf(time, sizeof time, "%.1f s", std::chrono::duration<double>(options_.op_timeout).count());
  const InFlight& what = followed.what;
  std::string name;
  if (what.graph_posts == 0) {
    name = base::Cat(CommName(what.first), " in ", what.team->ToString());
  } else {
    name = base::Cat("a graph with communications #", what.entered_seq, " to #", what.last_seq);
  }
  PoisonLocked({Code::kDeadlineExceeded, base::Cat(name, ": rank ", options_.rank, " waiting ", time,
                                                   " for its peers; NCCL does not tell for whom")});
}

}  // namespace hir::comm
