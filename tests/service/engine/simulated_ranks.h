// Ranks that are simulated on a clock of their own, by seed: messages that take time or are lost, ranks that die,
// freeze or are slow, meshes that do not start. One thread does all of it: what a client does at a time is an event,
// which comes while the sequencer waits for ranks.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "service/supervise/heartbeat.h"
#include "service/supervise/ranks.h"

namespace hir::service {

// The clock, and what happens when.
class Events final : public base::Clock {
 public:
  base::Nanos Now() const override { return now_; }
  void At(base::Nanos time, std::function<void()> event) {
    events_.emplace(std::pair{std::max(time, now_), ++number_}, std::move(event));
  }
  void In(base::Nanos time, std::function<void()> event) { At(now_ + time, std::move(event)); }
  // The next event, if it is not after `until`; else it is `until`, and false.
  bool Step(base::Nanos until) {
    if (events_.empty() || events_.begin()->first.first > until) {
      now_ = std::max(now_, until);
      return false;
    }
    const auto node = events_.extract(events_.begin());
    now_ = std::max(now_, node.key().first);
    node.mapped()();
    return true;
  }

 private:
  base::Nanos now_ = {};
  int64_t number_ = 0;
  std::map<std::pair<base::Nanos, int64_t>, std::function<void()>> events_;
};

// What an output is, of its program and inputs: on each rank of that rank's inputs.
inline int64_t Mixed(int64_t program, int64_t output, const std::vector<int64_t>& inputs) {
  uint64_t mixed = static_cast<uint64_t>(program * 1000 + output) + 0x9e3779b97f4a7c15;
  for (const int64_t input : inputs)
    mixed = (mixed ^ static_cast<uint64_t>(input)) * 0xff51afd7ed558ccd + (mixed >> 29);
  return static_cast<int64_t>(mixed);
}

class SimulatedRanks final : public Ranks {
 public:
  struct Options {
    int64_t ranks = 4;
    uint64_t seed = 0;
    bool on_devices = false;
    base::BusyWait::Mode busy_wait = base::BusyWait::Mode::kOff;
    base::Nanos delay_max = std::chrono::microseconds(100);  // Of a message.
    base::Nanos send = std::chrono::nanoseconds(500);        // One after the other.
    base::Nanos run_max = std::chrono::milliseconds(2);
    base::Nanos heartbeat = {};                               // As of FleetOptions,
    base::Nanos silence_max = std::chrono::milliseconds(60);  // and of Heartbeat.
    base::Nanos cancel_grace = std::chrono::seconds(1);       // For the sequencer.
  };
  enum class Fault { kDeath, kFreeze, kSlow, kLoss, kNoStart, kRefusal };

  SimulatedRanks(Options options, std::shared_ptr<Events> events)
      : options_(options),
        events_(std::move(events)),
        busy_wait_(options.busy_wait, *events_, [this] { Pause(); }),
        random_(options.seed),
        heartbeat_(options.heartbeat, options.silence_max) {}
  ~SimulatedRanks() override { *alive_ = false; }

  // --- The simulation's side.

  // From now on; its number is in whatever it causes: "(fault 3)". A rank of this generation.
  int64_t Inject(Fault fault) {
    ++num_faults_;
    const int64_t rank = Below(options_.ranks);
    const std::string name = base::Cat(" (fault ", num_faults_, ")");
    if (fault == Fault::kNoStart) no_start_ = name;
    if (!healthy_) return num_faults_;
    Rank& hit = ranks_[static_cast<size_t>(rank)];
    if (fault == Fault::kSlow) hit.slow = std::chrono::milliseconds(1 + Below(20));
    if (fault == Fault::kRefusal) hit.refuses = name;
    if (fault == Fault::kLoss) hit.loses = true;
    if (fault == Fault::kFreeze) hit.frozen = true;
    if ((fault == Fault::kLoss || fault == Fault::kFreeze) && stuck_.empty()) stuck_ = name;
    if (fault == Fault::kDeath && !hit.dead) {
      hit.dead = true;
      events_->In(Delay(), [this, alive = alive_, name, rank, generation = generation_] {
        if (*alive && generation == generation_ && healthy_ && noticed_.ok())
          noticed_ = Unavailable(base::Cat("rank ", rank, " died", name));
      });
    }
    return num_faults_;
  }
  // The element that a rank has of a shard; nothing: none.
  std::optional<int64_t> Value(int64_t rank, int64_t shard) const {
    const auto& values = options_.on_devices ? ranks_.at(static_cast<size_t>(rank)).memory : memory_;
    const auto found = values.find(shard);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
  void SetValue(int64_t shard, int64_t value) { memory_[shard] = value; }  // Of the daemon's memory.
  base::Nanos last_heard() const { return last_heard_; }                   // When the last rank got the latest message.

  int64_t num_posted() const { return num_posted_; }    // Calls of Post.
  int64_t num_started() const { return num_started_; }  // Of generations: those that served.
  int64_t num_taken() const { return num_taken_; }      // That TakePosted saw the end of.
  int64_t num_silent() const { return num_silent_; }    // Generations that ended because a rank at rest was silent.

  // --- Ranks.

  int64_t size() const override { return options_.ranks; }
  const base::Clock& clock() const override { return *events_; }
  bool healthy() const override { return healthy_; }
  const Status& failure() const override { return failure_; }
  int64_t generation() const override { return generation_; }
  const std::vector<::hostir::v1::Measured>& measured() const override { return measured_; }
  base::BusyWait& busy_wait() override { return busy_wait_; }
  void Look() override { looking_ = true; }
  void StopLooking() override { looking_ = false; }
  void Pause() override { Run(std::chrono::microseconds(1)); }
  void OnLate(Late) override {}
  void OnWait(Waiting look) override { look_ = std::move(look); }
  void Nudge() override { look_at_ = {}; }
  void Interrupt(const Status& cause) override { interrupt_ = cause; }

  Status Start() override {
    HIR_CHECK(!healthy_);
    ++generation_;
    ranks_.assign(static_cast<size_t>(options_.ranks), {});
    for (Rank& rank : ranks_) rank.heard = num_asked_;
    heartbeat_.Heard(events_->Now());
    noticed_ = {};
    stuck_.clear();
    posted_ = looking_ = poisoned_ = false;
    awaited_ = 0;
    const base::Nanos until = events_->Now() + std::chrono::milliseconds(1 + Below(50));
    do {
      (void)Step(until);
    } while (events_->Now() < until);
    if (!interrupt_.ok()) return failure_ = interrupt_;
    if (!no_start_.empty()) return failure_ = Unavailable("no start" + std::exchange(no_start_, ""));
    ++num_started_;
    SetHealthy(true);
    return {};
  }

  Status Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
              Waits waits) override {
    HIR_CHECK(healthy_ && awaited_ == 0);
    Begin();
    for (int64_t rank = 0; rank < size(); ++rank) {
      std::vector<RankMessage>& of_rank = messages[static_cast<size_t>(rank)];
      if (of_rank.empty()) continue;
      ++awaited_;
      std::vector<::hostir::v1::ToWorker> sent;
      for (RankMessage& message : of_rank) {
        TakeMemory(message);
        sent.push_back(std::move(message.message));
      }
      Send(rank, std::move(sent));
    }
    return Await(timeout, what, waits);
  }

  bool Post(const ::hostir::v1::Execute& execute) override {
    HIR_CHECK(healthy_ && awaited_ == 0 && !posted_);
    Begin();
    posted_ = true;
    ++num_posted_;
    awaited_ = size();
    ::hostir::v1::ToWorker message;
    *message.mutable_execute() = execute;
    for (int64_t rank = 0; rank < size(); ++rank) Send(rank, {message});
    return true;
  }

  Status Await(TimeLimit timeout, std::string_view what, Waits waits) override {
    if (!healthy_) return failure_;
    looking_ = false;
    base::Nanos deadline = began_ + timeout.time;
    for (;;) {
      if (!noticed_.ok()) return Break(noticed_.WithContext(what));
      if (!interrupt_.ok()) return Break(interrupt_.WithContext(what));
      if (poisoned_ && !first_error_.ok()) return Break(first_error_);
      if (awaited_ == 0) break;
      const bool failed = !first_error_.ok() && waits == Waits::kEachOther;
      if (failed) deadline = std::min(deadline, failed_at_ + std::chrono::seconds(1));
      if (Status given_up = Step(deadline); !given_up.ok()) return Break(given_up);
      if (events_->Now() < deadline || awaited_ == 0 || !noticed_.ok() || !interrupt_.ok()) continue;
      return Break(failed ? first_error_ : Status(Code::kDeadlineExceeded, base::Cat(what, " took too long", stuck_)));
    }
    posted_ = false;
    return first_error_;
  }

  bool TakePosted() override {
    if (!Answered()) return false;
    posted_ = false;
    ++num_taken_;
    return true;
  }

  bool Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) override {
    base::Nanos until = events_->Now() + timeout;
    if (healthy_ && !posted_ && awaited_ == 0) {
      if (Beat()) return false;
      until = std::min(until, heartbeat_.due());
    }
    lock.unlock();
    bool woken = false;
    for (;;) {
      pollfd wake = {wake_fd, POLLIN, 0};
      woken = poll(&wake, 1, 0) > 0;
      if (woken || !noticed_.ok() || (posted_ && !first_error_.ok()) || (Answered() && !looking_)) break;
      if (!events_->Step(until)) break;
    }
    lock.lock();
    if (Answered()) posted_ = false;
    if (!posted_ && awaited_ == 0 && !noticed_.ok() && healthy_) (void)Break(noticed_.WithContext("idle"));
    return woken;
  }

  Snapshot snapshot() const override {
    return {.generation = generation_, .healthy = healthy_, .failure = failure_.ok() ? "" : failure_.ToString()};
  }
  void OnHealth(std::function<void(bool)> heard) override {
    heard_ = std::move(heard);
    if (heard_) heard_(healthy_);
  }

 private:
  struct Rank {
    bool dead = false;
    bool frozen = false;
    bool loses = false;   // The next message to it.
    int64_t heard = 0;    // The question that it has answered last, of its life.
    std::string refuses;  // The next run, by that name.
    base::Nanos slow = {};
    base::Nanos arrival = {};  // Of the latest message: they do not overtake one another.
    std::set<int64_t> programs;
    std::set<int64_t> bound;
    std::map<int64_t, int64_t> memory;  // Of its own, on devices.
    std::optional<::hostir::v1::Execute> ready;
  };

  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit)); }
  base::Nanos Delay() { return base::Nanos(1 + Below(options_.delay_max.count())); }
  void Run(base::Nanos time) {
    const base::Nanos until = events_->Now() + time;
    while (events_->Step(until)) {
    }
  }
  // The next event until then, before which, as Fleet, it looks where it is time for that, or there was a Nudge.
  Status Step(base::Nanos until) {
    if (look_ && events_->Now() >= look_at_) {
      const Result<base::Nanos> next = look_();
      HIR_TRY(next.status());
      look_at_ = *next;
    }
    (void)events_->Step(look_ ? std::min(until, look_at_) : until);
    return {};
  }
  bool Answered() const { return posted_ && awaited_ == 0 && first_error_.ok(); }
  void SetHealthy(bool healthy) {
    if (healthy_ == healthy) return;
    healthy_ = healthy;
    if (heard_) heard_(healthy);
  }
  Status Break(Status cause) {
    failure_ = std::move(cause);
    posted_ = false;
    awaited_ = 0;
    ++call_;  // No reply to it counts.
    SetHealthy(false);
    return failure_;
  }

  // As Fleet's. Whether the generation has ended.
  bool Beat() {
    if (std::exchange(heard_call_, call_) != call_) heartbeat_.Heard(events_->Now());
    const bool answered = std::ranges::all_of(ranks_, [this](const Rank& rank) { return rank.heard == num_asked_; });
    switch (heartbeat_.Look(events_->Now(), answered)) {
      case Heartbeat::Next::kNothing: return false;
      case Heartbeat::Next::kAsk:
        ++num_asked_;
        for (int64_t rank = 0; rank < size(); ++rank) {
          auto hear = [this, alive = alive_, rank, generation = generation_, asked = num_asked_] {
            if (!*alive || generation != generation_ || !healthy_) return;
            Rank& at = ranks_[static_cast<size_t>(rank)];
            if (!at.dead && !at.frozen) at.heard = asked;
          };
          events_->In(Delay() + ranks_[static_cast<size_t>(rank)].slow, std::move(hear));
        }
        return false;
      case Heartbeat::Next::kGiveUp: break;
    }
    HIR_CHECK(std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.frozen || rank.dead; }));
    ++num_silent_;
    (void)Break(Status(Code::kDeadlineExceeded, "silent at rest" + stuck_));
    return true;
  }

  void Begin() {
    first_error_ = {};
    began_ = events_->Now();
    sending_ = began_;
    look_at_ = {};
    measured_.assign(ranks_.size(), {});
    ++call_;
    inside_ = 0;
    waiting_.clear();
  }

  // Shards with memory of the daemon's, copied to and from a rank that has its own: what a bind brings takes the place
  // of its bytes, the descriptor that a fetch fills, which outlives the call, too.
  void TakeMemory(RankMessage& message) {
    if (message.message.has_fetch()) {
      size_t next = 0;
      for (auto& shard : *message.message.mutable_fetch()->mutable_shards()) shard.set_bytes(message.fds[next++]);
    }
    if (!options_.on_devices || !message.message.has_bind()) return;
    size_t next = 0;
    for (auto& shard : *message.message.mutable_bind()->mutable_shards()) {
      if (!shard.has_memory()) continue;
      int64_t value = 0;
      HIR_CHECK(pread(message.fds[next++], &value, sizeof(value), 0) == sizeof(value));
      shard.set_bytes(value);
    }
  }

  void Send(int64_t rank, std::vector<::hostir::v1::ToWorker> messages) {
    Rank& to = ranks_[static_cast<size_t>(rank)];
    if (std::exchange(to.loses, false)) return;
    sending_ += options_.send;
    to.arrival = std::max(to.arrival, sending_ + Delay() + to.slow);
    last_heard_ = to.arrival;
    auto handle = [this, alive = alive_, rank, call = call_, generation = generation_,
                   messages = std::move(messages)]() mutable {
      if (*alive && generation == generation_ && healthy_) Handle(rank, call, std::move(messages));
    };
    events_->At(to.arrival, std::move(handle));
  }

  void Handle(int64_t rank, int64_t call, std::vector<::hostir::v1::ToWorker> messages) {
    Rank& at = ranks_[static_cast<size_t>(rank)];
    if (at.dead || at.frozen) return;
    Status first;
    for (::hostir::v1::ToWorker& message : messages) {
      const Status status = HandleOne(rank, call, message);
      if (first.ok()) first = status;
      if (message.has_execute() && message.execute().phase() != ::hostir::v1::Execute::PHASE_BIND && first.ok()) return;
    }
    Reply(rank, call, first);
  }

  // The reply of a run that can begin comes when it is over.
  Status HandleOne(int64_t rank, int64_t call, ::hostir::v1::ToWorker& message) {
    Rank& at = ranks_[static_cast<size_t>(rank)];
    if (message.has_load()) at.programs.insert(message.load().program());
    if (message.has_release()) {
      for (const int64_t program : message.release().programs()) at.programs.erase(program);
      for (const int64_t shard : message.release().shards()) {
        at.bound.erase(shard);
        at.memory.erase(shard);
      }
    }
    if (message.has_bind()) {
      if (!at.refuses.empty()) {  // As a worker: shards are taken for mapped, but of devices they are released.
        poisoned_ = !options_.on_devices;
        return ResourceExhausted("out of memory" + std::exchange(at.refuses, ""));
      }
      for (const auto& shard : message.bind().shards()) {
        at.bound.insert(shard.id());
        if (options_.on_devices) at.memory[shard.id()] = shard.has_memory() ? shard.bytes() : -1;
      }
    }
    if (message.has_fetch()) {
      for (const auto& shard : message.fetch().shards()) {
        const auto value = at.memory.find(shard.id());
        if (value == at.memory.end()) return Internal(base::Cat("rank ", rank, " has no shard ", shard.id()));
        const int fd = static_cast<int>(shard.bytes());
        HIR_CHECK(pwrite(fd, &value->second, sizeof(value->second), 0) == sizeof(value->second));
      }
    }
    if (!message.has_execute()) return {};
    if (message.execute().phase() == ::hostir::v1::Execute::PHASE_RUN && at.ready) {
      message.mutable_execute()->Swap(&*at.ready);
      message.mutable_execute()->set_phase(::hostir::v1::Execute::PHASE_RUN);
      at.ready.reset();
    }
    const ::hostir::v1::Execute& execute = message.execute();
    if (!at.programs.contains(execute.program()))
      return Internal(base::Cat("rank ", rank, " has no program ", execute.program()));
    for (const auto* args : {&execute.inputs(), &execute.outputs()}) {
      for (const auto& arg : *args) {
        if (arg.shards_size() > rank && arg.shards(static_cast<int>(rank)) != 0 &&
            !at.bound.contains(arg.shards(static_cast<int>(rank))))
          return Internal(base::Cat("rank ", rank, " has no shard ", arg.shards(static_cast<int>(rank))));
      }
    }
    if (!at.refuses.empty()) return ResourceExhausted("out of memory" + std::exchange(at.refuses, ""));
    if (execute.phase() == ::hostir::v1::Execute::PHASE_BIND) {
      at.ready = execute;
      return {};
    }
    Enter(rank, call, execute);
    return {};
  }

  // Each run communicates: no rank is through before all are in it.
  void Enter(int64_t rank, int64_t call, const ::hostir::v1::Execute& execute) {
    if (call != call_) return;
    waiting_.emplace_back(rank, execute);
    if (++inside_ < size()) return;
    const base::Nanos took(1 + Below(options_.run_max.count()));
    for (auto& [member, run] : waiting_) {
      auto end = [this, alive = alive_, member = member, call, generation = generation_, run = std::move(run)] {
        if (!*alive || generation != generation_ || !healthy_ || call != call_) return;
        Rank& at = ranks_[static_cast<size_t>(member)];
        if (at.dead || at.frozen) return;
        Compute(member, run);
        Reply(member, call, {});
      };
      events_->In(took + Delay() + ranks_[static_cast<size_t>(member)].slow, std::move(end));
    }
    waiting_.clear();
  }

  void Compute(int64_t rank, const ::hostir::v1::Execute& execute) {
    auto& values = options_.on_devices ? ranks_[static_cast<size_t>(rank)].memory : memory_;
    std::vector<int64_t> inputs;
    for (const auto& arg : execute.inputs()) {
      if (arg.shards_size() > rank) inputs.push_back(values[arg.shards(static_cast<int>(rank))]);
    }
    for (const auto& arg : execute.outputs()) {
      if (arg.shards_size() > rank)
        values[arg.shards(static_cast<int>(rank))] = Mixed(execute.program(), arg.index(), inputs);
    }
  }

  void Reply(int64_t rank, int64_t call, Status status) {
    events_->In(Delay(), [this, alive = alive_, rank, call, status = std::move(status)] {
      if (!*alive || call != call_) return;
      --awaited_;
      if (status.ok() || !first_error_.ok()) return;
      first_error_ = status.WithContext(base::Cat("rank ", rank));
      failed_at_ = events_->Now();
    });
  }

  const Options options_;
  const std::shared_ptr<Events> events_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // For events that outlive this.
  base::BusyWait busy_wait_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<int64_t, int64_t> memory_;  // The daemon's, by shard: on ranks without their own.
  int64_t generation_ = 0;
  bool healthy_ = false;
  Status failure_;
  Status noticed_;     // A death.
  std::string stuck_;  // The first fault of this generation that nobody notices.
  std::string no_start_;
  int64_t num_faults_ = 0;
  Status interrupt_;
  int64_t call_ = 0;
  int64_t awaited_ = 0;
  int64_t num_posted_ = 0, num_taken_ = 0, num_started_ = 0, num_silent_ = 0;
  Heartbeat heartbeat_;
  int64_t num_asked_ = 0;
  int64_t heard_call_ = 0;  // As of Fleet.
  bool posted_ = false;
  bool looking_ = false;
  bool poisoned_ = false;
  int64_t inside_ = 0;
  std::vector<std::pair<int64_t, ::hostir::v1::Execute>> waiting_;
  Status first_error_;
  base::Nanos failed_at_ = {};
  base::Nanos began_ = {};
  base::Nanos sending_ = {};
  base::Nanos last_heard_ = {};
  std::vector<::hostir::v1::Measured> measured_;
  std::function<void(bool)> heard_;
  Waiting look_;
  base::Nanos look_at_ = {};
};

}  // namespace hir::service
