#include "service/supervise/fleet.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "service/os/process_usage.h"
#include "service/supervise/child_error.h"
#include "service/supervise/stuck.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

// A short run is over before a thread that sleeps would have woken for it.
constexpr base::Nanos kLookBeforeSleep = std::chrono::microseconds(200);
// So long the replies of a call wake nobody but for the last one. A rank that asks for another's rendezvous, or fails
// where others go on, waits as long.
constexpr base::Nanos kAwaitLast = milliseconds(1);
constexpr base::Nanos kSendTimeout = std::chrono::seconds(2);
// A dead peer can show first as a failed communication of another rank; that long we look for the death behind it.
constexpr base::Nanos kDeathGrace = milliseconds(50);
// A process that is killed has its socket closed before it ends: on a machine with much to do long before.
constexpr base::Nanos kEndAfterSocket = std::chrono::seconds(1);
constexpr base::Nanos kOthersGrace = std::chrono::seconds(1);
constexpr base::Nanos kDumpTimeout = milliseconds(300);
constexpr base::Nanos kAskEvery = std::chrono::seconds(1);  // What the ranks of a call are at.
constexpr base::Nanos kExitTimeout = std::chrono::seconds(2);

using base::Now;

timespec ToTimespec(base::Nanos timeout) {
  const int64_t ns = std::max<int64_t>(timeout.count(), 0);
  return {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

int PollMs(base::Nanos timeout) {
  const int64_t ms = std::chrono::ceil<milliseconds>(timeout).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1 << 30));
}

// The same in as few messages as hold their descriptors: every message costs its sender and its receiver a wakeup.
std::vector<RankMessage> Batches(std::vector<RankMessage> messages) {
  std::vector<RankMessage> batches;
  for (RankMessage& message : messages) {
    if (batches.empty() || batches.back().fds.size() + message.fds.size() > kChannelFdsMax) {
      batches.push_back(std::move(message));
      continue;
    }
    RankMessage& batch = batches.back();
    if (!batch.message.has_batch()) {
      pb::ToWorker first = std::move(batch.message);
      batch.message = {};
      *batch.message.mutable_batch()->add_messages() = std::move(first);
    }
    *batch.message.mutable_batch()->add_messages() = std::move(message.message);
    batch.fds.insert(batch.fds.end(), message.fds.begin(), message.fds.end());
  }
  return batches;
}

}  // namespace

Fleet::Fleet(FleetOptions options)
    : options_(std::move(options)),
      busy_wait_(options_.busy_wait),
      heartbeat_(options_.heartbeat, Heartbeat::SilenceMax(options_.heartbeat)) {
  Publish();
}

Fleet::~Fleet() {
  for (Worker& worker : workers_) worker.channel.reset();  // They exit when their socket ends.
  if (broadcast_) broadcast_->Ring();
  const base::Nanos deadline = Now() + kExitTimeout;
  for (Worker& worker : workers_) worker.process.Ended(std::max(base::Nanos(0), deadline - Now()));
  for (size_t rank = 0; rank < workers_.size(); ++rank) leaving_.Add(NameOf(rank), std::move(workers_[rank].process));
}

std::string Fleet::NameOf(size_t rank) const {
  return base::Cat("rank ", NumberOf(rank), " of generation ", generation_);
}

Status Fleet::Spawn(int64_t rank) {
  HIR_ASSIGN(auto ends, Channel::Pair());
  std::vector<std::string> args = {"--role=worker", base::Cat("--rank=", NumberOf(static_cast<size_t>(rank))),
                                   base::Cat("--parent-pid=", getpid()), base::Cat("--generation=", generation_),
                                   base::Cat("--device=", options_.devices[static_cast<size_t>(rank)])};
  if (!options_.cores.empty())
    args.push_back(base::Cat("--cores=", base::Join(options_.cores[static_cast<size_t>(rank)], ",")));
  if (segments_) args.push_back(base::Cat("--segments=", segments_->path()));
  args.insert(args.end(), options_.worker_args.begin(), options_.worker_args.end());
  HIR_ASSIGN(Process process,
             options_.spawn ? options_.spawn(ends.second) : Process::Spawn(options_.worker_path, args, ends.second));
  workers_.push_back({std::move(process), std::make_unique<Channel>(std::move(ends.first))});
  return {};
}

Status Fleet::Start(int64_t generation) {
  HIR_CHECK(!healthy() && generation > generation_);
  (void)leaving_.Wait(kLeaveTimeout);  // Devices have their memory back then. What stays is in the snapshot.
  generation_ = generation;
  starting_ = true;
  keys_ = {};
  dumped_.assign(static_cast<size_t>(options_.num_ranks()), {});
  posted_ = false;
  Result<BroadcastSender> broadcast = BroadcastSender::Create(options_.num_ranks());
  if (!broadcast.ok()) return Break(broadcast.status());
  broadcast_ = *std::move(broadcast);
  // Without one they lie in /dev/shm itself, where that can be written.
  if (Result<ScratchFolder> made = ScratchFolder::Make("/dev/shm"); made.ok()) segments_.emplace(*std::move(made));
  for (int64_t rank = 0; rank < options_.num_ranks(); ++rank) {
    if (Status status = Spawn(rank); !status.ok()) return Break(std::move(status));
  }
  Publish();
  std::vector<std::vector<RankMessage>> messages(static_cast<size_t>(options_.num_ranks()));
  for (auto& of_rank : messages) {
    RankMessage& message = of_rank.emplace_back();
    message.fds = {broadcast_->memory_fd(), broadcast_->answered_fd()};
    pb::Hello& hello = *message.message.mutable_hello();
    hello.set_num_ranks(options_.abroad.num_ranks > 0 ? options_.abroad.num_ranks : options_.num_ranks());
    hello.set_first_rank(options_.abroad.first_rank);
    hello.mutable_absent()->Add(options_.abroad.absent.begin(), options_.abroad.absent.end());
    hello.mutable_nodes()->Add(options_.abroad.nodes.begin(), options_.abroad.nodes.end());
    hello.set_num_threads(options_.threads_per_rank);
    hello.set_setup_timeout_ms(PollMs(options_.setup_timeout));
    hello.set_comm_timeout_ms(PollMs(options_.comm_timeout));
    hello.set_busy_wait(static_cast<pb::Hello::BusyWait>(options_.busy_wait));
  }
  const Status status = Call(std::move(messages), {options_.setup_timeout, "setup_timeout_ms"}, "the start of the mesh",
                             Waits::kEachOther);
  if (!status.ok() && healthy()) (void)Break(status);  // It said why it cannot.
  starting_ = false;
  Publish();
  return status;
}

Status Fleet::Send(int64_t rank, RankMessage& message) {
  message.message.set_rank(NumberOf(static_cast<size_t>(rank)));
  message.message.set_generation(generation_);
  message.message.set_seq(++seq_);
  Worker& worker = workers_[static_cast<size_t>(rank)];
  const Status status = worker.channel->Send(message.message.SerializeAsString(), message.fds, kSendTimeout);
  return status.ok() ? status : status.WithContext(base::Cat("rank ", message.message.rank()));
}

void Fleet::Pause() { sched_yield(); }

void Fleet::Interrupt(const Status& cause) {
  {
    const std::scoped_lock lock(mutex_);
    interrupt_ = cause;
  }
  interrupted_.Signal();
}

void Fleet::Nudge() {
  nudged_ = true;
  interrupted_.Signal();
}

bool Fleet::TakeNudge() {
  if (!nudged_.load(std::memory_order_relaxed) || !nudged_.exchange(false)) return false;
  interrupted_.Clear();
  if (!interrupt().ok()) interrupted_.Signal();  // It stays so.
  return true;
}

Status Fleet::interrupt() const {
  const std::scoped_lock lock(mutex_);
  return interrupt_;
}

Status Fleet::Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
                   Waits waits) {
  HIR_CHECK(healthy() && messages.size() == workers_.size());
  first_error_ = {};
  measured_.assign(workers_.size(), {});
  ++calls_;
  began_ = Now();
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    for (RankMessage& message : Batches(std::move(messages[rank]))) {
      const Status sent = Send(static_cast<int64_t>(rank), message);
      if (sent.code() == Code::kUnavailable) return Break(Death(static_cast<int64_t>(rank), what));
      if (sent.code() == Code::kDeadlineExceeded) return Break(Stuck(what, timeout));
      if (!sent.ok()) return Break(sent);
      ++workers_[rank].awaited;
    }
  }
  broadcast_->Ring();
  return Await(timeout, what, waits);
}

bool Fleet::Post(const pb::Execute& execute) {
  HIR_CHECK(healthy() && !UnderWay());
  const size_t bytes = execute.ByteSizeLong();
  if (bytes > kBroadcastBytesMax) return false;
  execute.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(broadcast_->message().data()));
  first_error_ = {};
  ++calls_;
  began_ = Now();
  for (Worker& worker : workers_) worker.awaited = 1;
  posted_ = true;
  broadcast_->Post(bytes);
  return true;
}

Status Fleet::TakeAnswers() {
  broadcast_->Clear();
  if (!posted_ || !broadcast_->answered()) return {};
  posted_ = false;
  if (broadcast_->failed()) {
    for (int64_t rank = 0; rank < options_.num_ranks(); ++rank) HIR_TRY(Receive(rank));
  }
  for (Worker& worker : workers_) worker.awaited = 0;
  return {};
}

bool Fleet::TakePosted() {
  if (!posted_ || !broadcast_->answered() || broadcast_->failed()) return false;
  return TakeAnswers().ok();
}

Status Fleet::Await(TimeLimit timeout, std::string_view what, Waits waits) {
  if (!healthy()) return failure_;
  if (posted_) StopLooking();  // From now on it is this thread that does.
  base::Nanos deadline = began_ + timeout.time;
  const base::Nanos sent_at = Now();
  base::Look look(busy_wait_, kLookBeforeSleep);
  base::Nanos ask_at = starting_ ? base::Nanos::max() : sent_at + kAskEvery;
  base::Nanos look_at = look_ ? base::Nanos() : base::Nanos::max();
  while (UnderWay()) {
    const base::Nanos now = Now();
    if (look_ && (TakeNudge() || now >= look_at)) {
      const Result<base::Nanos> next = look_();
      if (!next.ok()) {
        std::string where;
        if (Status failure = Ask(what, where); !failure.ok()) return Break(std::move(failure));
        if (!UnderWay()) break;  // It has ended by itself.
        return Break({next.status().code(), base::Cat(next.status().message(), ": ", where, Next())});
      }
      look_at = *next;
    }
    const bool looks = !look.IsOver();
    const bool for_last = !looks && !posted_ && now < sent_at + kAwaitLast;
    const base::Nanos until = looks      ? base::Nanos{}
                              : for_last ? std::min(deadline, sent_at + kAwaitLast)
                                         : std::min({deadline, ask_at, look_at});
    if (Status failure = Pump(until, what, interrupted_.fd(), for_last ? Wakes::kLast : Wakes::kAny); !failure.ok())
      return Break(std::move(failure));
    if (const Status cause = interrupt(); !cause.ok()) return Break(cause.WithContext(what));
    if (first_error_.poisoned) return Break(Poisoned(what));
    // One rank that failed where others go on leaves them waiting for it: what is wrong with the program shows on all.
    const bool failed = !first_error_.status.ok() && waits == Waits::kEachOther;
    if (failed) deadline = std::min(deadline, failed_at_ + kOthersGrace);
    if (UnderWay() && Now() >= deadline) return Break(failed ? first_error_.status : Stuck(what, timeout));
    if (UnderWay() && Now() >= ask_at) {
      std::string where;
      if (Status failure = Ask(what, where); !failure.ok()) return Break(std::move(failure));
      if (late_ && UnderWay()) late_(what, where);
      ask_at = Now() + kAskEvery;
    }
  }
  look.Found();
  return first_error_.status;
}

bool Fleet::Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) {
  if (healthy() && !UnderWay()) {
    if (Status silent = Beat(); !silent.ok()) {
      (void)Break(std::move(silent));
      return false;
    }
    timeout = std::min(timeout, heartbeat_.due() - Now());
  }
  std::vector<pollfd> fds = Descriptors(wake_fd, Wakes::kAny);
  const timespec time = ToTimespec(timeout);
  if (!leaving_.empty() && !UnderWay()) {
    (void)leaving_.Wait({});
    Publish();
  }
  lock.unlock();
  const int ready = ppoll(fds.data(), fds.size(), &time, nullptr);
  lock.lock();
  if (ready <= 0) return false;
  // What goes wrong with what was posted is for Await to say.
  Status failure;
  if (!UnderWay()) {
    failure = HandleReady(fds, "idle", Wakes::kAny);
  } else if (broadcast_->answered() && !broadcast_->failed()) {
    failure = TakeAnswers();
  }
  if (!failure.ok()) (void)Break(std::move(failure));
  return fds.back().revents != 0;
}

std::vector<pollfd> Fleet::Descriptors(int wake_fd, Wakes wakes) const {
  const auto last =
      std::find_if(workers_.rbegin(), workers_.rend(), [](const Worker& worker) { return worker.awaited > 0; });
  std::vector<pollfd> fds;
  fds.reserve(2 * workers_.size() + 2);
  for (const Worker& worker : workers_) {
    // A negative descriptor is passed over.
    const bool wakes_us = wakes == Wakes::kAny || (last != workers_.rend() && &worker == &*last);
    fds.push_back({wakes_us ? worker.channel->fd() : -1, POLLIN, 0});
    fds.push_back({worker.process.fd(), POLLIN, 0});
  }
  fds.push_back({broadcast_ ? broadcast_->answered_fd() : -1, POLLIN, 0});
  fds.push_back({wake_fd, POLLIN, 0});
  return fds;
}

// One poll, and all that there is.
Status Fleet::Pump(base::Nanos deadline, std::string_view what, int wake_fd, Wakes wakes) {
  std::vector<pollfd> fds = Descriptors(wake_fd, wakes);
  const timespec timeout = ToTimespec(deadline - Now());
  if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return {};
  return HandleReady(fds, what, wakes);
}

// Sockets before processes: what a process said before its end counts.
Status Fleet::HandleReady(std::span<const pollfd> fds, std::string_view what, Wakes wakes) {
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (fds[2 * rank].revents == 0 && (wakes == Wakes::kAny || workers_[rank].awaited == 0)) continue;
    const Status received = Receive(static_cast<int64_t>(rank));
    if (received.code() == Code::kResourceExhausted)
      return Unavailable(base::Cat("rank ", NumberOf(rank), ": ", received.message(), ", during ", what, Next()));
    if (!received.ok()) return Death(static_cast<int64_t>(rank), what);
  }
  if (fds[2 * workers_.size()].revents != 0) HIR_TRY(TakeAnswers());
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (fds[2 * rank + 1].revents != 0) return Death(static_cast<int64_t>(rank), what);
  }
  return {};
}

Status Fleet::Receive(int64_t rank) {
  for (;;) {
    HIR_ASSIGN(auto message, workers_[static_cast<size_t>(rank)].channel->Receive(/*block=*/false));
    if (!message.has_value()) return {};
    pb::FromWorker from;
    if (!from.ParseFromString(message->bytes)) return {Code::kDataLoss, "not a message"};
    if (from.generation() == generation_) HIR_TRY(Handle(rank, from));
  }
}

Status Fleet::Handle(int64_t rank, pb::FromWorker& from) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (from.has_reply()) {
    if (worker.awaited > 0) --worker.awaited;  // A rank may say what nobody asked.
    const Status status = FromError(from.reply().error());
    if (!status.ok() && first_error_.status.ok()) {
      first_error_.status = status.WithContext(base::Cat("rank ", NumberOf(static_cast<size_t>(rank))));
      failed_at_ = Now();
    }
    first_error_.poisoned |= from.reply().poisoned();
    if (from.reply().has_measured())
      measured_[static_cast<size_t>(rank)].Swap(from.mutable_reply()->mutable_measured());
  } else if (from.has_rendezvous_publish()) {
    const auto& [key, value] = std::tie(from.rendezvous_publish().key(), from.rendezvous_publish().value());
    HIR_TRY(Provide(key, value));
    if (options_.abroad.published) options_.abroad.published(key, value);
  } else if (from.has_rendezvous_get()) {
    const std::string& key = from.rendezvous_get().key();
    const bool is_new = !keys_.Has(key) && !keys_.IsWanted(key);
    HIR_ASSIGN(const std::string* const value, keys_.Get(rank, key));
    if (value != nullptr) return Tell(rank, key, *value);
    if (is_new && options_.abroad.wanted) options_.abroad.wanted(key);
  } else if (from.has_dumped() && !dumped_.empty()) {  // Empty: nobody asked.
    dumped_[static_cast<size_t>(rank)] = from.dumped();
    worker.asked = false;
  }
  return {};
}

Status Fleet::Provide(const std::string& key, const std::string& value) {
  HIR_ASSIGN(const std::vector<int64_t> waiting, keys_.Publish(key, value));
  for (const int64_t rank : waiting) HIR_TRY(Tell(rank, key, value));
  return {};
}

Status Fleet::Tell(int64_t rank, const std::string& key, const std::string& value) {
  RankMessage message;
  message.message.mutable_rendezvous_value()->set_key(key);
  message.message.mutable_rendezvous_value()->set_value(value);
  return Send(rank, message);
}

Status Fleet::Death(int64_t rank, std::string_view what) {
  // Its socket may end a moment before the process does.
  const auto ended = workers_[static_cast<size_t>(rank)].process.Ended(kEndAfterSocket);
  return Unavailable(base::Cat("rank ", NumberOf(static_cast<size_t>(rank)), " died (",
                               ended.value_or("its socket ended"), ") during ", what, Next()));
}

Status Fleet::FindDead(std::string_view what, base::Nanos timeout) {
  std::vector<pollfd> fds;
  for (const Worker& worker : workers_) fds.push_back({worker.process.fd(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), PollMs(timeout)) <= 0) return {};
  for (size_t rank = 0; rank < fds.size(); ++rank) {
    if (fds[rank].revents != 0) return Death(static_cast<int64_t>(rank), what);
  }
  return {};
}

Status Fleet::Poisoned(std::string_view what) {
  const Status dead = FindDead(what, kDeathGrace);
  if (!dead.ok()) return dead;
  if (first_error_.status.ok())  // No worker of ours says so.
    return Internal(base::Cat(what, ": a rank gave its communicators up, and not why", Next()));
  const Status status = first_error_.status.WithContext(what);
  if (status.code() != Code::kDeadlineExceeded) return {status.code(), base::Cat(status.message(), Next())};
  std::string where;
  if (UnderWay()) (void)Ask(what, where);  // A death in between is as good a cause as this one, but later.
  return {Code::kDeadlineExceeded, base::Cat(status.message(), ", longer than comm_timeout_ms = ",
                                             PollMs(options_.comm_timeout), where.empty() ? "" : "; ", where, Next())};
}

Status Fleet::Ask(std::string_view what, std::string& where) {
  std::vector<int64_t> awaited;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    awaited.push_back(workers_[rank].awaited);
    dumped_[rank].Clear();
    dumped_[rank].set_comm_entered(kNoAnswer);
    if (workers_[rank].asked) continue;
    RankMessage dump;
    dump.message.mutable_dump();
    workers_[rank].asked = Send(static_cast<int64_t>(rank), dump).ok();  // Else it does not read: no answer either.
  }
  broadcast_->Ring();
  const base::Nanos deadline = Now() + kDumpTimeout;
  const auto answered = [](const pb::Dumped& dumped) { return dumped.comm_entered() != kNoAnswer; };
  while (UnderWay() && Now() < deadline && !std::all_of(dumped_.begin(), dumped_.end(), answered)) {
    HIR_TRY(Pump(deadline, what, -1));
  }
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (!answered(dumped_[rank])) dumped_[rank].set_where(HoldOf(workers_[rank].process.pid()));
  }
  where = DescribeStuck(dumped_, awaited, options_.abroad.first_rank);
  return {};
}

// The rank that holds the others up.
Status Fleet::Stuck(std::string_view what, TimeLimit timeout) {
  std::string where;
  HIR_TRY(Ask(what, where));
  if (!UnderWay()) where = "its ranks ended it as it was given up";
  return {Code::kDeadlineExceeded,
          base::Cat(what, " took longer than ", timeout.limit, timeout.limit.empty() ? "" : " = ", PollMs(timeout.time),
                    " ms: ", where, Next())};
}

Status Fleet::Beat() {
  const base::Nanos now = Now();
  if (std::exchange(heard_calls_, calls_) != calls_) heartbeat_.Heard(now);
  std::vector<int64_t> deaf = broadcast_->Deaf();
  switch (heartbeat_.Look(now, deaf.empty())) {
    case Heartbeat::Next::kNothing: return {};
    case Heartbeat::Next::kAsk: broadcast_->Ring(); return {};
    case Heartbeat::Next::kGiveUp: break;
  }
  for (int64_t& rank : deaf) rank += options_.abroad.first_rank;
  std::vector<std::string> holds;
  for (const Worker& worker : workers_) holds.push_back(HoldOf(worker.process.pid()));
  return {Code::kDeadlineExceeded, base::Cat(SilentText(deaf, holds, options_.abroad.first_rank), " at rest, for ",
                                             PollMs(Heartbeat::SilenceMax(options_.heartbeat)),
                                             " ms; heartbeat_ms = ", PollMs(options_.heartbeat), Next())};
}

int64_t Fleet::Awaited() const {
  int64_t sum = 0;
  for (const Worker& worker : workers_) sum += worker.awaited;
  return sum;
}

Status Fleet::Break(Status cause) {
  // Nobody who hears of the cause waits for their end; the next Start does, a moment.
  for (size_t rank = 0; rank < workers_.size(); ++rank) leaving_.Add(NameOf(rank), std::move(workers_[rank].process));
  workers_.clear();
  segments_.reset();
  posted_ = false;
  failure_ = cause;
  Publish();
  return cause;
}

void Fleet::Publish() {
  const std::scoped_lock lock(mutex_);
  snapshot_.generation = generation_;
  const bool was_healthy = std::exchange(snapshot_.healthy, healthy() && !starting_);
  if (snapshot_.healthy != was_healthy && on_health_) on_health_(snapshot_.healthy);
  snapshot_.pids.clear();
  for (const Worker& worker : workers_) snapshot_.pids.push_back(worker.process.pid());
  snapshot_.lingering = leaving_.Lingering();
  snapshot_.failure = failure_.ok() ? "" : failure_.ToString();
}

void Fleet::OnHealth(std::function<void(bool)> heard) {
  const std::scoped_lock lock(mutex_);
  on_health_ = std::move(heard);
  if (on_health_) on_health_(snapshot_.healthy);
}

Fleet::Snapshot Fleet::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return snapshot_;
}

}  // namespace hir::service
