#include "csrc/device/host/stream_core.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "csrc/base/background_work.h"
#include "csrc/base/busy_wait.h"
#include "csrc/base/check.h"
#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::device {
namespace {

// A thread looks this long, and then so many times more, before it sleeps: with fewer cores than threads a yield may
// take long.
constexpr base::Nanos kLookBeforeSleep = std::chrono::microseconds(50);
constexpr int kMoreLooks = 50;
constexpr int kLooksPerYield = 4;

// What a thread waits for that works meanwhile.
struct Loan {
  const StreamCore& core;
  int64_t position;
  base::Nanos deadline;
  // Communications come first: a thread that waits carries them, and nobody else may look after them.
  bool IsOver() const {
    return core.done() >= position || base::BackgroundWorkIsUnderWay() || base::Clock::Steady().Now() >= deadline;
  }
};
thread_local const Loan* loan = nullptr;  // Of this thread.

}  // namespace

StreamCore::StreamCore(std::string name, int64_t id, int64_t queued_ops_max, Executor& executor,
                       std::atomic<int>& helpers)
    : name_(std::move(name)), id_(id), queued_ops_max_(queued_ops_max), executor_(executor), helpers_(helpers) {}

Task* StreamCore::NewTask() {
  if (queued() - done() >= queued_ops_max_) {
    // Counted as the failure of the last operation that was queued, so that later events carry it.
    Fail(ResourceExhausted(base::Cat(name_, ": limit queued_ops_max: ", queued_ops_max_, " operations are queued")),
         queued() - 1);
    return nullptr;
  }
  return &queue_.Back();
}

void StreamCore::Submit() {
  queue_.Push();
  if (!active_.exchange(true)) GoOn();
}

void StreamCore::GoOn() {
  for (;;) {
    Task* const task = queue_.Front();
    if (task == nullptr) {
      active_.store(false);
      if (drained() || active_.exchange(true)) return;
      continue;
    }
    const bool light = task->kind == Task::Kind::kWait || task->kind == Task::Kind::kAsync;
    if (!light || !executor_.direct()) return Post();
    if (!Step(*task)) return;
  }
}

void StreamCore::Wake() {
  inside_.fetch_add(1);
  GoOn();
  inside_.fetch_sub(1);
}

void StreamCore::Post() {
  inside_.fetch_add(1);
  const auto run = [this] {
    Run();
    inside_.fetch_sub(1);
  };
  const bool posted = executor_.Post(id_, run);
  HIR_CHECK(posted);  // The queue has room for every stream of the device.
}

void StreamCore::Run() {
  do {
    while (Task* task = queue_.Front()) {
      if (loan != nullptr && loan->IsOver()) return GoOn();
      if (!Step(*task)) return;
    }
    active_.store(false);
    // A push between the last look and the store did not post: then go on.
  } while (!drained() && !active_.exchange(true));
}

bool StreamCore::Step(Task& task) {
  if (failed_at_.load() <= done()) {
    if (task.kind == Task::Kind::kAsync) task.op->Skip(FailureBefore(kNever));
    Finish({});
    return true;
  }
  switch (task.kind) {
    case Task::Kind::kLaunch: return Launch(task);
    case Task::Kind::kWait:
      // When it is woken, this step is taken again.
      if (task.source->AddWaiter(task.position, *this)) return false;
      Finish(task.source->FailureBefore(task.position));
      return true;
    case Task::Kind::kAsync:
      // Start passes it on to whoever completes.
      async_met_.store(false, std::memory_order_relaxed);
      task.op->Start(Completion(*this));
      if (!async_met_.exchange(true)) return false;
      Finish(async_status_);
      return true;
    case Task::Kind::kCallback: Finish(task.callback()); return true;
  }
  HIR_CHECK(false);
  return true;
}

void StreamCore::Complete(Status status) {
  async_status_ = std::move(status);
  if (!async_met_.exchange(true)) return;
  // Start has returned, and the core is ours. The operation is not done yet, so nobody is through with the stream.
  inside_.fetch_add(1);
  Finish(async_status_);
  GoOn();
  inside_.fetch_sub(1);
}

void StreamCore::Finish(const Status& status) {
  if (!status.ok()) Fail(status, done());
  Task& task = *queue_.Front();
  task.more_args.reset();
  if (task.callback) task.callback = nullptr;
  queue_.Pop();
  if (done() >= wake_at_.load()) WakeWaiters();
}

bool StreamCore::Launch(Task& task) {
  const int64_t threads = executor_.num_threads();
  const int64_t pieces = std::min(base::CeilDiv(task.grid, task.grain), 4 * threads);
  if (threads == 1 || pieces <= 1) {
    if (task.grid > 0) task.function(task.Args(), 0, task.grid);
    Finish({});
    return true;
  }
  split_function_ = task.function;
  split_args_ = task.Args();
  split_grid_ = task.grid;
  split_pieces_ = pieces;
  unfinished_.store(pieces);
  const uint64_t epoch = (claim_.load() >> 32) + 1;
  claim_.store(epoch << 32 | static_cast<uint64_t>(pieces));
  PostHelpers(epoch & 0xffffffff, std::min(threads, pieces) - 1);
  if (!RunPieces(epoch & 0xffffffff, [] { return false; })) return false;
  Finish({});
  return true;
}

void StreamCore::PostHelpers(uint64_t epoch, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (helpers_.fetch_sub(1) <= 0) {  // Enough of them wait already; the others do without.
      helpers_.fetch_add(1);
      return;
    }
    inside_.fetch_add(1);
    const auto help = [this, epoch] {
      helpers_.fetch_add(1);
      if (RunPieces(epoch, [] { return loan != nullptr && loan->IsOver(); })) {
        Finish({});
        Run();
      } else if (HasPieces(epoch)) {  // It left, and somebody else may take its place.
        PostHelpers(epoch, 1);
      }
      inside_.fetch_sub(1);
    };
    const bool posted = executor_.Post(id_, help);
    HIR_CHECK(posted);
  }
}

bool StreamCore::RunPieces(uint64_t epoch, bool (*leaves)()) {
  uint64_t claim = claim_.load();
  for (;;) {
    if (leaves()) return false;
    if (!HasPieces(epoch, claim)) return false;
    const int64_t left = static_cast<int64_t>(claim & 0xffffffff);
    if (!claim_.compare_exchange_weak(claim, claim - 1)) continue;
    // The piece is ours, so the launch cannot end before it, and the split_ fields hold still.
    const int64_t piece = split_pieces_ - left;
    const int64_t each = split_grid_ / split_pieces_;
    const int64_t rest = split_grid_ % split_pieces_;  // The first `rest` pieces have one item more.
    const int64_t begin = piece * each + std::min(piece, rest);
    split_function_(split_args_, begin, begin + each + (piece < rest ? 1 : 0));
    if (unfinished_.fetch_sub(1) == 1) return true;
    claim = claim_.load();
  }
}

void StreamCore::Fail(const Status& status, int64_t index) {
  std::lock_guard lock(mutex_);
  if (failed()) return;
  failure_ = status;
  failed_at_.store(index);
}

Status StreamCore::FailureBefore(int64_t position) const {
  if (failed_at_.load() >= position) return {};
  std::lock_guard lock(mutex_);
  return failure_;
}

void StreamCore::ClearError() {
  HIR_CHECK(drained());
  std::lock_guard lock(mutex_);
  failure_ = {};
  failed_at_.store(kNever);
}

bool StreamCore::AddWaiter(int64_t position, StreamCore& stream) {
  if (done() >= position) return false;
  std::lock_guard lock(mutex_);
  waiters_.push_back({.position = position, .stream = &stream});
  UpdateWakeAt();
  // Finish pops first and looks at wake_at_ then; so either it sees ours, or we see its pop.
  if (done() < position) return true;
  waiters_.pop_back();
  UpdateWakeAt();
  return false;
}

void StreamCore::WakeWaiters() {
  std::vector<StreamCore*> streams;
  {
    std::unique_lock lock(mutex_);
    const int64_t position = done();
    for (size_t i = 0; i < waiters_.size();) {
      if (waiters_[i].position > position) {
        ++i;
        continue;
      }
      if (waiters_[i].stream != nullptr) streams.push_back(waiters_[i].stream);
      waiters_[i] = waiters_.back();
      waiters_.pop_back();
    }
    UpdateWakeAt();
    changed_.notify_all();
  }
  for (StreamCore* stream : streams) stream->Wake();
}

void StreamCore::RemoveThreadWaiter(int64_t position) {
  const auto mine = std::find_if(waiters_.begin(), waiters_.end(), [position](const Waiter& waiter) {
    return waiter.stream == nullptr && waiter.position == position;
  });
  if (mine != waiters_.end()) waiters_.erase(mine);
  UpdateWakeAt();
}

void StreamCore::UpdateWakeAt() {
  int64_t least = kNever;
  for (const Waiter& waiter : waiters_) least = std::min(least, waiter.position);
  wake_at_.store(least);
}

// A thread that sleeps takes some 40 us to wake, longer than most of what is waited for at the end of a run; and what
// it waits for may be a communication, which it can do itself. Or work that is queued: with a thread of the pool for
// each core, the one that waits has a core which another would be woken for, and the system puts that one onto a core
// that is taken. (Both threads of two cores shared one for up to 10 ms of a kernel of 6: every 20th run.)
base::Nanos StreamCore::LookUntil(int64_t position, base::Nanos timeout) const {
  if (!executor_.direct() || done() >= position) return {};
  // Many a communication is over before a clock that is read twice would pay.
  for (int i = 0; i < kLooksPerYield; ++i) {
    const base::Found found = base::HelpBackgroundWork();
    if (done() >= position) return {};
    if (found == base::Found::kNeedsCore) break;
  }
  const base::Clock& clock = base::Clock::Steady();
  const base::Nanos started = clock.Now();
  const base::Nanos left = base::Nanos::max() - started;
  const Loan mine = {.core = *this, .position = position, .deadline = started + std::min(timeout, left)};
  bool worked = false;
  const auto lend = [&] {
    if (mine.IsOver()) return false;
    loan = &mine;
    const bool did_work = executor_.LendThread();
    loan = nullptr;
    worked |= did_work;
    return did_work;
  };
  std::optional<base::Look> look;
  while (done() < position) {
    bool happened = false;
    for (int i = 0; i < kLooksPerYield && done() < position; ++i) {
      const base::Found found = base::HelpBackgroundWork();
      if (found == base::Found::kNeedsCore) break;
      happened |= found == base::Found::kSomething || lend();
    }
    if (done() >= position) break;
    const base::Nanos now = clock.Now();
    if (now - started >= timeout) break;
    if (happened) {
      if (look) look->Found();
      look.reset();
      continue;
    }
    if (!look) look.emplace(base::BusyWait::OfProcess(), kLookBeforeSleep, kMoreLooks);
    if (look->IsOver()) break;
  }
  if (look && done() >= position) look->Found();
  // What this thread began as it worked counts on its help.
  if (worked || done() < position) base::LeaveBackgroundWork();
  return clock.Now() - started;
}

Status StreamCore::Synchronize(int64_t position, base::Nanos timeout) {
  const base::Nanos looked = LookUntil(position, timeout);
  if (done() < position) {
    std::unique_lock lock(mutex_);
    waiters_.push_back({.position = position, .stream = nullptr});
    UpdateWakeAt();
    const bool reached = executor_.Block(
        lock, changed_, [this, position] { return done() >= position; }, timeout - looked);
    RemoveThreadWaiter(position);
    if (!reached) {
      const double seconds = std::chrono::duration<double>(timeout).count();
      return {Code::kDeadlineExceeded,
              base::Cat(name_, ": ", done(), " of ", position, " operations are done after ", seconds, " s")};
    }
  }
  return FailureBefore(position);
}

}  // namespace hir::device
