// Goal: whatever ranks and clients do, each run that was accepted ends once, in bounded time, with the right values or
// with the cause that there was.
// Method: the sequencer on simulated ranks (simulated_ranks.h), on one thread and a clock of its own, so that a seed is
// a schedule. HOSTIR_SEEDS=N runs N seeds of each kind, HOSTIR_SEED=S one.
#include "service/engine/sequencer.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/from_environment.h"
#include "tests/service/engine/simulated_ranks.h"

namespace hir::service {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Fault = SimulatedRanks::Fault;

using testing::FromEnvironment;

std::shared_ptr<const Program> MakeProgram(int64_t number, int inputs) {
  ::hostir::v1::Plan plan;
  plan.set_name(base::Cat("p", number));
  for (int i = 0; i < inputs; ++i) {
    auto& input = *plan.add_inputs();
    input.set_name(base::Cat("x", i));
    input.set_scalar(true);
    input.set_dtype(::hostir::v1::DTYPE_FLOAT32);
  }
  auto program = Program::Make(base::Cat("id", number), number, std::move(plan));
  HIR_CHECK(program.ok());
  return *std::move(program);
}

// Counts rooms of tensors, which stay as long as anybody knows of them, alive or not.
template <typename T>
struct Counted {
  using value_type = T;
  explicit Counted(int64_t* counted) : rooms(counted) {}
  template <typename U>
  Counted(const Counted<U>& other) : rooms(other.rooms) {}  // NOLINT: as the standard wants it.
  T* allocate(size_t count) {
    ++*rooms;
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* room, size_t count) {
    --*rooms;
    std::allocator<T>().deallocate(room, count);
  }
  bool operator==(const Counted&) const = default;
  int64_t* rooms;
};

// A sequencer, its ranks, and what clients did.
class World {
 public:
  World(SimulatedRanks::Options options, int64_t queued_runs_max)
      : options_(options), random_(options.seed * 7919 + 13) {
    auto ranks = std::make_unique<SimulatedRanks>(options, events_);
    ranks_ = ranks.get();
    sequencer_.emplace(std::move(ranks),
                       Sequencer::Options{.queued_runs_max = queued_runs_max,
                                          .on_devices = options.on_devices,
                                          .copy_timeout = {seconds(1), "f"},
                                          .cancel_grace = options.cancel_grace,
                                          .metrics = metrics_},
                       wakeup_, released_, [this] { return std::exchange(gone_, {}); });
    for (int64_t number = 1; number <= 5; ++number) programs_.push_back(MakeProgram(number, 3));
  }

  // A tensor and what each rank's element of it must be.
  struct Held {
    std::shared_ptr<Tensor> tensor;
    int64_t value = 0;
    std::set<int64_t> runs = {};  // It came through.
  };
  Held Put(int64_t value) {
    auto host = std::make_shared<HostShards>();
    for (int64_t rank = 0; rank < options_.ranks && options_.on_devices; ++rank) {
      host->memory.push_back(*SharedMemory::Create(sizeof(value)));
      std::memcpy(host->memory.back().data(), &value, sizeof(value));
    }
    std::vector<ShardSet::Shard> shards = NewShards();
    for (const ShardSet::Shard& shard : shards) ranks_->SetValue(shard.id, value);
    auto set = std::make_shared<ShardSet>(std::move(shards), std::move(host), released_);
    return {std::make_shared<Tensor>(TensorSpec{}, std::move(set), TensorState::kReady), value};
  }

  // One that nodes keep, as a client wrote it, which then freed it.
  void KeepAndFree(int64_t& rooms) {
    auto set = std::make_shared<ShardSet>(NewShards(), nullptr, released_);
    sequencer_->Keep(
        std::allocate_shared<Tensor>(Counted<Tensor>{&rooms}, TensorSpec{}, std::move(set), TensorState::kReady));
  }

  struct Ended {
    bool refused = false;
    Status status;
  };
  // Posts a run of `owner`; `ended` once when it is over, which was looked for if `looks`. Its output; null: refused.
  std::optional<Held> Run(const Owner& owner, const std::vector<Held>& inputs, bool looks,
                          std::function<void(const Status&)> ended, base::Nanos timeout = milliseconds(300),
                          base::Nanos within = {}) {
    RunJob job;
    job.owner = owner;
    job.run = ++posted_;
    job.program = programs_[Below(programs_.size())];
    job.timeout = {timeout, "t"};
    if (within > base::Nanos()) job.deadline = {events_->Now() + within, within.count()};
    if (job.deadline.there()) deadlines_[job.run] = job.deadline.at;
    std::vector<int64_t> values;
    for (size_t i = 0; i < 3; ++i) {
      const bool tensor = i < inputs.size();
      job.inputs.push_back(tensor ? inputs[i].tensor : nullptr);
      job.float_scalars.push_back(0);
      job.int_scalars.push_back(0);
      if (tensor) values.push_back(inputs[i].value);
    }
    auto host = options_.on_devices ? nullptr : std::make_shared<HostShards>();
    std::vector<ShardSet::Shard> shards;
    if (!pool_->empty() && Below(8) > 0) {  // What ranks have bound already, so that a run may begin at once.
      shards = std::move(pool_->back());
      pool_->pop_back();
    } else {
      shards = NewShards();
    }
    auto recycle = [pool = pool_](std::vector<ShardSet::Shard> left, const auto&) { pool->push_back(std::move(left)); };
    auto set = std::make_shared<ShardSet>(std::move(shards), std::move(host), released_, std::move(recycle));
    Held made = {std::make_shared<Tensor>(TensorSpec{}, std::move(set), TensorState::kPending),
                 Mixed(job.program->number(), 0, values),
                 {job.run}};
    for (const Held& input : inputs) made.runs.insert(input.runs.begin(), input.runs.end());
    job.outputs.push_back(made.tensor);
    job.done = [this, run = job.run, made, ended = std::move(ended)](const Status& status, base::Nanos) {
      EXPECT_TRUE(under_way_.erase(run) == 1) << "run " << run << " ended twice";
      const auto deadline = deadlines_.find(run);
      const bool is_late = deadline != deadlines_.end() && events_->Now() > deadline->second + Grace();
      EXPECT_FALSE(is_late) << "run " << run;
      Check(run, made, status);
      if (ended) ended(status);
    };
    under_way_.insert(job.run);
    const int64_t run = job.run;
    if (const Status status = sequencer_->Post(std::move(job)); !status.ok()) {
      under_way_.erase(run);
      ++refused_;
      return std::nullopt;
    }
    if (looks) sequencer_->LookForEnd(run);
    return made;
  }

  // Posts a download of what only the ranks have.
  void Fetch(const Owner& owner, const Held& held) {
    auto into = std::make_shared<HostShards>();
    for (int64_t rank = 0; rank < options_.ranks; ++rank)
      into->memory.push_back(*SharedMemory::Create(sizeof(int64_t)));
    FetchJob job = {.owner = owner, .tensor = held.tensor, .into = into};
    const int64_t number = -(++fetched_);
    job.done = [this, number, into, value = held.value](const Status& status) {
      EXPECT_TRUE(under_way_.erase(number) == 1) << "fetch " << number << " ended twice";
      if (!status.ok()) return CheckCause(number, status);
      for (const SharedMemory& memory : into->memory) {
        int64_t element = 0;
        std::memcpy(&element, memory.data(), sizeof(element));
        EXPECT_EQ(element, value) << "fetch " << number;
      }
    };
    under_way_.insert(number);
    if (!sequencer_->Post(std::move(job)).ok()) under_way_.erase(number);
  }

  // Posts an upload from memory of devices that a client exported; `then` hears of the tensor.
  void Store(const Owner& owner, int64_t value, std::function<void(Held)> then) {
    std::vector<base::Fd> exported;
    for (int64_t rank = 0; rank < options_.ranks; ++rank) {
      exported.emplace_back(memfd_create("exported", MFD_CLOEXEC));
      HIR_CHECK(pwrite(exported.back().get(), &value, sizeof(value), 0) == sizeof(value));
    }
    Held made = {std::make_shared<Tensor>(TensorSpec{}, std::make_shared<ShardSet>(NewShards(), nullptr, released_),
                                          TensorState::kReady),
                 value};
    StoreJob job = {.owner = owner, .tensor = made.tensor, .from_devices = std::move(exported)};
    const int64_t number = -(++fetched_);
    job.done = [this, number, made, then = std::move(then)](const Status& status) mutable {
      EXPECT_TRUE(under_way_.erase(number) == 1) << "store " << number << " ended twice";
      if (!status.ok()) return CheckCause(number, status);
      ++stored_;
      for (const ShardSet::Shard& shard : made.tensor->shards().shards())
        EXPECT_EQ(ranks_->Value(shard.device, shard.id).value_or(0), made.value) << "store " << number;
      then(std::move(made));
    };
    under_way_.insert(number);
    if (!sequencer_->Post(std::move(job)).ok()) under_way_.erase(number);
  }

  // The owner of a run of its own cancels that, whatever it is at.
  void Cancel(const Owner& owner, int64_t run) {
    const bool was_there = under_way_.contains(run);
    cancelled_.insert(run);
    const Sequencer::Cancelled found = sequencer_->CancelRun(owner, run, "zoe");
    EXPECT_TRUE(was_there || found == Sequencer::Cancelled::kOver) << run;
    if (found == Sequencer::Cancelled::kTakenBack) ++taken_back_;
    EXPECT_EQ(under_way_.contains(run), found == Sequencer::Cancelled::kUnderWay) << run;
    if (found == Sequencer::Cancelled::kUnderWay) {
      events_->In(Grace(), [this, run] {
        events_->In({}, [this, run] { EXPECT_FALSE(under_way_.contains(run)) << "run " << run << " goes on"; });
      });
    }
  }

  // `runs`: those that what has failed came through, or null for a download of it.
  void CheckCause(int64_t run, const Status& status, const std::set<int64_t>* runs = nullptr) {
    const bool is_caused = status.message().find("(fault ") != std::string::npos;
    EXPECT_TRUE(is_caused || status.message() == kLeft || stopping_ || IsEarly(status, runs))
        << run << ": " << status.ToString();
  }
  // What a run gets that is cancelled. Who looks for an end holds up the only thread.
  base::Nanos Grace() const {
    return options_.cancel_grace + milliseconds(options_.busy_wait == base::BusyWait::Mode::kOff ? 0 : 5);
  }
  // Whether it says of one of `runs` that it was cancelled, or had a deadline, and that was so.
  bool IsEarly(const Status& status, const std::set<int64_t>* runs) {
    const bool is_late = status.message().find("deadline_ms = ") != std::string::npos;
    const size_t at = status.message().find("run ");
    if (at == std::string::npos || (!is_late && status.message().find("zoe") == std::string::npos)) return false;
    const int64_t culprit = std::atoll(std::string(status.message().substr(at + 4)).c_str());
    // On devices the mesh that ends with it takes what others had there.
    const bool is_own = runs == nullptr || runs->contains(culprit) || status.code() == Code::kDataLoss;
    if (status.message().find("while it ran") != std::string::npos) ++given_up_;
    return is_own && (is_late ? deadlines_.at(culprit) <= events_->Now() : cancelled_.contains(culprit));
  }

  // What a run that ended left.
  void Check(int64_t run, const Held& made, const Status& status) {
    ++(status.ok() ? right_ : failed_);
    const Readiness::Condition condition = made.tensor->condition();
    if (!status.ok()) {
      EXPECT_EQ(condition.state, TensorState::kPoisoned) << run;
      return CheckCause(run, status, &made.runs);
    }
    EXPECT_EQ(condition.state, TensorState::kReady) << run;
    const auto& shards = made.tensor->shards().shards();
    for (const ShardSet::Shard& shard : shards) {
      const std::optional<int64_t> value = ranks_->Value(shard.device, shard.id);
      EXPECT_EQ(value.value_or(0), made.value) << "run " << run << ", rank " << shard.device;
    }
  }

  // Serves until `over`, looked at each millisecond, or a virtual hour; then stops.
  void ServeUntil(std::function<bool()> over) {
    std::function<void()> look = [this, over, &look] {
      const bool late = events_->Now() > std::chrono::hours(1);
      EXPECT_FALSE(late) << under_way_.size() << " runs hang";
      if (!over() && !late) return events_->In(milliseconds(1), look);
      stopping_ = true;
      sequencer_->Stop(Unavailable("stopped"));
    };
    events_->In(milliseconds(1), look);
    sequencer_->Serve([](const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); });
    EXPECT_TRUE(under_way_.empty()) << under_way_.size() << " runs never ended";
    CheckCounts();
  }

  // The counts are those of all that happened.
  void CheckCounts() const {
    const auto number_of = [](const Histogram& histogram) {
      int64_t sum = 0;
      for (const int64_t count : histogram.counts()) sum += count;
      return sum;
    };
    EXPECT_EQ(metrics_->runs.of(Code::kOk), right_);
    EXPECT_EQ(metrics_->runs.total(), right_ + failed_);
    int64_t turns = 0;
    metrics_->principals.ForEach(
        [&](std::string_view, const Metrics::Principal& principal) { turns += number_of(principal.queue_time); });
    EXPECT_EQ(number_of(metrics_->run_time), turns);
    EXPECT_GE(turns, right_);
    EXPECT_LE(turns, right_ + failed_);
    EXPECT_EQ(metrics_->heals.value(), std::max<int64_t>(0, ranks_->num_started() - 1));
    EXPECT_GE(metrics_->mesh_down.total(events_->Now()).count(), metrics_->heals.value());
  }

  size_t Below(size_t limit) { return static_cast<size_t>(random_() % limit); }
  Events& events() { return *events_; }
  SimulatedRanks& ranks() { return *ranks_; }
  Sequencer& sequencer() { return *sequencer_; }
  bool on_devices() const { return options_.on_devices; }
  const std::set<int64_t>& under_way() const { return under_way_; }
  void Drop(int64_t program) { gone_.push_back(program); }
  int64_t right() const { return right_; }
  int64_t failed() const { return failed_; }
  int64_t refused() const { return refused_; }
  int64_t stored() const { return stored_; }
  int64_t taken_back() const { return taken_back_; }
  int64_t given_up() const { return given_up_; }  // Runs that failed since one was that ranks had.

  static constexpr const char* kLeft = "it left";

 private:
  std::vector<ShardSet::Shard> NewShards() {
    std::vector<ShardSet::Shard> shards;
    for (int64_t rank = 0; rank < options_.ranks; ++rank)
      shards.push_back({rank, ++last_shard_, options_.on_devices ? int64_t{8} : 0});
    return shards;
  }

  const SimulatedRanks::Options options_;
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();
  const std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  const std::shared_ptr<ReleasedShards> released_ =
      std::make_shared<ReleasedShards>([wakeup = wakeup_] { wakeup->Signal(); });
  const std::shared_ptr<std::vector<std::vector<ShardSet::Shard>>> pool_ =
      std::make_shared<std::vector<std::vector<ShardSet::Shard>>>();
  const std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  SimulatedRanks* ranks_ = nullptr;  // Of the sequencer.
  std::vector<std::shared_ptr<const Program>> programs_;
  std::optional<Sequencer> sequencer_;
  std::mt19937_64 random_;
  std::vector<int64_t> gone_;
  std::set<int64_t> under_way_;
  std::set<int64_t> cancelled_;
  std::map<int64_t, base::Nanos> deadlines_;
  int64_t taken_back_ = 0, given_up_ = 0;
  bool stopping_ = false;
  int64_t posted_ = 0, fetched_ = 0, stored_ = 0, last_shard_ = 0, right_ = 0, failed_ = 0, refused_ = 0;
};

// A client that posts so many runs, some at once, some when the one before has ended, and may leave in between.
class RandomClient {
 public:
  RandomClient(World& world, int number, int runs)
      : world_(world), owner_{base::Cat("user", number % 2), base::Cat("session", number)}, left_(runs) {
    floods_ = world.Below(2) == 0;
    cancels_ = world.Below(3) == 0;
    looks_ = world.Below(2) == 0;
    leaves_ = world.Below(6) == 0;
    for (int64_t i = 0; i < 2; ++i) held_.push_back(world.Put(100 * number + i));
    Later();
  }
  bool over() const { return left_ <= 0; }

 private:
  void Later() {
    if (left_ <= 0) return;
    const size_t most = world_.Below(4) == 0 ? 20'000 : 500;
    world_.events().In(microseconds(static_cast<int64_t>(world_.Below(most))), [this] { Act(); });
  }
  void Act() {
    if (left_ <= 0) return;
    if (leaves_ && world_.Below(20) == 0) {
      left_ = 0;
      held_.clear();
      world_.sequencer().Cancel(owner_, Status(Code::kCancelled, World::kLeft));
      return;
    }
    if (world_.Below(8) == 0) held_.push_back(world_.Put(static_cast<int64_t>(world_.Below(1000))));
    if (world_.Below(8) == 0) world_.Drop(static_cast<int64_t>(1 + world_.Below(5)));
    if (world_.on_devices() && world_.Below(6) == 0) {
      world_.Store(owner_, static_cast<int64_t>(world_.Below(1000)), [this](World::Held held) {
        if (left_ > 0) held_.push_back(std::move(held));
      });
    }
    if (world_.on_devices() && !held_.empty() && world_.Below(6) == 0) {
      const World::Held& held = held_[world_.Below(held_.size())];
      if (held.tensor->shards().host() == nullptr && held.tensor->condition().state != TensorState::kPending)
        world_.Fetch(owner_, held);
    }
    const size_t count = floods_ ? 1 + world_.Below(12) : 1;
    for (size_t i = 0; i < count && left_ > 0; ++i) {
      --left_;
      std::vector<World::Held> inputs;
      for (size_t k = world_.Below(4); k > 0 && !held_.empty(); --k)
        inputs.push_back(held_[world_.Below(held_.size())]);
      auto then = floods_ ? std::function<void(const Status&)>() : [this](const Status&) { Later(); };
      const bool has_deadline = cancels_ && world_.Below(4) == 0;
      const auto within = microseconds(has_deadline ? 1 + static_cast<int64_t>(world_.Below(20'000)) : 0);
      std::optional<World::Held> made = world_.Run(owner_, inputs, looks_, std::move(then), milliseconds(300), within);
      if (made && cancels_ && world_.Below(6) == 0) {
        const auto later = microseconds(static_cast<int64_t>(world_.Below(3000)));
        world_.events().In(later, [this, run = *made->runs.rbegin()] { world_.Cancel(owner_, run); });
      }
      if (!made && !floods_) Later();
      if (made) held_.push_back(*std::move(made));
      // So that most is right again some time after a fault.
      while (held_.size() > 6) held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(world_.Below(held_.size())));
      std::erase_if(held_, [this](const World::Held& one) {
        const TensorState state = one.tensor->condition().state;
        return (state == TensorState::kPoisoned || state == TensorState::kLost) && world_.Below(2) == 0;
      });
    }
    if (floods_) Later();
  }

  World& world_;
  const Owner owner_;
  int left_ = 0;
  bool floods_ = false, looks_ = false, leaves_ = false, cancels_ = false;
  std::vector<World::Held> held_;
};

using BusyWait = base::BusyWait::Mode;
struct Case {
  std::string name;
  bool on_devices = false;
  BusyWait busy_wait = BusyWait::kOff;
};
class Simulation : public ::testing::TestWithParam<Case> {};

TEST_P(Simulation, EndsEveryRunRightOrWithItsCause) {
  spdlog::set_level(spdlog::level::off);
  const int64_t only = FromEnvironment("HOSTIR_SEED", -1);
  const int64_t count = only >= 0 ? 1 : FromEnvironment("HOSTIR_SEEDS", 300);
  int64_t right = 0, failed = 0, refused = 0, faults = 0, generations = 0, posted = 0, taken = 0, silent = 0,
          stored = 0;
  int64_t taken_back = 0, given_up = 0;
  for (int64_t seed = std::max<int64_t>(only, 0), end = seed + count; seed < end; ++seed) {
    SCOPED_TRACE(base::Cat("HOSTIR_SEED=", seed));
    World world({.ranks = 1 + seed % 5,
                 .seed = static_cast<uint64_t>(seed),
                 .on_devices = GetParam().on_devices,
                 .busy_wait = GetParam().busy_wait,
                 .delay_max = microseconds(seed % 3 == 0 ? 10 : 100),
                 .run_max = microseconds(seed % 3 == 0 ? 50 : 2000),
                 .heartbeat = milliseconds(seed % 2 == 0 ? 0 : 5),
                 .cancel_grace = microseconds(seed % 4 == 1 ? 0 : 500)},
                /*queued_runs_max=*/20);
    std::vector<std::unique_ptr<RandomClient>> clients;
    for (int number = 0; number < 4; ++number) clients.push_back(std::make_unique<RandomClient>(world, number, 30));
    if (seed % 4 != 0) {  // A quarter goes undisturbed: nothing but clients that leave may end a run then.
      // Some have a rank that is short of memory all the time.
      const bool is_short = world.Below(3) == 0;
      for (size_t i = 0; i < (is_short ? 12 : 1 + world.Below(4)); ++i) {
        const auto fault = is_short ? Fault::kRefusal : static_cast<Fault>(world.Below(6));
        ++faults;
        // The first start takes 51 ms at most; a daemon whose first mesh does not start does not serve.
        world.events().At(microseconds(static_cast<int64_t>(52'000 + world.Below(120'000))),
                          [&world, fault] { world.ranks().Inject(fault); });
      }
    }
    // Some daemons are asked to end in the middle.
    const base::Nanos end_at =
        seed % 5 == 4 ? microseconds(52'000 + 100 * (seed % 97)) : base::Nanos(std::chrono::hours(2));
    world.ServeUntil([&] {
      if (world.events().Now() >= end_at) return true;
      return world.under_way().empty() && std::ranges::all_of(clients, [](const auto& c) { return c->over(); });
    });
    right += world.right();
    failed += world.failed();
    refused += world.refused();
    generations += world.ranks().generation();
    posted += world.ranks().num_posted();
    taken += world.ranks().num_taken();
    silent += world.ranks().num_silent();
    stored += world.stored();
    taken_back += world.taken_back();
    given_up += world.given_up();
    if (HasFailure()) return;
  }
  std::cout << count << " seeds: " << right << " runs right, " << failed << " failed with their cause, " << refused
            << " refused; " << posted << " posted, " << taken << " of them seen to end first by who asked; " << faults
            << " faults, " << generations << " generations, " << silent << " ended of silence at rest, " << stored
            << " arrays of GPUs stored, " << taken_back << " taken back, " << given_up
            << " ended with one that was given up\n";
  EXPECT_EQ(count >= 20 && stored > count, count >= 20 && GetParam().on_devices);
  EXPECT_TRUE(count < 20 || (taken_back > count / 4 && given_up > count / 4));
  EXPECT_TRUE(count < 20 || (right > 10 * count && failed > count && generations > count));
  EXPECT_EQ(count >= 20 && taken > count,
            count >= 20 && GetParam().busy_wait != BusyWait::kOff && !GetParam().on_devices);
}

INSTANTIATE_TEST_SUITE_P(All, Simulation,
                         ::testing::Values(Case{"host", false, BusyWait::kOff},
                                           Case{"host_looking", false, BusyWait::kOn},
                                           Case{"host_looking_while_it_pays", false, BusyWait::kAuto},
                                           Case{"devices", true, BusyWait::kOff},
                                           Case{"devices_looking", true, BusyWait::kOn}),
                         [](const auto& instance) { return instance.param.name; });

// A rank that stops while nothing runs costs no run.
TEST(SequencerHeals, WhatFreezesAtRestIsReplacedBeforeTheNextRun) {
  for (const bool beats : {true, false}) {
    World world({.ranks = 4, .seed = 3, .heartbeat = milliseconds(beats ? 10 : 0)}, 10);
    std::vector<std::string> ended;
    const auto run = [&] {
      (void)world.Run({"zoe", "1"}, {}, false, [&](const Status& status) { ended.push_back(status.ToString()); });
    };
    world.events().At(seconds(1), run);
    world.events().At(seconds(2), [&] { world.ranks().Inject(Fault::kFreeze); });
    int64_t generation = 0;
    world.events().At(milliseconds(2300), [&] { generation = world.ranks().generation(); });
    world.events().At(seconds(3), run);
    world.ServeUntil([&] { return ended.size() == 2; });
    EXPECT_EQ(generation, beats ? 2 : 1) << "60 ms of silence, and 51 for a start, fit in 300";
    EXPECT_EQ(ended[0], "OK");
    EXPECT_EQ(ended[1] == "OK", beats) << ended[1];
  }
}

// Ranks that are only slow, and a client that is late, are left alone.
TEST(SequencerHeals, SlowRanksAtRestAreLeftAlone) {
  World world({.ranks = 4, .seed = 4, .heartbeat = milliseconds(10)}, 10);
  world.events().At(seconds(1), [&] { world.ranks().Inject(Fault::kSlow); });
  world.ServeUntil([&] { return world.events().Now() > seconds(20); });
  EXPECT_EQ(world.ranks().generation(), 1);
}

// Without a run in between.
TEST(SequencerKeeps, NothingOfWhatWasPutPastItAndFreed) {
  int64_t rooms = 0;
  {
    World world({.ranks = 2, .seed = 6, .on_devices = true}, 10);
    for (int64_t i = 1; i <= 1000; ++i) world.events().At(milliseconds(i), [&] { world.KeepAndFree(rooms); });
    world.ServeUntil([&] { return world.events().Now() > seconds(2); });
    EXPECT_LE(rooms, 64);
  }
  EXPECT_EQ(rooms, 0);
}

// Two users: one keeps its queue full, the other asks when it has its answer.
TEST(SequencerShares, WhoFloodsLeavesOthersTheirShare) {
  const auto rate = [](bool beside_a_flood) {
    World world({.ranks = 2, .seed = 5}, 100);
    int64_t polite = 0;
    std::function<void(const Status&)> again = [&](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      ++polite;
      world.events().In(microseconds(100), [&] { (void)world.Run({"zoe", "1"}, {}, false, again); });
    };
    std::function<void()> flood = [&] {
      while (world.Run({"bob", "2"}, {}, false, {})) {
      }
      world.events().In(milliseconds(1), flood);
    };
    world.events().In(microseconds(1), [&] { (void)world.Run({"zoe", "1"}, {}, false, again); });
    if (beside_a_flood) world.events().In(microseconds(2), flood);
    int64_t counted = 0;
    world.events().In(seconds(2), [&] {
      counted = polite;
      again = [](const Status&) {};
      flood = [] {};
    });
    world.ServeUntil([&] { return world.events().Now() > seconds(3); });
    return counted;
  };
  const int64_t alone = rate(false), beside = rate(true);
  std::cout << "runs in two seconds: " << alone << " alone, " << beside << " beside a flood\n";
  EXPECT_GE(beside, alone * 2 / 5);
}

TEST(SequencerShares, AThousandRanksHearSoon) {
  World world({.ranks = 1000, .seed = 1}, 10);
  base::Nanos heard = {};
  base::Nanos real = {};
  world.events().In(seconds(1), [&] {
    const base::Nanos posted = world.events().Now();
    const base::Nanos began = base::Clock::Steady().Now();
    (void)world.Run({"zoe", "1"}, {}, false, [&, posted, began](const Status& status) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      heard = world.ranks().last_heard() - posted;
      real = base::Clock::Steady().Now() - began;
    });
  });
  world.ServeUntil([&] { return world.right() == 1; });
  std::cout << "the last of 1000 ranks heard of a run after " << heard.count() / 1000
            << " us of their time; all of it took " << real.count() / 1000 << " us\n";
  EXPECT_LT(heard, milliseconds(10));
}

}  // namespace
}  // namespace hir::service
