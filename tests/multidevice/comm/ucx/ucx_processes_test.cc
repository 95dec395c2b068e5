// UCX between processes, as in the service: two forked ranks that find each other through shared
// memory. The test's process never touches UCX itself.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "csrc/device/host/host_device.h"
#include "multidevice/comm/ucx/ucx.h"
#include "multidevice/rendezvous/forked.h"
#include "tests/multidevice/comm/ucx/shared/left_behind.h"

namespace hir::comm {
namespace {

constexpr base::Nanos kLong = std::chrono::seconds(20);

// body(rank) in a process each; its result is the exit status.
class Ranks {
 public:
  Ranks(int size, const std::function<int(int rank)>& body) {
    for (int rank = 0; rank < size; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) _exit(body(rank));
      pids_.push_back(pid);
    }
  }
  // The exit status of `rank`, or minus the signal that ended it.
  int Wait(size_t rank) const {
    int status = 0;
    EXPECT_EQ(waitpid(pids_[rank], &status, 0), pids_[rank]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  std::vector<pid_t> pids_;
};

#define OR_EXIT(condition)                                                                 \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      std::fprintf(stderr, "rank %d: line %d: %s is false\n", rank, __LINE__, #condition); \
      return __LINE__ % 250 + 1;                                                           \
    }                                                                                      \
  } while (false)

class UcxProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasUcx()) GTEST_SKIP() << "this build has no UCX";
  }
  ForkedRendezvous rendezvous_;
};

TEST_F(UcxProcesses, TwoRanksReduceAndExchange) {
  const Ranks ranks(2, [&](int rank) {
    const auto device = *device::CreateHostDevice({});
    auto comm = CreateUcx({.rank = rank, .size = 2}, rendezvous_);
    OR_EXIT(comm.ok());
    const auto stream = *device->CreateStream();
    const std::vector<int64_t> both = {0, 1};
    const Result<TeamId> team = (*comm)->Team(both, 0);
    OR_EXIT(team.ok());
    for (int64_t count : {1, 1000, 1'000'003}) {
      std::vector<float> data(static_cast<size_t>(count), static_cast<float>(rank + 1));
      const device::Buffer buffer = {reinterpret_cast<std::byte*>(data.data()), count * 4};
      OR_EXIT((*comm)
                  ->Post({.type = CommType::kAllreduce, .team = *team, .count = count, .src = buffer, .dst = buffer},
                         *stream)
                  .ok());
      OR_EXIT(stream->Synchronize(kLong).ok());
      OR_EXIT(data == std::vector<float>(static_cast<size_t>(count), 3.0f));
      std::vector<float> gathered(static_cast<size_t>(2 * count));
      data.assign(static_cast<size_t>(count), static_cast<float>(rank));
      OR_EXIT((*comm)
                  ->Post({.type = CommType::kAllgather,
                          .team = *team,
                          .count = count,
                          .src = buffer,
                          .dst = {reinterpret_cast<std::byte*>(gathered.data()), count * 8}},
                         *stream)
                  .ok());
      OR_EXIT(stream->Synchronize(kLong).ok());
      OR_EXIT(std::accumulate(gathered.begin(), gathered.end(), 0.0) == static_cast<double>(count));
    }
    return 0;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

// The System V segments that this process has made: how many, and how many of them others may read or write.
struct Segments {
  int all = 0, open_to_others = 0;
};
Segments OwnSegments() {
  Segments own;
  std::ifstream file("/proc/sysvipc/shm");
  std::string line;
  std::getline(file, line);  // Names of columns.
  while (std::getline(file, line)) {
    std::istringstream words(line);
    int64_t key = 0, id = 0, rights = 0, bytes = 0, creator = 0;
    words >> key >> id >> std::oct >> rights >> std::dec >> bytes >> creator;
    if (creator != getpid()) continue;
    ++own.all;
    own.open_to_others += (rights & 077) != 0 ? 1 : 0;
  }
  return own;
}

TEST_F(UcxProcesses, WhatRanksShareIsTheirUsersAlone) {
  const Ranks ranks(2, [&](int rank) {
    const auto device = *device::CreateHostDevice({});
    auto comm = CreateUcx({.rank = rank, .size = 2}, rendezvous_);
    OR_EXIT(comm.ok());
    const auto stream = *device->CreateStream();
    const std::vector<int64_t> both = {0, 1};
    const Result<TeamId> team = (*comm)->Team(both, 0);
    OR_EXIT(team.ok());
    std::vector<float> data(1 << 20, 1.0f);
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(data.data()), 4 << 20};
    OR_EXIT((*comm)
                ->Post({.type = CommType::kAllreduce, .team = *team, .count = 1 << 20, .src = buffer, .dst = buffer},
                       *stream)
                .ok());
    OR_EXIT(stream->Synchronize(kLong).ok());
    const Segments own = OwnSegments();
    std::printf("rank %d: %d segments, %d open to others\n", rank, own.all, own.open_to_others);
    OR_EXIT(own.all > 0);  // Else there is nothing to look at.
    OR_EXIT(own.open_to_others == 0);
    return 0;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

// Rank 1 is killed in a run. Rank 0 is told by whoever watches processes (here: itself), and ends
// in order.
TEST_F(UcxProcesses, ARankOutlivesAKilledPeer) {
  const Ranks ranks(2, [&](int rank) {
    const auto device = *device::CreateHostDevice({});
    auto comm = CreateUcx({.rank = rank, .size = 2}, rendezvous_);
    OR_EXIT(comm.ok());
    const auto stream = *device->CreateStream();
    const std::vector<int64_t> both = {0, 1};
    const Result<TeamId> team = (*comm)->Team(both, 0);
    OR_EXIT(team.ok());
    std::vector<float> data(1 << 20, 1.0f);
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(data.data()), 4 << 20};
    const CommDesc desc = {.type = CommType::kAllreduce, .team = *team, .count = 1 << 20, .src = buffer, .dst = buffer};
    for (int64_t seq = 0;; ++seq) {
      CommDesc next = desc;
      next.seq = seq;
      OR_EXIT((*comm)->Post(next, *stream).ok());
      if (rank == 1 && seq == 3) raise(SIGKILL);
      const Status done = stream->Synchronize(std::chrono::milliseconds(500));
      if (done.ok()) continue;
      const base::Nanos aborted = base::Clock::Steady().Now();
      (*comm)->Abort(Unavailable("rank 1 was killed"));
      const std::string end = stream->Synchronize(kLong).ToString();
      // UCX sometimes notices by itself that the peer is gone, and that is the first cause then.
      OR_EXIT(end == "UNAVAILABLE: rank 1 was killed" || end.starts_with("UNAVAILABLE: allreduce #3: rank 1: ucx: "));
      OR_EXIT(base::Clock::Steady().Now() - aborted < std::chrono::seconds(1));
      return 0;
    }
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), -SIGKILL);
}

// Shared memory has no name that could stay behind, and goes with the ranks that hold it, whether they end in order or
// are killed while another waits for them.
TEST_F(UcxProcesses, OfSharedMemoryNothingIsLeft) {
  const Ranks ranks(3, [&](int rank) {
    const int64_t files = OpenFiles();
    {
      const auto device = *device::CreateHostDevice({});
      auto comm = CreateUcx({.rank = rank, .size = 3, .op_timeout = std::chrono::milliseconds(700)}, rendezvous_);
      OR_EXIT(comm.ok());
      const int64_t connected = OpenFiles();
      const std::vector<int64_t> all = {0, 1, 2};
      const Result<TeamId> team = (*comm)->Team(all, 0);
      const Result<TeamId> lane = (*comm)->Team(all, 1);
      OR_EXIT(team.ok() && lane.ok());
      OR_EXIT(OpenFiles() == connected);
      OR_EXIT(SharedMappings() == 2);
      OR_EXIT(NamedSegments() == 0);
      const auto stream = *device->CreateStream();
      float value = 1;
      const device::Buffer buffer = {reinterpret_cast<std::byte*>(&value), 4};
      CommDesc desc = {.team = *team, .count = 1, .src = buffer, .dst = buffer};
      for (desc.seq = 0; desc.seq < 20; ++desc.seq) {
        OR_EXIT((*comm)->Post(desc, *stream).ok());
        OR_EXIT(stream->Synchronize(kLong).ok());
      }
      OR_EXIT(value == 3'486'784'401.0f);  // 3 to the 20th.
      if (rank == 2) raise(SIGKILL);
      // Nobody says that it died: the deadline ends what waits for it.
      OR_EXIT((*comm)->Post(desc, *stream).ok());
      const std::string end = stream->Synchronize(kLong).ToString();
      OR_EXIT(end.starts_with("DEADLINE_EXCEEDED: rank 2 has not sent anything for allreduce #20"));
    }
    OR_EXIT(SharedMappings() == 0);
    OR_EXIT(OpenFiles() <= files + 1);  // UCX keeps one of its own.
    return 0;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
  EXPECT_EQ(ranks.Wait(2), -SIGKILL);
}

// However many teams there are, the memory that they share has an end; those beyond it do by messages what the others
// do through it.
TEST_F(UcxProcesses, ManyTeamsShareLittle) {
  const Ranks ranks(2, [&](int rank) {
    const auto device = *device::CreateHostDevice({});
    auto comm = CreateUcx({.rank = rank, .size = 2}, rendezvous_);
    OR_EXIT(comm.ok());
    const std::vector<int64_t> both = {0, 1};
    const auto stream = *device->CreateStream();
    float value = 1;
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(&value), 4};
    for (int lane = 0; lane < 80; ++lane) {
      const Result<TeamId> team = (*comm)->Team(both, lane);
      OR_EXIT(team.ok());
      value = 1;
      const CommDesc desc = {.team = *team, .count = 1, .src = buffer, .dst = buffer, .seq = lane};
      OR_EXIT((*comm)->Post(desc, *stream).ok());
      OR_EXIT(stream->Synchronize(kLong).ok());
      OR_EXIT(value == 2);
    }
    OR_EXIT(SharedMappings() == 64);  // A MiB each.
    return 0;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

// A rank that has waited long sleeps, and is woken by what the others put.
TEST_F(UcxProcesses, WhoSleepsIsWoken) {
  const Ranks ranks(2, [&](int rank) {
    const auto device = *device::CreateHostDevice({});
    auto comm = CreateUcx({.rank = rank, .size = 2}, rendezvous_);
    OR_EXIT(comm.ok());
    const std::vector<int64_t> both = {0, 1};
    const Result<TeamId> team = (*comm)->Team(both, 0);
    OR_EXIT(team.ok());
    const auto stream = *device->CreateStream();
    float value = 1;
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(&value), 4};
    for (int i = 0; i < 20; ++i) {
      if (rank == i % 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      OR_EXIT((*comm)->Post({.team = *team, .count = 1, .src = buffer, .dst = buffer, .seq = i}, *stream).ok());
      OR_EXIT(stream->Synchronize(kLong).ok());
    }
    OR_EXIT(value == 1'048'576.0f);
    return 0;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(1), 0);
}

TEST_F(UcxProcesses, ARankThatDoesNotComeIsNamed) {
  const Ranks ranks(1, [&](int rank) {
    const auto comm =
        CreateUcx({.rank = 0, .size = 2, .generation = 9, .setup_timeout = std::chrono::milliseconds(20)}, rendezvous_);
    OR_EXIT(comm.status().ToString().starts_with(
        "DEADLINE_EXCEEDED: ucx: rank 1 did not come: rendezvous: g9/domain/1 was not published"));
    return 0;
  });
  EXPECT_EQ(ranks.Wait(0), 0);
}

}  // namespace
}  // namespace hir::comm
