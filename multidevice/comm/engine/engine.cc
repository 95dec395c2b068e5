#include "multidevice/comm/engine/engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "csrc/base/check.h"

namespace hir::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long the thread keeps looking (and yielding) before it sleeps: waking it takes 20 to 30 us,
// and with as many ranks as cores or more, a thread that only looks takes time from one that works.
constexpr base::Nanos kLookWhilePending = microseconds(100);
constexpr base::Nanos kLookWhileIdle = microseconds(20);
constexpr base::Nanos kDeadlineStep = milliseconds(1);
constexpr base::Nanos kCancelTime = milliseconds(500);  // For the transport to give receives back.
constexpr base::Nanos kCloseTime = milliseconds(500);

// What an allreduce of 8 ranks keeps in flight is 3 MiB.
constexpr int64_t kKeptScratchBytes = 4 << 20;
constexpr size_t kKeptScratches = 8;

base::Nanos Now() { return base::Clock::Steady().Now(); }

}  // namespace

void EnginePost::Start(device::Completion completion) {
  engine_.Submit(*this, std::move(completion));
}
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
}

Engine::~Engine() {
  stopping_ = true;
  Wake();
  thread_.join();
  HIR_CHECK(free_.size() == posts_.size());
  if (!poisoned_) transport_->Close(kCloseTime);
  transport_.reset();  // Tells the orphans that it is over with them.
  close(wake_fd_);
}

EnginePost& Engine::NewPost() {
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
  std::lock_guard lock(mutex_);
  free_.push_back(&post);
}

void Engine::Submit(EnginePost& post, device::Completion completion) {
  post.completion_ = std::move(completion);
  {
    std::unique_lock lock(mutex_);
    if (ended_) {
      const Status failure = failure_;
      lock.unlock();
      return EndPost(post, failure);
    }
    submitted_.push_back(&post);
  }
  has_submitted_ = true;
  if (sleeping_) Wake();
}

void Engine::Poison(const Status& cause) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = cause;
  }
  poisoned_ = true;
  if (sleeping_) Wake();
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

void Engine::Loop() {
  base::Nanos quiet_since = Now();
  while (!stopping_ && !poisoned_) {
    if (Turn()) {
      quiet_since = Now();
    } else {
      Idle(quiet_since);
    }
  }
  if (poisoned_) EndAll();
}

bool Engine::Turn() {
  bool happened = TakeSubmitted();
  // A few times: what one message starts may be here at once.
  for (int i = 0; i < 8 && transport_->Progress(); ++i) happened = true;
  while (!changed_.empty()) {
    happened = true;
    PendingComm& op = *changed_.back();
    changed_.pop_back();
    op.Advance();
  }
  return FinishOver() || happened;
}

bool Engine::TakeSubmitted() {
  if (!has_submitted_) return false;
  std::deque<EnginePost*> posts;
  {
    std::lock_guard lock(mutex_);
    has_submitted_ = false;
    posts.swap(submitted_);
  }
  for (EnginePost* post : posts) Begin(*post);
  return true;
}

void Engine::Begin(EnginePost& post) {
  const base::Nanos deadline = Now() + op_timeout_;
  post.unfinished_ = static_cast<int64_t>(post.ops.size());
  for (const CommOp& op : post.ops) {
    entered_ = op.desc.seq;
    Active& active = active_.emplace_back(post, op, deadline);
    active.pending = transport_->Make(*this, active.op);
    active.pending->Begin();
  }
}

bool Engine::FinishOver() {
  bool finished = false;
  for (auto it = active_.begin(); it != active_.end();) {
    if (!it->pending->over()) {
      ++it;
      continue;
    }
    finished = true;
    EnginePost& post = it->post;
    left_ = it->op.desc.seq;
    it = active_.erase(it);
    if (--post.unfinished_ == 0) EndPost(post, {});
  }
  return finished;
}

ScratchMemory Engine::TakeScratch(int64_t bytes) {
  const auto fits = std::find_if(scratch_.begin(), scratch_.end(),
                                 [bytes](const auto& scratch) { return scratch.bytes >= bytes; });
  if (fits != scratch_.end()) {
    ScratchMemory scratch = std::move(*fits);
    scratch_.erase(fits);
    return scratch;
  }
  constexpr size_t kAlignment = 64;
  ScratchMemory scratch = {
      .owner = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes) + kAlignment),
      .bytes = bytes};
  const size_t over = reinterpret_cast<uintptr_t>(scratch.owner.get()) % kAlignment;
  scratch.data = scratch.owner.get() + (kAlignment - over) % kAlignment;
  return scratch;
}

void Engine::GiveScratch(ScratchMemory scratch) {
  if (scratch.bytes <= kKeptScratchBytes && scratch_.size() < kKeptScratches)
    scratch_.push_back(std::move(scratch));
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
  for (const Active& active : active_) {
    if (active.deadline > now) continue;
    Poison({Code::kDeadlineExceeded, active.pending->WhatIsMissing(op_timeout_)});
    return;
  }
}

void Engine::Idle(base::Nanos quiet_since) {
  if (!active_.empty()) CheckDeadlines();
  const base::Nanos quiet = Now() - quiet_since;
  if (quiet < (active_.empty() ? kLookWhileIdle : kLookWhilePending)) {
    sched_yield();
  } else {
    Sleep(active_.empty() ? base::Nanos::max() : transport_->sleep_max());
  }
}

void Engine::Sleep(base::Nanos limit) {
  sleeping_ = true;
  // Whoever submits, poisons or stops after this line sees sleeping_ and wakes us; who did before
  // is seen here.
  if (!has_submitted_ && !poisoned_ && !stopping_ && transport_->Arm()) {
    // poll() leaves out a descriptor that is -1.
    std::array<pollfd, 2> fds = {{{.fd = transport_->fd(), .events = POLLIN, .revents = 0},
                                  {.fd = wake_fd_, .events = POLLIN, .revents = 0}}};
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
    const timespec time = {.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
    ppoll(fds.data(), fds.size(), limit == base::Nanos::max() ? nullptr : &time, nullptr);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
  }
  sleeping_ = false;
}

void Engine::EndAll() {
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
    if (!transport_->Progress()) sched_yield();
  }
  changed_.clear();
  std::deque<EnginePost*> posts;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    posts.swap(submitted_);
  }
  for (auto it = active_.begin(); it != active_.end();) {
    if (std::find(posts.begin(), posts.end(), &it->post) == posts.end()) posts.push_back(&it->post);
    const auto next = std::next(it);
    // The transport has addresses in it until it is gone.
    if (!it->pending->idle()) orphans_.splice(orphans_.end(), active_, it);
    it = next;
  }
  active_.clear();
  for (EnginePost* post : posts) EndPost(*post, cause);
}

}  // namespace hir::comm
