#include "service/engine/sequencer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <optional>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/digest.h"
#include "csrc/base/quoted.h"
#include "csrc/base/shortened.h"
#include "csrc/base/text.h"
#include "csrc/base/traceparent.h"
#include "service/engine/profile.h"
#include "service/os/channel.h"
#include "service/store/lent_memory.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

constexpr base::Nanos kReleaseTimeout = std::chrono::seconds(10);
constexpr base::Nanos kRestartPause = std::chrono::seconds(1);  // After a start that failed.
// What was freed waits so long for a run that takes it along: a message of its own would be in the way of that run.
constexpr base::Nanos kReleasePause = milliseconds(2);
// A short run is over before a thread that sleeps would have woken for it.
constexpr base::Nanos kLookForEnd = std::chrono::microseconds(200);
// No run that may end sooner is begun while the thread rests: it has to see to its time.
constexpr base::Nanos kIdle = std::chrono::seconds(1);
// Clients that wait by turns leave the queue empty for moments.
constexpr base::Nanos kClientsWait = milliseconds(100);
// A run is slow that takes so many times as long as the one before.
constexpr int64_t kSlowTimes = 3;
constexpr base::Nanos kLongWithoutUsual = std::chrono::seconds(10);

void Describe(const ShardSet::Shard& shard, pb::DeviceShard& described) {
  described.set_id(shard.id);
  described.set_bytes(shard.bytes);
  described.set_within(shard.within);
  described.set_offset(shard.offset);
}

// Why a run with a poisoned or lost input is none. Its outputs get `cause`, the same however many runs it came through;
// who waits for the run hears of the input too.
struct Poison {
  Status cause, told;
};

std::optional<Poison> PoisonOf(const RunJob& job) {
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    if (job.inputs[i] == nullptr) continue;
    const auto [state, error] = job.inputs[i]->condition();
    HIR_CHECK(state != TensorState::kPending);  // It is the output of a run before this one.
    if (state == TensorState::kReady) continue;
    const int index = static_cast<int>(i);
    const std::string input = base::Cat("input ", i, " (", job.program->plan().inputs(index).name(), ")");
    if (state == TensorState::kLost) {  // A cause of its own: this tensor is the one to put again.
      const Status lost = error.WithContext(base::Cat(input, " is lost"));
      return Poison{lost, lost};
    }
    return Poison{error, Status(error.code(), base::Cat(error.message(), "; it poisoned ", input))};
  }
  return {};
}

int64_t ToMs(base::Nanos time) { return std::chrono::duration_cast<milliseconds>(time).count(); }

// Whether a job is the run of that number.
auto IsRun(int64_t number) {
  return [number](const Sequencer::Job& job) {
    const auto* run = std::get_if<RunJob>(&job);
    return run != nullptr && run->run == number;
  };
}

std::string WhatOf(const RunJob& job) { return base::Cat("run ", job.run, " of ", job.program->plan().name()); }

// On one node the rank is the device's number.
void SetTensorArg(int index, const Tensor& tensor, pb::TensorArg& arg) {
  arg.set_index(index);
  for (const ShardSet::Shard& shard : tensor.shards().shards()) {
    const int rank = static_cast<int>(shard.device);
    while (arg.shards_size() <= rank) arg.add_shards(0);
    arg.set_shards(rank, shard.id);
  }
}

}  // namespace

Sequencer::Sequencer(std::unique_ptr<Ranks> ranks, Options options, std::shared_ptr<Wakeup> wakeup,
                     std::shared_ptr<ReleasedShards> released, std::function<std::vector<int64_t>()> gone)
    : options_(options),
      wakeup_(std::move(wakeup)),
      released_(std::move(released)),
      gone_(std::move(gone)),
      ranks_(std::move(ranks)),
      early_ends_(options.cancel_grace) {
  ranks_->OnWait([this] { return EndEarly(); });
  ranks_->OnLate([this](std::string_view what, std::string_view where) { Late(what, where); });
}

Sequencer::~Sequencer() {
  Stop(Unavailable("the daemon is shutting down"));
  while (num_looking_ > 0) ranks_->Pause();
}

void Sequencer::Stop(const Status& cause) {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  ranks_->Interrupt(cause);
  wakeup_->Signal();
  if (thread_.joinable()) thread_.join();
  FailQueued(cause);
}

Status Sequencer::Start() {
  std::promise<Status> started;
  thread_ = std::thread([this, &started] { Serve([&started](const Status& status) { started.set_value(status); }); });
  return started.get_future().get();
}

void Sequencer::Serve(const std::function<void(const Status&)>& started) {
  const Status status = ranks_->Start();
  if (status.ok()) LoseWhatIsGone();
  const bool serves = status.ok() || options_.starts_later;
  started(serves ? Status() : status);
  if (serves) Loop();
}

void Sequencer::Inherit(const std::vector<std::shared_ptr<Tensor>>& tensors) {
  for (const std::shared_ptr<Tensor>& tensor : tensors) {
    if (tensor->condition().state != TensorState::kReady) continue;
    on_devices_.push_back(tensor);
    for (const ShardSet::Shard& shard : tensor->shards().shards()) kept_.insert(shard.id);
  }
}

void Sequencer::Keep(const std::shared_ptr<Tensor>& tensor) {
  const std::scoped_lock lock(given_mutex_);
  given_.push_back(tensor);
  for (const ShardSet::Shard& shard : tensor->shards().shards()) given_shards_.push_back(shard.id);
}

void Sequencer::NoteKept() {
  const std::scoped_lock lock(given_mutex_);
  on_devices_.insert(on_devices_.end(), given_.begin(), given_.end());
  kept_.insert(given_shards_.begin(), given_shards_.end());
  given_.clear();
  given_shards_.clear();
  SweepFreed();
}

void Sequencer::SweepFreed() {
  if (on_devices_.size() < 2 * on_devices_swept_ + 64) return;
  std::erase_if(on_devices_, [](const auto& held) { return held.expired(); });
  on_devices_swept_ = on_devices_.size();
}

void Sequencer::Become(State state) {
  using enum State;
  static constexpr std::pair<State, State> kFollows[] = {
      {kDeciding, kWorking}, {kWorking, kDeciding},   {kDeciding, kAsleep}, {kAsleep, kDeciding},
      {kAsleep, kBegun},     {kBegun, kWorking},      {kBegun, kTaken},     {kTaken, kAsleep},
      {kTaken, kTakenAwake}, {kTakenAwake, kDeciding}};
  HIR_CHECK(std::ranges::find(kFollows, std::pair{state_, state}) != std::end(kFollows));
  state_ = state;
  changed_.notify_all();
}

Status Sequencer::Post(Job job) {
  const Owner owner = std::visit([](const auto& one) { return one.owner; }, job);
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return Unavailable("the daemon is shutting down");
    if (queue_.size_of(owner) >= options_.queued_runs_max) {
      return ResourceExhausted(base::Cat("queued_runs_max = ", options_.queued_runs_max,
                                         ": as many runs of this session wait for their turn; wait for some"));
    }
    if (auto* run = std::get_if<RunJob>(&job); run != nullptr) {
      run->posted = Now();
      if (Begin(*run)) return {};
      early_ends_.Wait(owner, run->run, run->deadline);
      if (run->deadline.there()) ranks_->Nudge();
    }
    queue_.Push(owner, std::move(job));
  }
  wakeup_->Signal();
  return {};
}

void Sequencer::Cancel(const Owner& owner, const Status& cause) {
  std::vector<Job> removed;
  {
    const std::scoped_lock lock(mutex_);
    removed = queue_.Remove(owner);
    Leaving(removed);
  }
  Fail(std::move(removed), cause);
}

Sequencer::Cancelled Sequencer::CancelRun(const Owner& owner, int64_t run, std::string_view who) {
  if (TakeBack(owner, run, who)) return Cancelled::kTakenBack;
  const std::scoped_lock lock(mutex_);
  if (!early_ends_.IsUnderWay(owner, run)) return Cancelled::kOver;
  early_ends_.Cancel(who, Now());
  ranks_->Nudge();
  if (state_ == State::kBegun) wakeup_->Signal();  // The thread has to see to its end.
  return Cancelled::kUnderWay;
}

bool Sequencer::TakeBack(const Owner& owner, int64_t run, std::string_view who) {
  std::vector<Job> removed;
  {
    const std::scoped_lock lock(mutex_);
    std::optional<Job> found = queue_.RemoveOne(owner, IsRun(run));
    if (!found) return false;
    removed.push_back(*std::move(found));
    Leaving(removed);
  }
  const std::string what = WhatOf(std::get<RunJob>(removed.front()));
  Fail(std::move(removed), Status(Code::kCancelled, base::Cat(what, ": ", who, " while it waited for its turn")));
  return true;
}

Result<base::Nanos> Sequencer::EndEarly() {
  for (;;) {
    std::vector<Job> late;
    {
      const std::scoped_lock lock(mutex_);
      const base::Nanos now = Now();
      const auto found = early_ends_.TakeLate(now);
      if (!found) {
        HIR_TRY(early_ends_.GivenUp(now));
        return early_ends_.next();
      }
      std::optional<Job> run = queue_.RemoveOne(found->first, IsRun(found->second));
      HIR_CHECK(run.has_value());  // Whose turn comes, and who leaves, waits for no deadline.
      late.push_back(*std::move(run));
      Leaving(late);
    }
    const auto& run = std::get<RunJob>(late.front());
    const Status cause = run.deadline.Passed(WhatOf(run), "while it waited for its turn");
    Fail(std::move(late), cause);
  }
}

void Sequencer::WaitsNoMore(const Job& job) {
  if (const auto* run = std::get_if<RunJob>(&job)) early_ends_.WaitNoMore(run->run, run->deadline);
}

void Sequencer::Leaving(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) WaitsNoMore(job);
  num_leaving_ += std::ssize(jobs);
}

void Sequencer::LookForEnd(int64_t run) {
  if (!ranks_->busy_wait().Pays()) return;
  ++num_looking_;
  {
    const std::scoped_lock lock(mutex_);
    if (IsPosted(run)) ranks_->Look();
  }
  base::Look look(ranks_->busy_wait(), kLookForEnd);
  bool ended = false;
  while (!(ended = TakeEnd(run)) && !look.IsOver()) {
  }
  if (ended) {
    look.Found();
  } else {
    const std::scoped_lock lock(mutex_);
    if (IsPosted(run)) ranks_->StopLooking();
  }
  --num_looking_;
}

bool Sequencer::TakeEnd(int64_t run) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  if (!IsPosted(run)) return true;  // The thread has it.
  if (!ranks_->TakePosted()) return false;
  RunJob job = *std::exchange(begun_, std::nullopt);
  Become(State::kTaken);
  early_ends_.Over();
  queue_.Charge(job.owner, Now() - begun_at_);
  Account(job, begun_at_, {});
  lock.unlock();
  Finish(job, {});
  lock.lock();
  Become(state_ == State::kTaken ? State::kAsleep : State::kDeciding);
  return true;
}

bool Sequencer::Drain(base::Nanos timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return queue_.empty() && num_leaving_ == 0 && !under_way(); });
}

std::map<std::string, int64_t> Sequencer::queued_by_principal() const {
  const std::scoped_lock lock(mutex_);
  return queue_.sizes();
}

int64_t Sequencer::num_queued() const {
  const std::scoped_lock lock(mutex_);
  return queue_.size();
}

void Sequencer::Loop() {
  bool paused = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return;
    if (ranks_->healthy()) ranks_->Renew();
    if (!ranks_->healthy()) {
      Heal(lock);
      continue;
    }
    if (queue_.empty()) {
      paused = !paused;
      if (!paused) {
        lock.unlock();
        Release();
        lock.lock();
        if (!queue_.empty() || !ranks_->healthy()) continue;
      }
      if (Rest(paused ? kReleasePause : kIdle, lock)) paused = false;
      continue;
    }
    if (num_leaving_ > 0) {
      changed_.wait(lock, [this] { return num_leaving_ == 0; });
      continue;
    }
    if (early_ends_.next() <= Now()) {
      lock.unlock();
      (void)EndEarly();
      lock.lock();
      continue;
    }
    FairQueue<Job>::Turn turn = *queue_.Pop();
    const base::Nanos start = Now();
    WaitsNoMore(turn.item);
    NoteWhoWaits(turn.owner, start);
    if (const auto* run = std::get_if<RunJob>(&turn.item))
      early_ends_.Start(turn.owner, run->run, WhatOf(*run), run->deadline, start);
    Become(State::kWorking);
    lock.unlock();
    {
      Job job = std::move(turn.item);
      std::visit([this](auto& one) { Carry(one); }, job);
    }  // Its tensors go before the next turn.
    lock.lock();
    early_ends_.Over();
    queue_.Charge(turn.owner, Now() - start);
    Become(State::kDeciding);
  }
}

void Sequencer::NoteWhoWaits(const Owner& turn, base::Nanos now) {
  if (queue_.HasOthers(turn)) clients_wait_until_ = now + kClientsWait;
  clients_wait_ = now < clients_wait_until_;
  ranks_->busy_wait().set_clients_wait(clients_wait_);
}

bool Sequencer::Rest(base::Nanos timeout, std::unique_lock<std::mutex>& lock) {
  rests_until_ = Now() + timeout;
  Become(State::kAsleep);
  const bool woken = ranks_->Watch(wakeup_->fd(), timeout, lock);
  if (woken) wakeup_->Clear();
  if (state_ == State::kBegun) {
    Become(State::kWorking);
    Owner owner;
    lock.unlock();
    {
      RunJob job = *std::exchange(begun_, std::nullopt);
      owner = job.owner;
      Conclude(job);
    }
    lock.lock();
    early_ends_.Over();
    queue_.Charge(owner, Now() - begun_at_);
    Become(State::kDeciding);
    return true;
  }
  if (state_ == State::kTaken) {
    Become(State::kTakenAwake);
    changed_.wait(lock, [this] { return state_ == State::kDeciding; });
  } else {
    Become(State::kDeciding);
  }
  return false;
}

bool Sequencer::Begin(RunJob& job) {
  if (state_ != State::kAsleep || !queue_.empty() || num_leaving_ > 0) return false;
  const base::Nanos start = Now();
  const base::Nanos ends_at = std::min(start + job.timeout.time, early_ends_.GivenUpAt(job.deadline, start));
  if (!ranks_->healthy() || ends_at < rests_until_ || start >= job.deadline.at) return false;
  if (PoisonOf(job) || !PostRun(job)) return false;
  queue_.Start(job.owner);
  NoteWhoWaits(job.owner, start);
  CountTurn(job, start);
  early_ends_.Start(job.owner, job.run, WhatOf(job), job.deadline, start);
  begun_ = std::move(job);
  begun_at_ = start;
  Become(State::kBegun);
  return true;
}

void Sequencer::Heal(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  spdlog::error("generation={} ended error={}", ranks_->generation(), base::Quoted(ranks_->failure().ToString()));
  Forget();
  options_.metrics->mesh_down.Begin(Now());
  const base::Nanos began = Now();
  options_.metrics->latest.Add({.kind = "mesh",
                                .number = ranks_->generation(),
                                .name = "ended",
                                .code = ranks_->failure().code(),
                                .error = ranks_->failure().message()});
  const Status status = ranks_->Start();
  if (status.ok()) {
    LoseWhatIsGone();
    options_.metrics->mesh_down.End(Now());
    options_.metrics->heals.Add();
    options_.metrics->latest.Add(
        {.kind = "mesh", .number = ranks_->generation(), .name = "serves", .took = Now() - began});
    spdlog::info("generation={} serving", ranks_->generation());
  } else {
    FailQueued(Unavailable(base::Cat("the mesh could not be restarted: ", status.ToString())));
  }
  lock.lock();
  if (!status.ok()) (void)Rest(kRestartPause, lock);
}

void Sequencer::FailQueued(const Status& cause) {
  std::vector<Job> failed;
  {
    const std::scoped_lock lock(mutex_);
    failed = queue_.RemoveAll();
    Leaving(failed);
  }
  Fail(std::move(failed), cause);
}

void Sequencer::Fail(std::vector<Job> jobs, const Status& cause) {
  for (Job& job : jobs) {
    std::visit([&](auto& one) { Finish(one, cause); }, job);
  }
  const std::scoped_lock lock(mutex_);
  num_leaving_ -= std::ssize(jobs);
  changed_.notify_all();
}

void Sequencer::Finish(RunJob& job, const Status& outcome) { Finish(job, outcome, outcome); }

void Sequencer::Finish(RunJob& job, const Status& outcome, const Status& told) {
  if (!told.ok()) {
    spdlog::warn("run={} request={} program={}{} error={}", job.run, job.request, job.program->plan().name(),
                 base::TraceField(job.trace), base::Quoted(base::Shortened(told).ToString()));
  }
  ++num_over_;
  options_.metrics->runs.Add(told.code());
  options_.metrics->latest.Add({.kind = "run",
                                .number = job.run,
                                .name = job.program->plan().name(),
                                .code = told.code(),
                                .error = told.message(),
                                .took = job.took,
                                .waited = std::max(base::Nanos(), Now() - job.posted - job.took)});
  std::vector<std::shared_ptr<Readiness>> made;
  for (const auto& output : job.outputs) {
    if (output != nullptr) made.push_back(output->readiness());
  }
  // Before anybody hears of it: what its client frees then is free.
  job.inputs.clear();
  job.outputs.clear();
  for (const auto& output : made) output->Settle(outcome);
  if (job.done) job.done(told, job.took);
}

void Sequencer::Finish(FetchJob& job, const Status& outcome) {
  job.tensor = nullptr;  // As above.
  job.into = nullptr;
  job.into_devices.clear();
  job.done(outcome);
}

void Sequencer::Finish(StoreJob& job, const Status& outcome) {
  job.tensor = nullptr;  // As above.
  job.from_devices.clear();
  job.done(outcome);
}

bool Sequencer::FindReleased() {
  const std::vector<int64_t> released = released_->Take();
  NoteKept();  // After that: what was released was given before.
  for (const int64_t shard : released) {
    if (bound_.erase(shard) + kept_.erase(shard) > 0) release_.add_shards(shard);
  }
  for (const int64_t program : gone_()) {
    loaded_.erase(program);
    if (sent_.erase(program) > 0) release_.add_programs(program);
  }
  return !release_.shards().empty() || !release_.programs().empty();
}

std::optional<RankMessage> Sequencer::TakeReleased() {
  if (!FindReleased()) return std::nullopt;
  RankMessage message;
  message.message.mutable_release()->Swap(&release_);
  const auto& shards = message.message.release().shards();
  releasing_.assign(shards.begin(), shards.end());
  return message;
}

void Sequencer::Release() {
  const std::optional<RankMessage> message = TakeReleased();
  if (!message) return;
  std::vector<std::vector<RankMessage>> messages = NoMessages();
  for (auto& of_rank : messages) of_rank.push_back(*message);
  // A failure breaks the generation, which the loop sees.
  (void)Call(std::move(messages), {kReleaseTimeout}, "the release of tensors", Ranks::Waits::kNobody);
}

std::vector<std::vector<RankMessage>> Sequencer::NoMessages() const {
  return std::vector<std::vector<RankMessage>>(static_cast<size_t>(ranks_->size()));
}

Status Sequencer::Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
                       Ranks::Waits waits) {
  Status status = ranks_->Call(std::move(messages), timeout, what, waits);
  NotLate();
  if (ranks_->healthy()) releasing_.clear();
  if (!ranks_->healthy()) Forget();  // Before anybody hears of it.
  return status;
}

Status Sequencer::Await(TimeLimit timeout, std::string_view what) {
  Status status = ranks_->Await(timeout, what, Ranks::Waits::kEachOther);
  NotLate();
  if (!ranks_->healthy()) Forget();  // Before anybody hears of it.
  return status;
}

void Sequencer::Forget() {
  const std::vector<int64_t> to_release(release_.shards().begin(), release_.shards().end());
  release_.Clear();
  loaded_.clear();
  sent_.clear();
  for (int64_t rank = 0; rank < ranks_->size(); ++rank) {
    if (!ranks_->Keeps(rank)) continue;
    kept_.merge(bound_);
    release_.mutable_shards()->Add(to_release.begin(), to_release.end());
    release_.mutable_shards()->Add(releasing_.begin(), releasing_.end());
    break;
  }
  bound_.clear();
  releasing_.clear();
  LoseWhatIsGone();
}

void Sequencer::LoseWhatIsGone() {
  NoteKept();
  const std::string_view failure = ranks_->failure().message();  // None: there was another head.
  const Status lost(Code::kDataLoss, base::Cat("its memory was on the devices", failure.empty() ? "" : ": ", failure,
                                               "; put it again, or run again what made it"));
  std::erase_if(on_devices_, [&](const std::weak_ptr<Tensor>& held) {
    const std::shared_ptr<Tensor> tensor = held.lock();
    if (tensor == nullptr) return true;
    const auto is_kept = [this](const ShardSet::Shard& shard) {
      return shard.bytes == 0 || ranks_->KeepsShard(shard.device, shard.id);
    };
    if (std::ranges::all_of(tensor->shards().shards(), is_kept)) return false;
    tensor->readiness()->Lose(lost);
    return true;
  });
  on_devices_swept_ = on_devices_.size();
}

void Sequencer::Settled(const RunJob& job) {
  if (!options_.on_devices) return;
  for (const auto& input : job.inputs) {
    if (input == nullptr || input->shards().host() == nullptr) continue;
    input->shards().DropHost();
    on_devices_.push_back(input);
  }
  for (const auto& output : job.outputs) {
    if (output != nullptr) on_devices_.push_back(output);
  }
  SweepFreed();
}

void Sequencer::Unbind() {
  RankMessage message;
  pb::Release& release = *message.message.mutable_release();
  for (const int64_t shard : newly_bound_) {
    bound_.erase(shard);
    if (!kept_.contains(shard)) release.add_shards(shard);  // Else nobody else has its bytes.
  }
  if (release.shards().empty()) return;
  std::vector<std::vector<RankMessage>> messages = NoMessages();
  for (auto& of_rank : messages) of_rank.push_back(message);
  (void)Call(std::move(messages), {kReleaseTimeout}, "the release of tensors", Ranks::Waits::kNobody);
}

void Sequencer::Carry(RunJob& job) {
  const std::string what = WhatOf(job);
  if (!ranks_->healthy()) return Finish(job, ranks_->failure().WithContext(what));
  if (const auto poison = PoisonOf(job)) return Finish(job, poison->cause, poison->told);
  for (const int64_t device : job.program->plan().devices()) {
    if (const Status absent = WhyAbsent(device, what); !absent.ok()) return Finish(job, absent);
  }
  for (const auto& output : job.outputs) {
    if (output == nullptr) continue;
    if (const Status gone = WhyNotLent(*output, what); !gone.ok()) return Finish(job, gone);
  }
  const base::Nanos start = Now();
  CountTurn(job, start);
  carried_out_ = &job;
  carried_out_since_ = start;
  Over(job, start, PostRun(job) ? Await(job.timeout, what) : Execute(job, what));
}

Status Sequencer::WhyAbsent(int64_t device, std::string_view what) const {
  const Status why = ranks_->WhyAbsent(device);
  if (why.ok()) return {};
  return {why.code(), base::Cat(why.message(), ", and ", what, " needs its device ", device)};
}

void Sequencer::Conclude(RunJob& job) {
  const std::string what = WhatOf(job);
  carried_out_ = &job;
  carried_out_since_ = begun_at_;
  Over(job, begun_at_, Await(job.timeout, what));
}

void Sequencer::CountTurn(const RunJob& job, base::Nanos start) {
  options_.metrics->principals.Of(job.owner.principal).queue_time.Add(start - job.posted);
}

void Sequencer::Late(std::string_view what, std::string_view where) {
  const RunJob* const job = carried_out_;
  UnderWay late = {.what = std::string(what), .where = std::string(where)};
  if (job != nullptr) {
    late.run = job->run;
    late.request = job->request;
    late.since_its_turn = Now() - carried_out_since_;
    if (options_.usual) late.usual = options_.usual(*job);
    late.slow = late.usual.has_value() && late.since_its_turn >= kSlowTimes * *late.usual;
    // Told again when it has taken twice as long.
    const bool is_long = late.slow || (!late.usual && late.since_its_turn >= kLongWithoutUsual);
    if (is_long && late.since_its_turn >= 2 * told_late_) {
      told_late_ = late.since_its_turn;
      spdlog::warn("run={} request={} program={} under way for {} ms{} at={}", late.run, late.request,
                   job->program->plan().name(), ToMs(told_late_),
                   late.usual ? base::Cat(", the one before took ", ToMs(*late.usual)) : "", base::Quoted(where));
    }
  }
  is_late_ = true;
  const std::scoped_lock lock(mutex_);
  late_ = std::move(late);
}

void Sequencer::NotLate() {
  if (!std::exchange(is_late_, false)) return;
  const std::scoped_lock lock(mutex_);
  late_.reset();
}

std::optional<Sequencer::UnderWay> Sequencer::under_way_long() const {
  const std::scoped_lock lock(mutex_);
  return late_;
}

void Sequencer::Over(RunJob& job, base::Nanos start, const Status& status) {
  Account(job, start, status);
  Finish(job, status);
}

void Sequencer::Account(RunJob& job, base::Nanos start, const Status& status) {
  carried_out_ = nullptr;
  told_late_ = {};
  job.took = Now() - start;
  options_.metrics->run_time.Add(job.took);
  if (ranks_->healthy() && status.ok()) {
    loaded_.insert(job.program->number());
    Settled(job);
    if (job.communications) Count(*job.communications);
    if (job.is_measured()) CountTimes(*job.program, ranks_->measured(), *options_.metrics);
    if (job.profile) *job.profile = ProfileOf(*job.program, job.sizes, ranks_->measured());
    if (job.timeline) *job.timeline = TimelineOf(*job.program, job.trace, ranks_->measured());
  } else if (ranks_->healthy() && options_.on_devices) {
    Unbind();
  }
  spdlog::debug("run={} request={} program={} us={} code={}{}", job.run, job.request, job.program->plan().name(),
                job.took.count() / 1000, CodeName(status.code()), base::TraceField(job.trace));
}

bool Sequencer::PostRun(const RunJob& job) {
  if (options_.on_devices || job.is_measured() || FindReleased() || !HasAll(job)) return false;
  execute_.Clear();
  Fill(job, execute_);
  return ranks_->Post(execute_);
}

bool Sequencer::HasAll(const RunJob& job) const {
  if (!loaded_.contains(job.program->number())) return false;
  const auto are_bound = [this](const std::shared_ptr<Tensor>& tensor) {
    return tensor == nullptr || std::ranges::all_of(tensor->shards().shards(), [this](const ShardSet::Shard& shard) {
             return bound_.contains(shard.id);
           });
  };
  return std::ranges::all_of(job.inputs, are_bound) && std::ranges::all_of(job.outputs, are_bound);
}

bool Sequencer::AllKeep() const {
  for (int64_t rank = 0; rank < ranks_->size(); ++rank) {
    if (!ranks_->Keeps(rank)) return false;
  }
  return true;
}

// Where memory can run out on one device and not on another, no rank starts before all of them can.
Status Sequencer::Execute(const RunJob& job, std::string_view what) {
  std::vector<std::vector<RankMessage>> messages = MessagesFor(job);
  constexpr Ranks::Waits kEachOther = Ranks::Waits::kEachOther;
  if (!options_.on_devices || messages.size() == 1 || AllKeep())
    return Call(std::move(messages), job.timeout, what, kEachOther);
  const base::Nanos deadline = Now() + job.timeout.time;
  const auto left = [&] {
    const base::Nanos time = deadline - Now();
    return TimeLimit{std::max(base::Nanos(milliseconds(1)), time), job.timeout.limit};
  };
  const auto load_of = [](std::vector<RankMessage>& of_rank) {
    return std::ranges::find_if(of_rank, [](const auto& sent) { return sent.message.has_load(); });
  };
  if (load_of(messages.front()) != messages.front().end()) {  // Makes teams, together.
    std::vector<std::vector<RankMessage>> load = NoMessages();
    for (size_t rank = 0; rank < messages.size(); ++rank) {
      const auto behind = load_of(messages[rank]) + 1;
      load[rank].assign(std::make_move_iterator(messages[rank].begin()), std::make_move_iterator(behind));
      messages[rank].erase(messages[rank].begin(), behind);
    }
    HIR_TRY(Call(std::move(load), left(), what, kEachOther));
    loaded_.insert(job.program->number());
  }
  const pb::Execute& whole = messages.front().back().message.execute();
  execute_.Clear();
  execute_.set_run(whole.run());
  execute_.set_program(whole.program());
  execute_.set_timeout_ms(whole.timeout_ms());
  execute_.set_phase(pb::Execute::PHASE_RUN);
  execute_.set_profile(whole.profile());
  execute_.set_timeline(whole.timeline());
  execute_.set_traceparent(whole.traceparent());
  execute_.set_clients_wait(whole.clients_wait());
  for (auto& of_rank : messages) of_rank.back().message.mutable_execute()->set_phase(pb::Execute::PHASE_BIND);
  HIR_TRY(Call(std::move(messages), left(), what, Ranks::Waits::kNobody));
  if (job.is_measured()) {  // What is posted is answered without what was measured.
    messages = NoMessages();
    for (auto& of_rank : messages) *of_rank.emplace_back().message.mutable_execute() = execute_;
    return Call(std::move(messages), left(), what, kEachOther);
  }
  HIR_CHECK(ranks_->Post(execute_));  // It is short.
  return Await(left(), what);
}

void Sequencer::Carry(FetchJob& job) {
  const std::string what = "a download";
  if (!ranks_->healthy()) return Finish(job, ranks_->failure().WithContext(what));
  const Readiness::Condition condition = job.tensor->condition();
  if (condition.state != TensorState::kReady) return Finish(job, condition.error);
  std::vector<std::vector<RankMessage>> messages = NoMessages();
  const std::vector<ShardSet::Shard>& shards = job.tensor->shards().shards();
  for (size_t position = 0; position < shards.size(); ++position) {
    const int fd = job.into == nullptr ? job.into_devices[position].get() : job.into->memory[position].fd();
    if (fd < 0) continue;
    if (const Status absent = WhyAbsent(shards[position].device, what); !absent.ok()) return Finish(job, absent);
    RankMessage& message = messages[static_cast<size_t>(shards[position].device)].emplace_back();
    pb::DeviceShard& shard = *message.message.mutable_fetch()->add_shards();
    shard.set_id(shards[position].id);
    shard.set_bytes(shards[position].bytes);
    shard.set_has_memory(true);
    shard.set_exported(job.into == nullptr);
    message.fds.push_back(fd);
  }
  Finish(job, Call(std::move(messages), options_.copy_timeout, what, Ranks::Waits::kNobody));
}

void Sequencer::Carry(StoreJob& job) {
  const std::string what = "an upload";
  if (!ranks_->healthy()) return Finish(job, ranks_->failure().WithContext(what));
  for (const ShardSet::Shard& shard : job.tensor->shards().shards()) {
    if (const Status absent = WhyAbsent(shard.device, what); !absent.ok()) return Finish(job, absent);
  }
  if (const Status gone = WhyNotLent(*job.tensor, what); !gone.ok()) return Finish(job, gone);
  newly_bound_.clear();
  std::vector<std::vector<RankMessage>> messages = NoMessages();
  if (const std::optional<RankMessage> released = TakeReleased()) {
    for (auto& of_rank : messages) of_rank.push_back(*released);  // First: their memory is there for this one.
  }
  const std::vector<ShardSet::Shard>& shards = job.tensor->shards().shards();
  for (size_t position = 0; position < shards.size(); ++position) {
    newly_bound_.push_back(shards[position].id);
    bound_.insert(shards[position].id);
    RankMessage& message = messages[static_cast<size_t>(shards[position].device)].emplace_back();
    pb::DeviceShard& shard = *message.message.mutable_bind()->add_shards();
    Describe(shards[position], shard);
    const base::Fd& memory = job.from_devices[position];
    if (!memory.valid()) continue;
    shard.set_has_memory(true);
    shard.set_exported(true);
    shard.set_lent(job.lends);
    message.fds.push_back(memory.get());
  }
  const Status status = Call(std::move(messages), options_.copy_timeout, what, Ranks::Waits::kNobody);
  if (status.ok()) {
    on_devices_.push_back(job.tensor);
  } else if (ranks_->healthy()) {
    Unbind();
  }
  Finish(job, status);
}

Status Sequencer::WhyNotLent(const Tensor& tensor, std::string_view what) {
  const std::shared_ptr<const LentPlace>& place = tensor.shards().lent;
  if (place == nullptr) return {};
  const Readiness::Condition memory = place->condition();
  if (memory.state == TensorState::kReady) return {};
  return memory.error.WithContext(base::Cat(what, " in memory that the client has lent"));
}

std::vector<std::vector<RankMessage>> Sequencer::MessagesFor(const RunJob& job) {
  const pb::Plan& plan = job.program->plan();
  newly_bound_.clear();
  std::vector<std::vector<RankMessage>> messages = NoMessages();
  // First, so that on devices the memory of freed tensors is there for the outputs of this run.
  if (const std::optional<RankMessage> released = TakeReleased()) {
    for (auto& of_rank : messages) of_rank.push_back(*released);
  }
  if (!loaded_.contains(job.program->number())) {
    sent_.insert(job.program->number());
    RankMessage message;
    pb::Load& load = *message.message.mutable_load();
    load.set_program(job.program->number());
    *load.mutable_plan() = plan;
    load.mutable_plan()->clear_explanation();
    load.set_plan_digest(base::Digest(load.plan().SerializeAsString()));
    for (auto& of_rank : messages) of_rank.push_back(message);
  }
  for (const auto& input : job.inputs) {
    if (input != nullptr) AddBinds(*input, messages);
  }
  for (const auto& output : job.outputs) {
    if (output != nullptr) AddBinds(*output, messages);
  }
  pb::Execute execute;
  Fill(job, execute);
  for (auto& of_rank : messages) *of_rank.emplace_back().message.mutable_execute() = execute;
  return messages;
}

void Sequencer::Fill(const RunJob& job, pb::Execute& execute) const {
  execute.set_clients_wait(clients_wait_);
  execute.set_run(job.run);
  execute.set_program(job.program->number());
  execute.set_timeout_ms(std::chrono::ceil<milliseconds>(job.timeout.time).count());
  execute.set_profile(job.profile != nullptr);
  execute.set_timeline(job.timeline != nullptr);
  if (!job.trace.empty()) execute.set_traceparent(job.trace);
  for (const auto& [name, value] : job.sizes) {
    pb::Symbol& symbol = *execute.add_symbols();
    symbol.set_name(name);
    symbol.set_value(value);
  }
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    const int index = static_cast<int>(i);
    if (job.inputs[i] != nullptr) {
      SetTensorArg(index, *job.inputs[i], *execute.add_inputs());
      continue;
    }
    pb::ScalarArg& scalar = *execute.add_scalars();
    scalar.set_index(index);
    scalar.set_float_value(job.float_scalars[i]);
    scalar.set_int_value(job.int_scalars[i]);
  }
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    const auto& output = job.outputs[i];
    if (output != nullptr) SetTensorArg(static_cast<int>(i), *output, *execute.add_outputs());
  }
}

void Sequencer::AddBinds(const Tensor& tensor, std::vector<std::vector<RankMessage>>& messages) {
  const std::shared_ptr<HostShards> host = tensor.shards().host();
  const std::vector<ShardSet::Shard>& shards = tensor.shards().shards();
  for (size_t position = 0; position < shards.size(); ++position) {
    const ShardSet::Shard& shard = shards[position];
    if (!bound_.insert(shard.id).second) continue;
    newly_bound_.push_back(shard.id);
    auto& of_rank = messages[static_cast<size_t>(shard.device)];
    if (of_rank.empty() || !of_rank.back().message.has_bind() || of_rank.back().fds.size() == kChannelFdsMax) {
      of_rank.emplace_back();
    }
    pb::DeviceShard& bind = *of_rank.back().message.mutable_bind()->add_shards();
    Describe(shard, bind);
    bind.set_has_memory(host != nullptr && shard.bytes > 0);
    if (bind.has_memory()) of_rank.back().fds.push_back(host->memory[position].fd());
  }
}

}  // namespace hir::service
