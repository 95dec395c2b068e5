#include "multidevice/comm/engine/engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "csrc/base/busy_wait.h"
#include "csrc/base/check.h"

namespace hir::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long the thread keeps looking (and yielding) before it sleeps: waking it takes 20 to 30 us,
// and with as many ranks as cores or more, a thread that only looks takes time from one that works.
constexpr base::Nanos kLookWhilePending = microseconds(100);
constexpr int kLooksWhilePending = 50;
// While others have turns, or had a moment ago, the thread only looks whether they still do, ever more rarely.
constexpr base::Nanos kShortNap = microseconds(100);
constexpr base::Nanos kLongNap = milliseconds(2);
constexpr base::Nanos kNapWhileIdle = milliseconds(2);
constexpr base::Nanos kDeadlineStep = milliseconds(1);
constexpr base::Nanos kCancelTime = milliseconds(500);  // For the transport to give receives back.
constexpr base::Nanos kCloseTime = milliseconds(500);

// What an allreduce of 8 ranks keeps in flight is 3 MiB.
constexpr int64_t kKeptScratchBytes = 4 << 20;
constexpr size_t kKeptScratches = 8;

base::Nanos Now() { return base::Clock::Steady().Now(); }

}  // namespace

void EnginePost::Start(device::Completion completion) { engine_.Submit(*this, std::move(completion)); }
void EnginePost::Skip(const Status& cause) {
  engine_.Poison(cause);
  engine_.Release(*this);
}

Engine::Engine(std::unique_ptr<Transport> transport, base::Nanos op_timeout)
    : op_timeout_(op_timeout),
      transport_(std::move(transport)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { Loop(); }) {
  HIR_CHECK(wake_fd_ >= 0);
  base::AddBackgroundWork(*this);
}

Engine::~Engine() {
  base::RemoveBackgroundWork(*this);
  stopping_ = true;
  Wake();
  thread_.join();
  while (inside_ > 0) sched_yield();
  if (EnginePost* const spare = spare_post_) free_.push_back(spare);
  HIR_CHECK(free_.size() == posts_.size());
  if (!poisoned_) transport_->Close(kCloseTime);
  transport_.reset();  // Tells the orphans that it is over with them.
  close(wake_fd_);
}

EnginePost& Engine::NewPost() {
  if (EnginePost* const spare = spare_post_.exchange(nullptr, std::memory_order_acquire)) return *spare;
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    posts_.push_back(std::make_unique<EnginePost>(*this));
    free_.push_back(posts_.back().get());
  }
  EnginePost& post = *free_.back();
  free_.pop_back();
  return post;
}

void Engine::Release(EnginePost& post) {
  post.ops.clear();
  EnginePost* none = nullptr;
  if (spare_post_.compare_exchange_strong(none, &post, std::memory_order_release)) return;
  std::lock_guard lock(mutex_);
  free_.push_back(&post);
}

void Engine::Submit(EnginePost& post, device::Completion completion) {
  post.completion_ = std::move(completion);
  inside_.fetch_add(1);
  const bool comes_back = helper_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  const bool begun = BeginNow(post);
  if (!begun && !Queue(post)) EndPost(post, failure());
  // What is queued wakes whoever sleeps, whatever the counts say: a thread that only helps may have taken it from the
  // queue and not begun it yet, and it goes when what it waits for itself is over.
  if ((!begun || pending_ > 0) && (sleeping_ || (napping_ && !comes_back))) Wake();
  inside_.fetch_sub(1);
}

// Its first messages leave on the spot, and if the others' are here, that is all of it.
bool Engine::BeginNow(EnginePost& post) {
  if (poisoned_ || !TryTakeTurn()) return false;
  const bool begun = !poisoned_;
  if (begun) {
    TakeSubmitted();  // What came before it.
    Begin(post);
    Look();
  }
  CountHelp();
  EndTurn();
  return begun;
}

bool Engine::Queue(EnginePost& post) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return false;
    submitted_.push_back(&post);
  }
  has_submitted_ = true;
  Turn();  // Unless whoever has the turn takes it up.
  return true;
}

void Engine::Poison(const Status& cause) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = cause;
  }
  poisoned_ = true;
  Wake();
}

Status Engine::failure() const {
  if (!poisoned_) return {};
  std::lock_guard lock(mutex_);
  return failure_;
}

void Engine::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);  // Full is as good.
}

void Engine::TakeTurn() {
  while (!TryTakeTurn()) sched_yield();
}

void Engine::EndTurn() {
  // A thread that submits while the turn is taken leaves it to whoever has it: seen here, or by their own TryTakeTurn.
  turn_taken_ = false;
  while (has_submitted_ && !poisoned_ && TryTakeTurn()) {
    Look();
    turn_taken_ = false;
  }
}

base::Found Engine::Help() {
  helper_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  return Turn();
}

void Engine::Leave() {
  if (pending_ > 0 && (napping_ || sleeping_)) Wake();
}

base::Found Engine::Turn() {
  if (poisoned_ || !TryTakeTurn()) return base::Found::kNothing;
  const base::Found found = poisoned_ ? base::Found::kNothing : Look();
  CountHelp();
  EndTurn();
  return found;
}

base::Found Engine::Look() {
  bool happened = TakeSubmitted();
  // A few times: what one message starts may be here at once.
  base::Found found = base::Found::kSomething;
  for (int i = 0; i < 8 && found == base::Found::kSomething; ++i) {
    found = transport_->Progress();
    happened |= found == base::Found::kSomething;
  }
  while (!changed_.empty()) {
    happened = true;
    PendingComm& op = *changed_.back();
    changed_.pop_back();
    op.Advance();
  }
  return FinishOver() || happened ? base::Found::kSomething : found;
}

bool Engine::TakeSubmitted() {
  if (!has_submitted_) return false;
  {
    std::lock_guard lock(mutex_);
    has_submitted_ = false;
    taken_.swap(submitted_);
  }
  for (EnginePost* post : taken_) Begin(*post);
  taken_.clear();
  return true;
}

void Engine::Begin(EnginePost& post) {
  post.unfinished_ = static_cast<int64_t>(post.ops.size());
  for (const CommOp& op : post.ops) {
    entered_.store(op.desc.seq, std::memory_order_relaxed);
    Active& active = NewActive();
    active.post = &post;
    active.op = op;
    active.deadline = {};
    active.pending = transport_->Make(*this, active.op);
    active.pending->Begin();
  }
}

Engine::Active& Engine::NewActive() {
  pending_.store(pending_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (spare_active_.empty()) return active_.emplace_back();
  active_.splice(active_.end(), spare_active_, spare_active_.begin());
  return active_.back();
}

bool Engine::FinishOver() {
  bool finished = false;
  for (auto it = active_.begin(); it != active_.end();) {
    if (!it->pending->over()) {
      ++it;
      continue;
    }
    finished = true;
    EnginePost& post = *it->post;
    left_.store(it->op.desc.seq, std::memory_order_relaxed);
    it->pending.reset();
    const auto over = it++;
    spare_active_.splice(spare_active_.begin(), active_, over);
    pending_.store(pending_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    if (--post.unfinished_ == 0) EndPost(post, {});
  }
  return finished;
}

ScratchMemory Engine::TakeScratch(int64_t bytes) {
  const auto fits =
      std::find_if(scratch_.begin(), scratch_.end(), [bytes](const auto& scratch) { return scratch.bytes >= bytes; });
  if (fits != scratch_.end()) {
    ScratchMemory scratch = std::move(*fits);
    scratch_.erase(fits);
    return scratch;
  }
  constexpr size_t kAlignment = 64;
  ScratchMemory scratch = {
      .owner = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes) + kAlignment), .bytes = bytes};
  const size_t over = reinterpret_cast<uintptr_t>(scratch.owner.get()) % kAlignment;
  scratch.data = scratch.owner.get() + (kAlignment - over) % kAlignment;
  scratch_bytes_ += bytes;
  peak_scratch_bytes_ = std::max(peak_scratch_bytes_.load(), scratch_bytes_);
  return scratch;
}

void Engine::GiveScratch(ScratchMemory scratch) {
  if (scratch.bytes <= kKeptScratchBytes && scratch_.size() < kKeptScratches) {
    scratch_.push_back(std::move(scratch));
  } else {
    scratch_bytes_ -= scratch.bytes;
  }
}

void Engine::EndPost(EnginePost& post, const Status& status) {
  device::Completion completion = std::move(post.completion_);
  Release(post);
  completion.Done(status);
}

void Engine::CheckDeadlines() {
  const base::Nanos now = Now();
  if (now < next_deadline_check_) return;
  next_deadline_check_ = now + kDeadlineStep;
  for (Active& active : active_) {
    if (active.deadline == base::Nanos{}) active.deadline = now + op_timeout_;
    if (active.deadline > now) continue;
    Poison({Code::kDeadlineExceeded, active.pending->WhatIsMissing(op_timeout_)});
    return;
  }
}

void Engine::Loop() {
  base::Nanos quiet_since = Now();
  std::optional<base::Look> look;
  base::Nanos nap = kShortNap;
  while (!stopping_ && !poisoned_) {
    if (HelpedByOthers() || !TryTakeTurn()) {
      quiet_since = Now();
      look.reset();
      // The thread that wakes it has submitted something, and may not come back to look after it.
      nap = Nap(nap) ? kShortNap : std::min(2 * nap, kLongNap);
      continue;
    }
    nap = kShortNap;
    bool happened = Look() == base::Found::kSomething;
    if (!active_.empty()) CheckDeadlines();
    EndTurn();
    if (!happened && pending_ > 0) {
      if (!look) look.emplace(base::BusyWait::OfProcess(), kLookWhilePending, kLooksWhilePending);
      if (!look->IsOver()) continue;
      happened = Sleep();
      if (!happened) continue;  // Whoever woke it may want it to stop.
    }
    if (happened) {
      quiet_since = Now();
      if (look) look->Found();
      look.reset();
    } else if (Now() - quiet_since < kNapWhileIdle) {
      Nap(kShortNap);
    } else {
      Sleep();
    }
  }
  if (poisoned_) EndAll();
}

bool Engine::HelpedByOthers() {
  const int64_t before = std::exchange(helped_before_, helped_.load(std::memory_order_relaxed));
  return helped_before_ != before;
}

bool Engine::AwaitWake(int fd, base::Nanos limit) {
  // poll() leaves out a descriptor that is -1.
  std::array<pollfd, 2> fds = {
      {{.fd = wake_fd_, .events = POLLIN, .revents = 0}, {.fd = fd, .events = POLLIN, .revents = 0}}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec time = {.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  ppoll(fds.data(), fds.size(), limit == base::Nanos::max() ? nullptr : &time, nullptr);
  if (fds[0].revents == 0) return false;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
  return true;
}

bool Engine::Nap(base::Nanos limit) {
  napping_ = true;
  const bool woken = AwaitWake(-1, limit);
  napping_ = false;
  return woken;
}

bool Engine::Sleep() {
  if (!TryTakeTurn()) return false;
  sleeping_ = true;
  bool armed = transport_->Arm();
  const bool happened = !armed && Look() == base::Found::kSomething;
  if (!armed && !happened) armed = transport_->Arm();  // There may have been a signal of what is done already.
  EndTurn();
  // Whoever submits after this turn sees sleeping_ and wakes us; who did before is seen here, and has a deadline. Who
  // poisons or stops wakes us in any case.
  const base::Nanos limit = pending_ > 0 ? transport_->sleep_max() : base::Nanos::max();
  if (armed && !has_submitted_) AwaitWake(transport_->fd(), limit);
  // It waits for what no event tells of: peers without room for more. Looking on would take a core that they may need.
  if (!armed && !happened && !has_submitted_) AwaitWake(-1, kShortNap);
  sleeping_ = false;
  // At once, whoever else may look by now: peers do more for this rank as long as they take it to be asleep.
  TakeTurn();
  transport_->Disarm();
  EndTurn();
  return happened;
}

void Engine::EndAll() {
  TakeTurn();  // Never given back.
  const Status cause = failure();
  const auto receiving = [this] {
    return std::any_of(active_.begin(), active_.end(),
                       [](const Active& active) { return active.pending->receiving(); });
  };
  for (const Active& active : active_) active.pending->Cancel();
  // A receive that a message has matched cannot be cancelled, but it ends soon, or its sender is gone. After this loop
  // the transport makes no progress any more, so nobody touches the buffers of what has ended.
  const base::Nanos deadline = Now() + kCancelTime;
  while (receiving() && Now() < deadline) {
    if (transport_->Progress() != base::Found::kSomething) sched_yield();
  }
  changed_.clear();
  std::vector<EnginePost*> posts;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    posts.swap(submitted_);
  }
  for (auto it = active_.begin(); it != active_.end();) {
    if (std::find(posts.begin(), posts.end(), it->post) == posts.end()) posts.push_back(it->post);
    const auto next = std::next(it);
    // The transport has addresses in it until it is gone.
    if (!it->pending->idle()) orphans_.splice(orphans_.end(), active_, it);
    it = next;
  }
  active_.clear();
  for (EnginePost* post : posts) EndPost(*post, cause);
}

}  // namespace hir::comm
