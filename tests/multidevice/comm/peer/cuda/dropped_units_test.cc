// Goal: no unit of a push goes missing, or is read before it is there, without a trace. Method: short programs of
// pushes, with the kernels as CPU code. Each unit is lost in turn: the deadline passes, and no result is wrong. Each
// wait for one is skipped in turn, before the unit is sent: the result is wrong. Each is read in turn when those of the
// next call are there: the result is right.
#include <gtest/gtest.h>

#include <atomic>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>

#include "tests/multidevice/comm/peer/cuda/peer_programs.h"

namespace hir::comm {
namespace {

using device::PlaceOf;
using std::chrono::milliseconds;

constexpr int64_t kUnits = 2;  // Of a message: one, and half of one.
constexpr PeerPaths kAllByPushes = {.push_bytes_max = kNoBytes};

// A unit of a run: where it lies in the memory of its receiver, which says who sends it; the number of the call; and
// which of the receivers: senders go through them in the order of the team.
struct Unit {
  int64_t offset = 0;
  unsigned number = 0;
  int64_t receiver = 0;
  auto operator<=>(const Unit&) const = default;
};

struct Hooks {
  std::mutex mutex;
  std::map<std::pair<int64_t, unsigned>, int64_t> sent;  // How often the unit was, to whomever. Guarded by mutex.
  std::optional<Unit> lost, skipped, late;
  std::atomic<bool> over = false;  // The wait was skipped.
};
// By the memory that ranks fill from their own threads: that of teams is among it.
std::mutex owners_mutex;
std::map<uint64_t, Hooks*> owners;
bool LearnMemory(const device::FakeQueued& queued) {
  if (owner_of_run == nullptr || queued.kind != device::FakeQueued::Kind::kFill) return true;
  std::lock_guard lock(owners_mutex);
  owners[queued.dst.memory] = static_cast<Hooks*>(owner_of_run);
  return true;
}
Hooks* OwnerOf(const device::FakePlace& place) {
  std::lock_guard lock(owners_mutex);
  return owners.at(place.memory);
}

device::FakePlace At(unsigned long long address) { return PlaceOf(reinterpret_cast<const void*>(address)); }

bool LosesUnit(unsigned long long address, unsigned number) {
  const device::FakePlace place = At(address);
  Hooks* const hooks = OwnerOf(place);
  Unit unit = {place.offset, number};
  {
    std::lock_guard lock(hooks->mutex);
    unit.receiver = hooks->sent[{unit.offset, number}]++;
  }
  const bool held = hooks->skipped && hooks->skipped->offset == unit.offset && hooks->skipped->number == number;
  while (held && !hooks->over) std::this_thread::yield();
  return hooks->lost == unit;
}
// The first of the receivers that comes.
bool SkipsWait(unsigned long long address, unsigned number) {
  const device::FakePlace place = At(address);
  Hooks* const hooks = OwnerOf(place);
  const bool skipped = hooks->skipped && hooks->skipped->offset == place.offset && hooks->skipped->number == number;
  return skipped && !hooks->over.exchange(true);
}

int64_t SentOfCall(Hooks& hooks, unsigned number) {
  std::lock_guard lock(hooks.mutex);
  int64_t sent = 0;
  for (const auto& [unit, times] : hooks.sent) sent += unit.second == number ? times : 0;
  return sent;
}
// Until the other rank, of two, has sent all of the next call.
void AwaitsNext(unsigned long long address, unsigned number) {
  const device::FakePlace place = At(address);
  Hooks* const hooks = OwnerOf(place);
  if (!hooks->late || hooks->late->offset != place.offset || hooks->late->number != number) return;
  while (SentOfCall(*hooks, number + 1) < kUnits) std::this_thread::yield();
}

std::vector<PeerProgram> Programs() {
  std::vector<PeerProgram> programs;
  const auto add = [&](std::string name, CommType type, int64_t ranks) {
    PeerProgram& program = programs.emplace_back();
    program.name = base::Cat(name, " of ", ranks);
    program.type = type;
    program.ranks = ranks;
    program.calls = 3;  // The third uses the rooms of the first.
    program.count = 3;
  };
  add("allgather", CommType::kAllgather, 2);
  add("reduce_scatter", CommType::kReduceScatter, 2);
  add("all_to_all", CommType::kAllToAll, 2);
  add("allreduce", CommType::kAllreduce, 2);
  add("allreduce", CommType::kAllreduce, 3);
  return programs;
}

class DroppedUnits : public testing::Test {
 protected:
  void SetUp() override { SetPeerUnitHooks({&LosesUnit, &SkipsWait, &AwaitsNext}); }
  void TearDown() override { SetPeerUnitHooks({}); }

  // Runs with what is lost or skipped.
  static std::unique_ptr<PeerProgramRun> Run(FakePeers& backend, const PeerProgram& program, base::Nanos timeout,
                                             Hooks& with) {
    auto run = std::make_unique<PeerProgramRun>(program);
    run->set_owner(&with);
    run->Run(backend, timeout);
    return run;
  }
  static std::unique_ptr<FakePeers> Backend() {
    auto backend = std::make_unique<FakePeers>(kAllByPushes, kSmallTeamBytes);
    device::Fake().on_queue = &LearnMemory;
    return backend;
  }
  static std::vector<Unit> UnitsOf(const PeerProgram& program) {
    Hooks none;
    const auto run = Run(*Backend(), program, kAmple, none);
    for (const Status& status : run->statuses()) EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(run->wrong().empty());
    std::vector<Unit> units;
    for (const auto& [unit, times] : none.sent) {
      EXPECT_EQ(times, program.ranks - 1);
      for (int64_t receiver = 0; receiver < times; ++receiver) units.push_back({unit.first, unit.second, receiver});
    }
    return units;
  }
  static int64_t Failed(const PeerProgramRun& run) {
    int64_t failed = 0;
    for (const Status& status : run.statuses()) {
      EXPECT_TRUE(status.ok() || status.code() == Code::kDeadlineExceeded) << status.ToString();
      failed += status.ok() ? 0 : 1;
    }
    return failed;
  }
};

// One rank's deadline passes before the others': what goes on after it must send nothing that they take for a result.
TEST_F(DroppedUnits, ALostUnitEndsInTheDeadline) {
  constexpr int64_t kAtOnce = 16, kRanksMax = 3;
  constexpr base::Nanos kDeadline = milliseconds(100), kLater = milliseconds(150);
  struct Lost {
    PeerProgram program;
    Unit unit;
  };
  std::vector<Lost> all;
  for (const PeerProgram& program : Programs()) {
    const std::vector<Unit> units = UnitsOf(program);
    EXPECT_EQ(std::ssize(units), program.ranks * (program.ranks - 1) * program.calls * kUnits);
    for (const Unit& unit : units) all.push_back({program, unit});
  }
  std::vector<std::unique_ptr<FakePeers>> backends;
  for (int64_t i = 0; i < kAtOnce; ++i) {
    backends.push_back(Backend());
    backends.back()->run_beside_others(i * kRanksMax);
  }
  device::Fake().num_devices = kAtOnce * kRanksMax;
  device::Fake().memory_bytes = kAtOnce * kRanksMax * kRankMemoryBytes;
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> longest_ms = 0;
  {
    std::vector<std::jthread> threads;
    for (const auto& backend : backends) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < 2 * all.size(); i = next++) {
          const auto& [program, unit] = all[i / 2];
          backend->give_time(static_cast<int64_t>(i % 2), kLater);
          SCOPED_TRACE(base::Cat(program.name, ", call ", unit.number, ", at ", unit.offset, ", to ", unit.receiver));
          Hooks with;
          with.lost = unit;
          const auto run = Run(*backend, program, kDeadline, with);
          EXPECT_GT(Failed(*run), 0);
          for (const std::string& wrong : run->wrong()) ADD_FAILURE() << "wrong result: " << wrong;
          const int64_t ms = std::chrono::duration_cast<milliseconds>(run->longest()).count();
          int64_t longest = longest_ms;
          while (ms > longest && !longest_ms.compare_exchange_weak(longest, ms)) {
          }
        }
      });
    }
  }
  std::cout << 2 * all.size() << " units lost: each ended in the deadline of 100 ms, after at most " << longest_ms
            << " ms\n";
  EXPECT_GT(all.size(), 50u);
  EXPECT_LT(longest_ms, 10'000);
  EXPECT_EQ(device::Fake().live_objects, 0);
}

TEST_F(DroppedUnits, ASkippedWaitIsAWrongResult) {
  int64_t all = 0;
  for (const PeerProgram& program : Programs()) {
    for (const Unit& unit : UnitsOf(program)) {
      if (unit.receiver > 0) continue;  // Which of them skips it is left to the schedule.
      SCOPED_TRACE(base::Cat(program.name, ", call ", unit.number, ", at ", unit.offset));
      Hooks with;
      with.skipped = unit;
      const auto run = Run(*Backend(), program, kAmple, with);
      EXPECT_EQ(Failed(*run), 0);
      EXPECT_TRUE(with.over);
      EXPECT_EQ(run->wrong().size(), 1u);
      ++all;
    }
  }
  std::cout << all << " waits skipped: each gave one wrong result\n";
  EXPECT_GT(all, 50);
}

// What gives rooms back is that they have two halves: a rank that is a call ahead writes into the other one.
TEST_F(DroppedUnits, ALateReaderFindsItsUnits) {
  int64_t all = 0;
  for (const PeerProgram& program : Programs()) {
    if (program.ranks != 2) continue;
    for (const Unit& unit : UnitsOf(program)) {
      if (unit.number == program.calls) continue;
      SCOPED_TRACE(base::Cat(program.name, ", call ", unit.number, ", at ", unit.offset));
      Hooks with;
      with.late = unit;
      const auto run = Run(*Backend(), program, kAmple, with);
      ASSERT_EQ(Failed(*run), 0);
      ASSERT_TRUE(run->wrong().empty()) << run->wrong()[0];
      ++all;
    }
  }
  std::cout << all << " units read when the next call's were there: each was as sent\n";
  EXPECT_GE(all, 32);
}

}  // namespace
}  // namespace hir::comm
