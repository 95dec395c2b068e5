// The suite that every Communicator passes. A backend instantiates it with a CommBackend:
//
//   INSTANTIATE_TEST_SUITE_P(Local, CommunicatorSuite, testing::Values(&MakeLocalBackend),
//   BackendName);
//
// Data is random (seeds are fixed and in the messages), dst is poisoned before, and results are
// compared bit by bit: the order of additions is part of the contract.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "csrc/device/device.h"
#include "csrc/device/host/host_kernel.h"
#include "multidevice/comm/communicator.h"
#include "tests/conformance/communicator_case.h"

namespace hir::comm {

// Makes ranks that can communicate, in one process.
class CommBackend {
 public:
  virtual ~CommBackend() = default;
  // Why it cannot run here; empty: it can.
  virtual std::string Absent() const { return {}; }
  // body(communicator, device) for each of `size` new ranks, at the same time.
  virtual void Run(int64_t size, base::Nanos op_timeout,
                   const std::function<void(Communicator&, device::Device&)>& body) = 0;
};
using CommBackendFactory = std::unique_ptr<CommBackend> (*)();

class CommunicatorSuite : public testing::TestWithParam<CommBackendFactory> {
 protected:
  static constexpr base::Nanos kLong = std::chrono::seconds(20);

  void SetUp() override {
    if (const std::string reason = backend_->Absent(); !reason.empty()) GTEST_SKIP() << reason;
  }
  void Run(int64_t size, const std::function<void(Communicator&, device::Device&)>& body,
           base::Nanos op_timeout = kLong) {
    backend_->Run(size, op_timeout, body);
  }
  static std::vector<int64_t> All(int64_t size) {
    std::vector<int64_t> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

 private:
  const std::unique_ptr<CommBackend> backend_ = GetParam()();
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorSuite);

inline constexpr CommType kTypes[] = {CommType::kAllgather,     CommType::kAllreduce,
                                      CommType::kReduceScatter, CommType::kBroadcast,
                                      CommType::kAllToAll,      CommType::kSendRecv};

// Runs `c` on this rank, if it is in the team, and checks what came out.
inline void RunCase(const CommCase& c, int64_t seq, Communicator& comm, device::Stream& stream) {
  const auto place = std::find(c.ranks.begin(), c.ranks.end(), comm.rank());
  if (place == c.ranks.end()) return;
  const Result<TeamId> team = comm.Team(c.ranks, 0);
  ASSERT_TRUE(team.ok()) << team.status().ToString();
  CaseBuffers buffers(c, place - c.ranks.begin());
  const Status posted = comm.Post(buffers.Desc(*team, seq), stream);
  ASSERT_TRUE(posted.ok()) << c.ToString() << ": " << posted.ToString();
  const Status done = stream.Synchronize(std::chrono::seconds(20));
  ASSERT_TRUE(done.ok()) << c.ToString() << ": " << done.ToString();
  EXPECT_EQ(buffers.Check(), "");
}

inline std::vector<ReduceOp> OpsOf(CommType type) {
  if (type != CommType::kAllreduce && type != CommType::kReduceScatter) return {ReduceOp::kSum};
  return {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax};
}

TEST_P(CommunicatorSuite, EveryTypeDtypeSizeAndTeam) {
  const std::vector<std::pair<int64_t, std::vector<std::vector<int64_t>>>> worlds = {
      {1, {{0}}},
      {2, {{0, 1}}},
      {3, {{0, 1, 2}, {2, 0}}},
      {4, {{0, 1, 2, 3}, {0, 2}, {1, 3}, {3, 1, 2, 0}}}};
  for (const auto& [size, teams] : worlds) {
    std::vector<CommCase> cases;
    for (CommType type : kTypes) {
      for (DType dtype : kAllDTypes) {
        for (ReduceOp reduce : OpsOf(type)) {
          for (int64_t count : {0, 1, 1021}) {
            for (bool in_place : {false, true}) {
              for (const auto& ranks : teams) {
                const auto i = static_cast<int64_t>(cases.size());
                cases.push_back({.type = type,
                                 .reduce = reduce,
                                 .dtype = dtype,
                                 .count = count,
                                 .in_place = in_place,
                                 .ranks = ranks,
                                 .root_index = i % static_cast<int64_t>(ranks.size()),
                                 .shift = i % (static_cast<int64_t>(ranks.size()) + 1),
                                 .seed = static_cast<uint64_t>(i)});
              }
            }
          }
        }
      }
    }
    Run(size, [&](Communicator& comm, device::Device& device) {
      const auto stream = *device.CreateStream();
      for (size_t i = 0; i < cases.size(); ++i) {
        RunCase(cases[i], static_cast<int64_t>(i), comm, *stream);
        if (testing::Test::HasFatalFailure()) return;
      }
    });
  }
}

// Long enough for every algorithm that is kept for large messages, and not a multiple of anything.
TEST_P(CommunicatorSuite, LargeMessages) {
  std::vector<CommCase> cases;
  for (CommType type : kTypes) {
    for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (bool in_place : {false, true}) {
        cases.push_back({.type = type,
                         .dtype = dtype,
                         .count = (1 << 20) / (type == CommType::kAllToAll ? 4 : 1) + 1,
                         .in_place = in_place,
                         .ranks = {2, 0, 1},
                         .root_index = 1,
                         .seed = cases.size()});
      }
    }
    cases.push_back(
        {.type = type, .dtype = DType::kInt64, .count = 33'333, .ranks = {0, 1, 2}, .seed = 99});
  }
  Run(3, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    for (size_t i = 0; i < cases.size(); ++i)
      RunCase(cases[i], static_cast<int64_t>(i), comm, *stream);
  });
}

// Rank 0 to 1 and 2 to 0, each with only its own half, and rank 3 with none.
TEST_P(CommunicatorSuite, SendRecvWithAbsentHalves) {
  for (int64_t count : {int64_t{5}, int64_t{300'000}}) {
    Run(4, [&](Communicator& comm, device::Device& device) {
      const auto stream = *device.CreateStream();
      const TeamId team = *comm.Team(All(4), 0);
      std::vector<float> src(static_cast<size_t>(count), static_cast<float>(comm.rank()));
      std::vector<float> dst(static_cast<size_t>(count), -1);
      const int64_t to[] = {1, kNoRank, 0, kNoRank};
      const int64_t from[] = {2, 0, kNoRank, kNoRank};
      const int64_t bytes = count * 4;
      const Status posted = comm.Post({.type = CommType::kSendRecv,
                                       .team = team,
                                       .count = count,
                                       .src = {reinterpret_cast<std::byte*>(src.data()), bytes},
                                       .dst = {reinterpret_cast<std::byte*>(dst.data()), bytes},
                                       .to = to[comm.rank()],
                                       .from = from[comm.rank()]},
                                      *stream);
      ASSERT_TRUE(posted.ok()) << posted.ToString();
      ASSERT_TRUE(stream->Synchronize(kLong).ok());
      const float expected[] = {2, 0, -1, -1};
      EXPECT_EQ(dst, std::vector<float>(static_cast<size_t>(count), expected[comm.rank()]))
          << "rank " << comm.rank();
    });
  }
}

// Every rank first sends to all others and then receives, on one stream: only a group makes that
// possible.
TEST_P(CommunicatorSuite, AGroupStartsTogether) {
  static constexpr int64_t kCount = 50'000;
  Run(3, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(3), 0);
    std::vector<int64_t> src(kCount, comm.rank());
    std::vector<std::vector<int64_t>> dst(3, std::vector<int64_t>(kCount, -1));
    const auto buffer = [](std::vector<int64_t>& v) {
      return device::Buffer{reinterpret_cast<std::byte*>(v.data()), kCount * 8};
    };
    ASSERT_TRUE(comm.GroupBegin().ok());
    EXPECT_EQ(comm.GroupBegin().ToString(), "FAILED_PRECONDITION: group: groups do not nest");
    for (int64_t peer = 0; peer < 3; ++peer) {
      if (peer == comm.rank()) continue;
      ASSERT_TRUE(comm.Post({.type = CommType::kSendRecv,
                             .team = team,
                             .dtype = DType::kInt64,
                             .count = kCount,
                             .src = buffer(src),
                             .to = peer,
                             .seq = peer},
                            *stream)
                      .ok());
    }
    EXPECT_EQ(comm.Post({.type = CommType::kSendRecv, .team = team, .count = -1}, *stream).code(),
              Code::kInvalidArgument);
    for (int64_t peer = 0; peer < 3; ++peer) {
      if (peer == comm.rank()) continue;
      ASSERT_TRUE(comm.Post({.type = CommType::kSendRecv,
                             .team = team,
                             .dtype = DType::kInt64,
                             .count = kCount,
                             .dst = buffer(dst[static_cast<size_t>(peer)]),
                             .from = peer,
                             .seq = 3 + peer},
                            *stream)
                      .ok());
    }
    ASSERT_TRUE(comm.GroupEnd().ok());
    EXPECT_EQ(comm.GroupEnd().ToString(), "FAILED_PRECONDITION: group: it has not begun");
    ASSERT_TRUE(stream->Synchronize(kLong).ok());
    for (int64_t peer = 0; peer < 3; ++peer) {
      const int64_t expected = peer == comm.rank() ? -1 : peer;
      EXPECT_EQ(dst[static_cast<size_t>(peer)], std::vector<int64_t>(kCount, expected));
    }
  });
}

// Two lanes, posted in opposite orders on even and odd ranks: they would block each other if they
// shared an order.
TEST_P(CommunicatorSuite, LanesProgressIndependently) {
  Run(4, [&](Communicator& comm, device::Device& device) {
    const std::vector<std::unique_ptr<device::Stream>> streams = [&] {
      std::vector<std::unique_ptr<device::Stream>> made;
      for (int i = 0; i < 2; ++i) made.push_back(*device.CreateStream());
      return made;
    }();
    const std::vector<TeamId> teams = {*comm.Team(All(4), 0), *comm.Team(All(4), 1)};
    EXPECT_NE(static_cast<int>(teams[0]), static_cast<int>(teams[1]));
    EXPECT_EQ(*comm.Team(All(4), 1), teams[1]);
    for (uint64_t round = 0; round < 20; ++round) {
      const CommCase c = {.count = 3000, .ranks = All(4), .seed = round};
      const CommCase d = {.type = CommType::kAllToAll,
                          .dtype = DType::kInt32,
                          .count = 70,
                          .ranks = All(4),
                          .seed = round};
      CaseBuffers a(c, comm.rank());
      CaseBuffers b(d, comm.rank());
      const auto post = [&](size_t lane) {
        auto& buffers = lane == 0 ? a : b;
        ASSERT_TRUE(comm.Post(buffers.Desc(teams[lane], static_cast<int64_t>(2 * round + lane)),
                              *streams[lane])
                        .ok());
      };
      const size_t first = comm.rank() % 2 == 0 ? 0 : 1;
      post(first);
      post(1 - first);
      for (const auto& stream : streams) ASSERT_TRUE(stream->Synchronize(kLong).ok());
      EXPECT_EQ(a.Check(), "");
      EXPECT_EQ(b.Check(), "");
    }
  });
}

// A chain of posts, kernels and events over two streams, none of which is waited for: each step
// uses the one before.
TEST_P(CommunicatorSuite, CompletesInStreamOrder) {
  static const device::HostKernel increment(
      {.name = "increment", .function = [](const int64_t* args, int64_t begin, int64_t end) {
         auto* const data = reinterpret_cast<int64_t*>(args[0]);
         for (int64_t i = begin; i < end; ++i) data[i] += 1;
       }});
  constexpr int64_t kCount = 2000;
  constexpr int kRounds = 30;
  Run(3, [&](Communicator& comm, device::Device& device) {
    const auto compute = *device.CreateStream();
    const auto wire = *device.CreateStream();
    const auto event = *device.CreateEvent();
    const TeamId team = *comm.Team(All(3), 0);
    std::vector<int64_t> data(kCount, comm.rank());
    const device::Buffer buffer = {reinterpret_cast<std::byte*>(data.data()), kCount * 8};
    const int64_t args[] = {reinterpret_cast<int64_t>(data.data())};
    for (int round = 0; round < kRounds; ++round) {
      compute->Record(*event);
      wire->Wait(*event);
      ASSERT_TRUE(comm.Post({.type = CommType::kAllreduce,
                             .team = team,
                             .dtype = DType::kInt64,
                             .count = kCount,
                             .src = buffer,
                             .dst = buffer,
                             .seq = round},
                            *wire)
                      .ok());
      wire->Record(*event);
      compute->Wait(*event);
      compute->Launch(increment, args, kCount);
    }
    ASSERT_TRUE(compute->Synchronize(kLong).ok());
    uint64_t expected = 0 + 1 + 2;
    for (int round = 0; round < kRounds; ++round)
      expected = (round == 0 ? expected : 3 * expected) + 1;
    EXPECT_EQ(data, std::vector<int64_t>(kCount, static_cast<int64_t>(expected)));
    EXPECT_EQ(comm.Progress().entered, kRounds - 1);
    EXPECT_EQ(comm.Progress().left, kRounds - 1);
  });
}

TEST_P(CommunicatorSuite, ArgumentErrorsQueueNothing) {
  Run(2, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(2), 0);
    std::vector<float> data(64);
    const device::Buffer whole = {reinterpret_cast<std::byte*>(data.data()), 256};
    const auto refused = [&](const CommDesc& desc) { return comm.Post(desc, *stream).ToString(); };
    EXPECT_EQ(refused({.type = CommType::kGather, .team = team, .seq = 3}),
              "UNIMPLEMENTED: gather #3: no backend has this communication yet");
    EXPECT_EQ(refused({.team = TeamId{7}, .seq = 4}),
              "INVALID_ARGUMENT: allreduce #4: there is no team 7");
    EXPECT_EQ(refused({.team = team, .count = 8, .src = whole, .dst = {whole.data, 20}, .seq = 5}),
              "INVALID_ARGUMENT: allreduce #5: dst has 20 bytes, 32 are needed (1 x 8 f32)");
    EXPECT_EQ(stream->Synchronize(kLong).ToString(), "OK");
    RunCase({.count = 10, .ranks = All(2), .seed = 1}, 6, comm, *stream);
    EXPECT_EQ(comm.Team(std::vector<int64_t>{0, 2}, 0).status().ToString(),
              "INVALID_ARGUMENT: team [0, 2]: rank 2 is not in [0, 2)");
    EXPECT_EQ(comm.Team(std::vector<int64_t>{0, 0}, 0).status().ToString(),
              "INVALID_ARGUMENT: team [0, 0]: rank 0 is there twice");
    EXPECT_EQ(comm.Team({}, 0).status().ToString(), "INVALID_ARGUMENT: team []: it has no rank");
  });
}

// A rank that aborts gets its streams back at once, and its buffers; later posts are refused with
// the first cause.
TEST_P(CommunicatorSuite, AbortEndsWhatIsPending) {
  for (const CommCase& c :
       {CommCase{.count = 10, .ranks = All(2)}, CommCase{.count = 1 << 20, .ranks = All(2)},
        CommCase{.type = CommType::kAllgather, .count = 1 << 18, .ranks = All(2)},
        CommCase{.type = CommType::kSendRecv, .count = 1 << 18, .ranks = All(2)}}) {
    Run(2, [&](Communicator& comm, device::Device& device) {
      const auto stream = *device.CreateStream();
      const TeamId team = *comm.Team(c.ranks, 0);
      CaseBuffers buffers(c, comm.rank());
      CaseBuffers queued(c, comm.rank());
      if (comm.rank() == 0) {  // Rank 1 never comes.
        ASSERT_TRUE(comm.Post(buffers.Desc(team, 1), *stream).ok());
        ASSERT_TRUE(comm.Post(queued.Desc(team, 2), *stream).ok());
        Status pending;
        do {  // A busy machine may take long to start it.
          pending = stream->Synchronize(std::chrono::milliseconds(10));
        } while (pending.code() == Code::kDeadlineExceeded && comm.Progress().entered < 1);
        EXPECT_EQ(pending.code(), Code::kDeadlineExceeded);
        EXPECT_EQ(comm.Progress().entered, 1);
        EXPECT_EQ(comm.Progress().left, -1);
      }
      comm.Abort(Unavailable("rank 1 was lost"));
      comm.Abort(Internal("not the first"));
      const Status done = stream->Synchronize(std::chrono::seconds(1));
      EXPECT_EQ(done.ToString(), comm.rank() == 0 ? "UNAVAILABLE: rank 1 was lost" : "OK");
      EXPECT_EQ(comm.Post(buffers.Desc(team, 3), *stream).ToString(),
                "UNAVAILABLE: rank 1 was lost");
      EXPECT_EQ(comm.Team(std::vector<int64_t>{comm.rank()}, 5).status().ToString(),
                "UNAVAILABLE: rank 1 was lost");
    });
  }
}

// The rank that did not come is named, and so is what it did not come to.
TEST_P(CommunicatorSuite, ADeadlineNamesTheMissingRank) {
  for (CommType type : {CommType::kAllgather, CommType::kAllreduce, CommType::kAllToAll}) {
    Run(
        3,
        [&](Communicator& comm, device::Device& device) {
          const auto stream = *device.CreateStream();
          const TeamId team = *comm.Team(All(3), 0);
          const CommCase c = {.type = type, .count = 100, .ranks = All(3)};
          RunCase(c, 16, comm, *stream);
          if (comm.rank() == 2) return;
          CaseBuffers buffers(c, comm.rank());
          ASSERT_TRUE(comm.Post(buffers.Desc(team, 17), *stream).ok());
          const Status done = stream->Synchronize(kLong);
          EXPECT_EQ(done.code(), Code::kDeadlineExceeded);
          EXPECT_THAT(std::string(done.message()), testing::HasSubstr("rank 2 "));
          EXPECT_THAT(std::string(done.message()),
                      testing::HasSubstr(std::string(CommTypeName(type)) + " #17"));
        },
        std::chrono::milliseconds(500));
  }
}

// A stream that failed before never starts its communication; the communicator says so instead of
// leaving it open.
TEST_P(CommunicatorSuite, ASkippedCommunicationPoisons) {
  Run(1, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(1), 0);
    stream->HostCallback([] { return Internal("kernel failed"); });
    CaseBuffers buffers({.ranks = All(1)}, 0);
    ASSERT_TRUE(comm.Post(buffers.Desc(team, 0), *stream).ok());
    EXPECT_EQ(stream->Synchronize(kLong).ToString(), "INTERNAL: kernel failed");
    EXPECT_EQ(comm.Post(buffers.Desc(team, 1), *stream).ToString(), "INTERNAL: kernel failed");
  });
}

}  // namespace hir::comm
