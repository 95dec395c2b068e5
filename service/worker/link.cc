#include "service/worker/link.h"

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The daemon reads all the time; when it does not for that long, it is gone in all but name.
constexpr base::Nanos kSendTimeout = std::chrono::seconds(10);
// A thread that sleeps for a message is rung awake for what the socket has; its end shows then, or after that long.
constexpr base::Nanos kLookAtSocket = std::chrono::seconds(10);
// A client that waits for a run's end sends the next a few hundred microseconds later.
constexpr base::Nanos kLookForNext = std::chrono::microseconds(500);
// So long the main thread may be at a request before somebody else reads.
constexpr base::Nanos kStandInAfter = std::chrono::milliseconds(5);

}  // namespace

Link::Link(base::Fd socket, Options options, std::function<pb::Dumped()> dump)
    : options_(options),
      dump_(std::move(dump)),
      channel_(std::move(socket)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
  HIR_CHECK(timer_.valid());
  reader_ = std::thread([this] { StandIn(); });
  reader_.detach();  // Ends with the process.
}

void Link::SetTimer(base::Nanos time) {
  timer_runs_ = true;
  const itimerspec setting = {.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = time.count()}};
  HIR_CHECK(timerfd_settime(timer_.get(), 0, &setting, nullptr) == 0);
}

void Link::StandIn() {
  for (;;) {
    uint64_t times = 0;
    if (read(timer_.get(), &times, sizeof times) < 0) continue;  // Interrupted.
    std::unique_lock lock(mutex_);
    timer_runs_ = false;
    const base::Nanos busy_for = base::Clock::Steady().Now() - taken_;
    has_stand_in_ = is_busy_ && busy_for >= kStandInAfter;
    if (is_busy_ && !has_stand_in_) SetTimer(kStandInAfter - busy_for);  // Another request since.
    while (has_stand_in_) {
      lock.unlock();
      pollfd readable = {channel_.fd(), POLLIN, 0};
      (void)poll(&readable, 1, -1);
      lock.lock();
      // What comes for an idle main thread is its own to read.
      has_stand_in_ = is_busy_;
      if (has_stand_in_) ReadAll();
    }
  }
}

void Link::ReadAll() {
  for (;;) {
    auto message = channel_.Receive(/*block=*/false);
    // At once and without destructors: the main thread may be anywhere.
    if (!message.ok()) _exit(0);
    if (!message->has_value()) return;
    Read(std::move(**message));
  }
}

void Link::Read(Channel::Message message) {
  Request request;
  if (!request.message.ParseFromString(message.bytes) || request.message.generation() != options_.generation) return;
  request.fds = std::move(message.fds);
  if (request.message.has_dump()) {
    pb::FromWorker answer;
    *answer.mutable_dumped() = dump_();
    Answer(request.message.seq(), std::move(answer));
    return;
  }
  if (request.message.has_hello() && request.fds.size() == 2) {
    const int64_t index = options_.rank - request.message.hello().first_rank();
    auto mapped = BroadcastReceiver::Map(std::move(request.fds[0]), std::move(request.fds[1]), index);
    if (!mapped.ok()) _exit(1);
    broadcast_ = *std::move(mapped);
    base::BusyWait::OfProcess().set_mode(static_cast<base::BusyWait::Mode>(request.message.hello().busy_wait()));
  }
  if (request.message.has_rendezvous_value()) {
    auto& value = *request.message.mutable_rendezvous_value();
    values_.insert_or_assign(std::move(*value.mutable_key()), std::move(*value.mutable_value()));
    changed_.notify_all();
  } else {
    requests_.push_back(std::move(request));
  }
}

bool Link::Look(uint32_t bell, base::Look& look) const {
  if (!broadcast_) return false;  // Before Hello.
  while (broadcast_->bell() == bell) {
    if (look.IsOver()) return false;
  }
  look.Found();
  return true;
}

void Link::Sleep(uint32_t bell) {
  if (broadcast_) return broadcast_->Sleep(bell, kLookAtSocket);
  pollfd readable = {channel_.fd(), POLLIN, 0};
  (void)poll(&readable, 1, -1);
}

Link::Request Link::Next() {
  Request request;
  std::unique_lock lock(mutex_);
  is_busy_ = false;
  base::Look look(base::BusyWait::OfProcess(), kLookForNext);
  for (bool slept = false;;) {
    const uint32_t bell = broadcast_ ? broadcast_->bell() : 0;
    if (const auto posted = broadcast_ ? broadcast_->Take() : std::nullopt) {
      HIR_CHECK(posted_.ParseFromArray(posted->data(), static_cast<int>(posted->size())));
      request.posted = &posted_;
      break;
    }
    const bool rang = broadcast_ && broadcast_->TakeRing();
    if (slept || rang) ReadAll();
    if (!requests_.empty()) {
      request = std::move(requests_.front());
      requests_.pop_front();
      break;
    }
    lock.unlock();
    slept = !Look(bell, look);
    if (slept) Sleep(bell);
    lock.lock();
  }
  is_busy_ = true;
  taken_ = base::Clock::Steady().Now();
  if (!has_stand_in_ && !timer_runs_) SetTimer(kStandInAfter);
  return request;
}

void Link::AnswerPosted(pb::FromWorker message) {
  const bool failed = message.reply().has_error() || message.reply().poisoned();
  if (failed) Answer(0, std::move(message));  // First: who hears of the failure looks for it.
  broadcast_->Answer(failed);
}

void Link::Answer(int64_t seq, pb::FromWorker message) {
  message.set_rank(options_.rank);
  message.set_generation(options_.generation);
  message.set_seq(seq);
  if (!channel_.Send(message.SerializeAsString(), {}, kSendTimeout).ok()) _exit(1);
}

Status Link::Publish(std::string_view key, std::string_view bytes) {
  if (bytes.size() > comm::kRendezvousBytesMax) {
    return InvalidArgument(
        base::Cat("rendezvous value of ", bytes.size(), " bytes, at most ", comm::kRendezvousBytesMax));
  }
  pb::FromWorker message;
  message.mutable_rendezvous_publish()->set_key(std::string(key));
  message.mutable_rendezvous_publish()->set_value(std::string(bytes));
  Answer(0, std::move(message));
  return {};
}

Result<std::string> Link::Get(std::string_view key, base::Nanos timeout) {
  pb::FromWorker message;
  message.mutable_rendezvous_get()->set_key(std::string(key));
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
  }
  Answer(0, std::move(message));
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
    return Status(Code::kDeadlineExceeded, base::Cat("no rank published ", key, " in time"));
  }
  return values_.find(key)->second;
}

}  // namespace hir::service
