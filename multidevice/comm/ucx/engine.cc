#include "multidevice/comm/ucx/engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "csrc/base/check.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/ucx/ucx_op.h"

namespace hir::comm {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// How long the thread keeps looking (and yielding) before it sleeps: waking it takes 20 to 30 us,
// and with as many ranks as cores or more, a thread that only looks takes time from one that works.
constexpr base::Nanos kLookWhilePending = microseconds(100);
constexpr base::Nanos kLookWhileIdle = microseconds(20);
constexpr base::Nanos kSleepMax = milliseconds(2);  // While something is pending: for deadlines.
constexpr base::Nanos kDeadlineStep = milliseconds(1);
constexpr base::Nanos kCancelTime = milliseconds(500);  // For UCX to give receives back.
constexpr base::Nanos kCloseTime = milliseconds(500);

// What an allreduce of 8 ranks keeps in flight is 3 MiB.
constexpr int64_t kKeptScratchBytes = 4 << 20;
constexpr size_t kKeptScratches = 8;

base::Nanos Now() { return base::Clock::Steady().Now(); }

}  // namespace

void UcxPost::Start(device::Completion completion) { engine_.Submit(*this, std::move(completion)); }
void UcxPost::Skip(const Status& cause) {
  engine_.Poison(cause);
  engine_.Release(*this);
}

Engine::Engine(const Options& options, std::unique_ptr<UcxWorker> worker)
    : options_(options),
      worker_(std::move(worker)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { Loop(); }) {
  HIR_CHECK(wake_fd_ >= 0);
}

Engine::~Engine() {
  stopping_ = true;
  Wake();
  thread_.join();
  HIR_CHECK(free_.size() == posts_.size());
  if (!poisoned_) worker_->Close(kCloseTime);
  worker_.reset();  // Tells the orphans that it is over with them.
  close(wake_fd_);
}

UcxPost& Engine::NewPost() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    posts_.push_back(std::make_unique<UcxPost>(*this));
    free_.push_back(posts_.back().get());
  }
  UcxPost& post = *free_.back();
  free_.pop_back();
  return post;
}

void Engine::Release(UcxPost& post) {
  post.ops.clear();
  std::lock_guard lock(mutex_);
  free_.push_back(&post);
}

void Engine::Submit(UcxPost& post, device::Completion completion) {
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
  for (int i = 0; i < 8 && worker_->Progress(); ++i) happened = true;
  while (!changed_.empty()) {
    happened = true;
    UcxOp& op = *changed_.back();
    changed_.pop_back();
    op.TellDone();
    if (op.over()) Finish(op);
  }
  return happened;
}

bool Engine::TakeSubmitted() {
  if (!has_submitted_) return false;
  std::deque<UcxPost*> posts;
  {
    std::lock_guard lock(mutex_);
    has_submitted_ = false;
    posts.swap(submitted_);
  }
  for (UcxPost* post : posts) Begin(*post);
  return true;
}

void Engine::Begin(UcxPost& post) {
  const base::Nanos deadline = Now() + options_.op_timeout;
  post.unfinished_ = static_cast<int64_t>(post.ops.size());
  std::vector<UcxOp*> begun;
  for (const UcxOpDesc& desc : post.ops) {
    entered_ = desc.desc.seq;
    active_.push_back(std::make_unique<UcxOp>(*this, post, desc, deadline));
    begun.push_back(active_.back().get());
    begun.back()->Begin();
  }
  // Those that had nothing to send or receive; the others are told in changed_.
  for (UcxOp* op : begun) {
    if (op->over()) Finish(*op);
  }
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

void Engine::Finish(UcxOp& op) {
  UcxPost& post = op.post();
  left_ = op.desc().seq;
  std::erase_if(active_, [&op](const auto& other) { return other.get() == &op; });
  if (--post.unfinished_ == 0) EndPost(post, {});
}

void Engine::EndPost(UcxPost& post, const Status& status) {
  device::Completion completion = std::move(post.completion_);
  Release(post);
  completion.Done(status);
}

void Engine::CheckDeadlines() {
  const base::Nanos now = Now();
  if (now < next_deadline_check_) return;
  next_deadline_check_ = now + kDeadlineStep;
  for (const auto& op : active_) {
    if (op->deadline() > now) continue;
    Poison({Code::kDeadlineExceeded, op->WhatIsMissing(options_.op_timeout)});
    return;
  }
}

void Engine::Idle(base::Nanos quiet_since) {
  if (!active_.empty()) CheckDeadlines();
  const base::Nanos quiet = Now() - quiet_since;
  if (quiet < (active_.empty() ? kLookWhileIdle : kLookWhilePending)) {
    sched_yield();
  } else {
    Sleep(active_.empty() ? base::Nanos::max() : kSleepMax);
  }
}

void Engine::Sleep(base::Nanos limit) {
  sleeping_ = true;
  // Whoever submits, poisons or stops after this line sees sleeping_ and wakes us; who did before
  // is seen here.
  if (!has_submitted_ && !poisoned_ && !stopping_ && worker_->Arm()) {
    std::array<pollfd, 2> fds = {{{.fd = worker_->fd(), .events = POLLIN, .revents = 0},
                                  {.fd = wake_fd_, .events = POLLIN, .revents = 0}}};
    const int timeout_ms = limit == base::Nanos::max()
                               ? -1
                               : static_cast<int>(std::chrono::ceil<milliseconds>(limit).count());
    poll(fds.data(), fds.size(), timeout_ms);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_fd_, &count, sizeof count);
  }
  sleeping_ = false;
}

void Engine::EndAll() {
  const Status cause = failure();
  const auto receiving = [this] {
    return std::any_of(active_.begin(), active_.end(),
                       [](const auto& op) { return op->receiving(); });
  };
  for (const auto& op : active_) op->Cancel();
  // A receive that a message has matched cannot be cancelled, but it ends soon, or its sender is
  // gone. After this loop the worker makes no progress any more, so nobody touches the buffers of
  // what has ended.
  const base::Nanos deadline = Now() + kCancelTime;
  while (receiving() && Now() < deadline) {
    if (!worker_->Progress()) sched_yield();
  }
  changed_.clear();
  std::deque<UcxPost*> posts;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    posts.swap(submitted_);
  }
  for (auto& op : active_) {
    if (std::find(posts.begin(), posts.end(), &op->post()) == posts.end())
      posts.push_back(&op->post());
    if (!op->idle())
      orphans_.push_back(std::move(op));  // UCX has addresses in it until the worker is gone.
  }
  active_.clear();
  for (UcxPost* post : posts) EndPost(*post, cause);
}

}  // namespace hir::comm
