#include "service/cluster/agent.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/clock.h"
#include "csrc/base/text.h"
#include "service/os/process_usage.h"
#include "service/supervise/child_error.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr int64_t kRanksMax = int64_t{1} << 20;
constexpr size_t kRecordsMax = size_t{1} << 20;
constexpr int64_t kTimeoutUsMax = int64_t{1} << 50;  // 35 years.
constexpr base::Nanos kIdle = std::chrono::seconds(1);
constexpr base::Nanos kUsageEvery = std::chrono::milliseconds(900);

void SetError(const Status& status, pb::Error* error) {
  if (status.ok()) return;
  error->set_code(static_cast<int>(status.code()));
  error->set_message(std::string(status.message()));
}

pb::Execute::Phase PhaseOf(const pb::Order& order) {
  for (const pb::Order::Part& part : order.parts()) {
    if (part.message().has_execute()) return part.message().execute().phase();
  }
  return {};
}

// Nobody waits for the ranks but by the head's word: nothing here is late by itself.
base::Nanos Never() { return base::Nanos::max(); }

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      kept_(std::make_shared<KeptShards>(options_.shard_bytes_max)),
      thread_([this] { Loop(); }) {}

Agent::~Agent() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    say_ = nullptr;
    if (fleet_ != nullptr) fleet_->Interrupt(Unavailable("the daemon of this node is shutting down"));
  }
  room_.notify_all();
  wakeup_.Signal();
  thread_.join();
}

Result<int64_t> Agent::Join(const pb::Join& join, Say say, Over over) {
  if (join.version() != options_.node.version()) {
    return Status(Code::kFailedPrecondition, base::Cat("this node runs version ", options_.node.version(),
                                                       ", the head of the cluster ", join.version()));
  }
  Over before;
  int64_t number = 0;
  {
    const std::scoped_lock lock(mutex_);
    HIR_ASSIGN(number, fence_.Join(join.term(), join.head()));
    before = EndHead();
    ended_ = 0;
    window_ = {};
    say_ = std::make_shared<const Say>(std::move(say));
    over_ = std::move(over);
    if (std::exchange(knows_, join.knows()) != join.knows()) {
      kept_ = std::make_shared<KeptShards>(options_.shard_bytes_max);
      directory_.clear();
    }
    kept_->DropHalves();  // What was under way, which nobody will end.
    pb::FromNode message;
    pb::Joined& joined = *message.mutable_joined();
    joined = options_.node;
    const std::vector<int64_t> whole = kept_->Whole();
    joined.mutable_shards()->Add(whole.begin(), whole.end());
    joined.mutable_directory()->set_term(directory_term_);
    joined.mutable_directory()->set_count(directory_count_);
    for (const auto& [handle, tensor] : directory_) *joined.mutable_directory()->add_tensors() = tensor;
    (*say_)(std::move(message));
  }
  if (before) before({Code::kAborted, base::Cat("a head of term ", join.term(), " has joined")});
  return number;
}

Agent::Over Agent::EndHead() {
  say_ = nullptr;
  tickets_.Clear();
  orders_.clear();
  urgent_.clear();
  urgent_.emplace_back().mutable_end();  // Whatever ranks there are: a head's orders begin with a start.
  if (fleet_ != nullptr) fleet_->Nudge();
  room_.notify_all();
  wakeup_.Signal();
  return std::exchange(over_, nullptr);
}

void Agent::Fence(int64_t term) {
  Over before;
  {
    const std::scoped_lock lock(mutex_);
    if (!fence_.Raise(term)) return;
    fence_.End();
    before = EndHead();
  }
  if (before) before({Code::kAborted, base::Cat("somebody was elected for term ", term)});
}

bool Agent::hears_head() const {
  const std::scoped_lock lock(mutex_);
  return fence_.hears_any();
}

void Agent::Take(int64_t number, pb::ToNode message) {
  if (message.has_bytes()) {  // Here, so that no more of them wait than the stream holds.
    std::shared_ptr<KeptShards> kept;
    std::shared_ptr<const Say> say;
    {
      const std::scoped_lock lock(mutex_);
      if (!fence_.Hears(number)) return;
      kept = kept_;
      say = say_;
    }
    const pb::ShardBytes& bytes = message.bytes();
    // One that does not fit is missed by the order that binds it.
    if (!kept->Write(bytes.shard(), bytes.total(), bytes.offset(), bytes.data()).ok()) {
      const int64_t shard = bytes.shard();
      kept->Drop({&shard, 1});
    }
    if (!bytes.asks() || say == nullptr) return;
    pb::FromNode taken;
    taken.mutable_taken();
    return (*say)(std::move(taken));
  }
  std::unique_lock lock(mutex_);
  if (!fence_.Hears(number)) return;
  if (message.has_taken()) {
    window_.Taken(base::Clock::Steady().Now());
    room_.notify_all();
    return;
  }
  if (message.has_remember()) return Remember(*message.mutable_remember());
  if (message.has_revoke()) return tickets_.Revoke(message.revoke().number());
  if (message.has_grant()) {
    pb::FromNode granted = AddTickets(message.grant());
    const std::shared_ptr<const Say> say = say_;
    lock.unlock();
    if (say != nullptr) (*say)(std::move(granted));
    return;
  }
  if (message.has_provide() || message.has_end()) {
    if (message.has_end()) ended_ = std::max(ended_, message.end().generation());
    room_.notify_all();
    urgent_.push_back(std::move(message));
    if (fleet_ != nullptr) fleet_->Nudge();
  } else {
    orders_.push_back(std::move(message));
  }
  wakeup_.Signal();
}

void Agent::Leave(int64_t number) {
  const std::scoped_lock lock(mutex_);
  if (!fence_.Hears(number)) return;
  fence_.End();
  (void)EndHead();
}

void Agent::Remember(pb::Remember& remember) {
  if (remember.from_start()) directory_.clear();
  if (remember.from_start() || remember.count() > 0) {  // Else it is of shards alone.
    directory_term_ = fence_.head_term();
    directory_count_ = remember.count();
  }
  for (pb::TensorRecord& tensor : *remember.mutable_tensors()) {
    if (directory_.size() >= kRecordsMax) break;
    std::string handle = tensor.handle();
    directory_[std::move(handle)] = std::move(tensor);
  }
  for (const std::string& handle : remember.forgotten()) directory_.erase(handle);
  kept_->Drop(std::span(remember.dropped().data(), static_cast<size_t>(remember.dropped_size())));
}

pb::FromNode Agent::AddTickets(const pb::Grant& grant) {
  const Status status =
      options_.on_devices ? Status(Code::kFailedPrecondition, "this node keeps no shards") : tickets_.Add(grant, kept_);
  pb::FromNode message;
  message.mutable_granted()->set_number(grant.number());
  SetError(status, message.mutable_granted()->mutable_error());
  return message;
}

int64_t Agent::kept_bytes() const {
  const std::scoped_lock lock(mutex_);
  return kept_->bytes();
}

void Agent::Tell(pb::FromNode message) {
  std::shared_ptr<const Say> say;
  {
    const std::scoped_lock lock(mutex_);
    if (fence_.Hears(served_)) say = say_;
  }
  if (say != nullptr) (*say)(std::move(message));
}

void Agent::Loop() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wakeup_.Clear();
    if (!urgent_.empty()) {
      lock.unlock();
      if (!CarryUrgent().ok()) EndRanks();
      lock.lock();
      continue;
    }
    if (!orders_.empty()) {
      pb::ToNode message = std::move(orders_.front());
      orders_.pop_front();
      served_ = fence_.number();
      shards_ = kept_;
      lock.unlock();
      Carry(message);
      lock.lock();
      continue;
    }
    if (fleet_ == nullptr) {
      lock.unlock();
      pollfd woken = {wakeup_.fd(), POLLIN, 0};
      (void)poll(&woken, 1, -1);
      lock.lock();
      continue;
    }
    (void)fleet_->Watch(wakeup_.fd(), kIdle, lock);
    if (fleet_->healthy()) {
      lock.unlock();
      SayUsage();
      lock.lock();
      continue;
    }
    pb::FromNode ended;
    ended.mutable_ended()->set_generation(fleet_->generation());
    SetError(fleet_->failure(), ended.mutable_ended()->mutable_cause());
    lock.unlock();
    EndRanks();
    Tell(std::move(ended));
    lock.lock();
  }
  lock.unlock();
  EndRanks();
}

void Agent::EndRanks() {
  std::unique_ptr<Fleet> over;  // Its processes are waited for, without the lock.
  const std::scoped_lock lock(mutex_);
  over = std::move(fleet_);
}

Status Agent::CarryUrgent() {
  for (;;) {
    pb::ToNode message;
    {
      const std::scoped_lock lock(mutex_);
      if (urgent_.empty()) return {};
      message = std::move(urgent_.front());
      urgent_.pop_front();
    }
    const bool is_there = fleet_ != nullptr && fleet_->healthy();
    if (message.has_provide() && is_there) HIR_TRY(fleet_->Provide(message.provide().key(), message.provide().value()));
    if (!message.has_end()) continue;
    if (message.end().generation() != 0 && (!is_there || message.end().generation() != fleet_->generation())) continue;
    const Status cause = FromError(message.end().cause());
    return cause.ok() ? Unavailable("the head of the cluster has gone") : cause;
  }
}

void Agent::Carry(pb::ToNode& message) {
  if (message.has_start()) return StartRanks(message.start());
  if (message.has_order()) return CarryOrder(message.order());
}

void Agent::StartRanks(const pb::StartRanks& start) {
  const int64_t num_here = options_.fleet.num_ranks();
  if (start.generation() < 1 || start.num_ranks() < num_here || start.num_ranks() > kRanksMax ||
      start.first_rank() < 0 || start.first_rank() > start.num_ranks() - num_here) {
    pb::FromNode refused;
    refused.mutable_started()->set_generation(start.generation());
    SetError(InvalidArgument(base::Cat("ranks ", start.first_rank(), " and on of ", start.num_ranks(),
                                       " in generation ", start.generation(), ", where this node has ", num_here)),
             refused.mutable_started()->mutable_error());
    return Tell(std::move(refused));
  }
  FleetOptions options = options_.fleet;
  options.setup_timeout = base::FromMs(start.setup_timeout_ms());
  options.comm_timeout = base::FromMs(start.comm_timeout_ms());
  options.abroad.first_rank = first_rank_ = start.first_rank();
  options.abroad.num_ranks = start.num_ranks();
  options.abroad.absent.assign(start.absent().begin(), start.absent().end());
  options.abroad.nodes.assign(start.nodes().begin(), start.nodes().end());
  options.abroad.published = [this](const std::string& key, const std::string& value) {
    pb::FromNode message;
    message.mutable_published()->set_key(key);
    message.mutable_published()->set_value(value);
    Tell(std::move(message));
  };
  options.abroad.wanted = [this](const std::string& key) {
    pb::FromNode message;
    message.mutable_wanted()->set_key(key);
    Tell(std::move(message));
  };
  auto fleet = std::make_unique<Fleet>(std::move(options));
  fleet->OnWait([this]() -> Result<base::Nanos> {
    HIR_TRY(CarryUrgent());
    return Never();
  });
  EndRanks();
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_ || start.generation() <= ended_) return;
    fleet_ = std::move(fleet);
  }
  // Bytes of a generation come once it has started: what there is of those before is nobody's.
  if (options_.on_devices) shards_->DropHalves();
  said_usage_ = base::Clock::Steady().Now();
  pb::FromNode started;
  started.mutable_started()->set_generation(start.generation());
  SetError(fleet_->Start(start.generation()), started.mutable_started()->mutable_error());
  for (const int64_t pid : fleet_->snapshot().pids) started.mutable_started()->add_pids(pid);
  if (fleet_->healthy()) *started.mutable_started()->mutable_links() = fleet_->measured().front().links();
  if (!fleet_->healthy()) EndRanks();
  Tell(std::move(started));
}

void Agent::CarryOrder(const pb::Order& order) {
  const bool is_there = fleet_ != nullptr && fleet_->healthy() && fleet_->generation() == order.generation();
  for (const pb::Order::Part& part : order.parts()) {  // Whatever becomes of the order.
    const auto& released = part.message().release().shards();
    released_.insert(released_.end(), released.begin(), released.end());
  }
  std::vector<int64_t> written = Written(order);
  const pb::Execute::Phase phase = PhaseOf(order);
  if (phase == pb::Execute::PHASE_RUN) written = std::exchange(bound_outputs_, {});
  if (is_there) shards_->SetWhole(written, false);
  Status status = is_there ? Prepare(order) : Unavailable("its ranks are over");
  if (is_there && status.ok()) status = Run(order);
  if (status.ok()) {
    if (phase == pb::Execute::PHASE_BIND) bound_outputs_ = std::exchange(written, {});  // Nothing is written yet.
    for (const pb::Order::Part& part : order.parts()) {
      for (const pb::DeviceShard& shard : part.message().bind().shards()) {
        if (shard.has_memory()) written.push_back(shard.id());
      }
    }
    shards_->SetWhole(written, true);
    status = SayFetched(order);
  }
  pb::FromNode message;
  pb::Answer& answer = *message.mutable_answer();
  answer.set_seq(order.seq());
  SetError(status, answer.mutable_error());
  answer.set_ended(!is_there || !fleet_->healthy());
  if (is_there) {
    for (const pb::Measured& measured : fleet_->measured()) *answer.add_measured() = measured;
  }
  shards_->Drop(released_);
  shards_->Drop(arrived_);
  messages_.clear();
  passing_.clear();
  fetched_.clear();
  released_.clear();
  arrived_.clear();
  if (answer.ended()) EndRanks();
  Tell(std::move(message));
  if (fleet_ != nullptr) SayUsage();
}

void Agent::SayUsage() {
  const base::Nanos now = base::Clock::Steady().Now();
  if (now - said_usage_ < kUsageEvery) return;
  said_usage_ = now;
  pb::FromNode message;
  pb::RanksUsage& said = *message.mutable_usage();
  said.set_generation(fleet_->generation());
  said.set_num_threads(options_.fleet.threads_per_rank);
  for (const int64_t pid : fleet_->snapshot().pids) {
    const ProcessUsage usage = UsageOf(static_cast<pid_t>(pid));
    said.add_resident_bytes(usage.resident_bytes);
    said.add_cpu_ms(usage.cpu_ms);
  }
  Tell(std::move(message));
}

std::vector<int64_t> Agent::Written(const pb::Order& order) const {
  std::vector<int64_t> written;
  for (const pb::Order::Part& part : order.parts()) {
    for (const pb::TensorArg& output : part.message().execute().outputs()) {
      const int64_t end = std::min<int64_t>(first_rank_ + options_.fleet.num_ranks(), output.shards_size());
      for (int64_t rank = first_rank_; rank < end; ++rank) {
        const int64_t shard = output.shards(static_cast<int>(rank));
        if (shard != 0) written.push_back(shard);
      }
    }
  }
  return written;
}

Status Agent::Prepare(const pb::Order& order) {
  const int64_t num_ranks = fleet_->size();
  messages_.assign(static_cast<size_t>(num_ranks), {});
  const bool is_one = order.parts_size() == 1 && order.parts(0).ranks().empty();
  posted_ = is_one && order.parts(0).message().has_execute() ? &order.parts(0).message().execute() : nullptr;
  for (const pb::Order::Part& part : order.parts()) {
    std::vector<int64_t> ranks(part.ranks().begin(), part.ranks().end());
    for (int64_t rank = 0; rank < num_ranks && part.ranks().empty(); ++rank) ranks.push_back(rank);
    for (const int64_t rank : ranks) {
      if (rank < 0 || rank >= num_ranks) return InvalidArgument(base::Cat("rank ", rank, " of ", num_ranks, " here"));
      RankMessage message;
      message.message = part.message();
      if (part.message().has_bind()) HIR_TRY(Bind(part.message(), message));
      if (part.message().has_fetch()) HIR_TRY(Fetch(part.message(), message));
      if (part.message().has_fetch() && message.message.fetch().shards().empty()) continue;  // All of it is here.
      messages_[static_cast<size_t>(rank)].push_back(std::move(message));
    }
  }
  return {};
}

Status Agent::Bind(const pb::ToWorker& message, RankMessage& into) {
  for (int i = 0; i < message.bind().shards_size(); ++i) {
    pb::DeviceShard& shard = *into.message.mutable_bind()->mutable_shards(i);
    if (shard.exported())
      return Unimplemented("memory of a device that a client exported, on another node than its own");
    const bool arrived = shard.has_memory() && shard.bytes() > 0;
    if (arrived && shards_->Find(shard.id()) != nullptr && !shards_->HasArrived(shard.id()))
      return Internal(base::Cat("not all of the ", shard.bytes(), " bytes of shard ", shard.id(), " have come"));
    if (arrived && shards_->Find(shard.id()) == nullptr) {
      return ResourceExhausted(base::Cat("this node has no room for a shard of ", shard.bytes(),
                                         " bytes: tensor_bytes_max = ", options_.shard_bytes_max, ", of which ",
                                         shards_->bytes(), " are kept"));
    }
    if (options_.on_devices && !arrived) continue;  // The device's own.
    HIR_ASSIGN(KeptShards::Memory memory, shards_->Get(shard.id(), shard.bytes()));
    shard.set_has_memory(shard.bytes() > 0);
    if (shard.has_memory()) into.fds.push_back(memory->fd());
    if (options_.on_devices) arrived_.push_back(shard.id());
    passing_.push_back(std::move(memory));
  }
  return {};
}

Status Agent::Fetch(const pb::ToWorker& message, RankMessage& into) {
  pb::Fetch& fetch = *into.message.mutable_fetch();
  fetch.Clear();
  for (const pb::DeviceShard& shard : message.fetch().shards()) {
    KeptShards::Memory memory = options_.on_devices ? nullptr : shards_->Find(shard.id());
    if (!options_.on_devices && memory == nullptr)
      return Internal(base::Cat("shard ", shard.id(), " is not kept here"));
    if (options_.on_devices) {
      HIR_ASSIGN(memory, shards_->Get(shard.id(), shard.bytes()));
      arrived_.push_back(shard.id());
      *fetch.add_shards() = shard;
      if (shard.has_memory()) into.fds.push_back(memory->fd());
    }
    fetched_.emplace_back(shard.id(), std::move(memory));
  }
  return {};
}

Status Agent::Run(const pb::Order& order) {
  const TimeLimit timeout = {std::chrono::microseconds(std::clamp<int64_t>(order.timeout_us(), 0, kTimeoutUsMax)),
                             order.limit()};
  const auto waits = order.waits_for_each_other() ? Ranks::Waits::kEachOther : Ranks::Waits::kNobody;
  fleet_->OnLate([this, seq = order.seq()](std::string_view, std::string_view where) {
    pb::FromNode message;
    message.mutable_late()->set_seq(seq);
    message.mutable_late()->set_where(std::string(where));
    Tell(std::move(message));
  });
  if (posted_ != nullptr && !posted_->profile() && !posted_->timeline() && fleet_->Post(*posted_))
    return fleet_->Await(timeout, order.what(), waits);
  return fleet_->Call(std::move(messages_), timeout, order.what(), waits);
}

Status Agent::SayFetched(const pb::Order& order) {
  for (const auto& [id, memory] : fetched_) {
    for (int64_t offset = 0; offset < memory->bytes();) {
      int64_t bytes = 0;
      bool asks = false;
      {
        std::unique_lock lock(mutex_);
        const auto is_over = [&] { return stopping_ || !fence_.Hears(served_) || ended_ >= order.generation(); };
        room_.wait(lock, [&] { return is_over() || (bytes = window_.Next(memory->bytes() - offset)) > 0; });
        if (is_over()) return Unavailable("the head wants no more bytes");
        asks = window_.Sent(bytes, offset + bytes == memory->bytes(), base::Clock::Steady().Now());
      }
      pb::FromNode message;
      pb::ShardBytes& said = *message.mutable_bytes();
      said.set_shard(id);
      said.set_total(memory->bytes());
      said.set_offset(offset);
      said.set_data(memory->data() + offset, static_cast<size_t>(bytes));
      said.set_asks(asks);
      Tell(std::move(message));
      offset += bytes;
    }
  }
  return {};
}

}  // namespace hir::service
