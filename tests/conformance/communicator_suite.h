// The suite that every Communicator passes. A backend instantiates it with a CommBackend:
//
//   INSTANTIATE_TEST_SUITE_P(Local, CommunicatorSuite, testing::Values(&MakeLocalBackend),
//   BackendName);
//
// Data is random (seeds are fixed and in the messages), dst is poisoned before, and results are
// compared bit by bit: the order of additions is part of the contract, but for backends that say
// otherwise, whose sums and products of floats are compared within the bound of the contract.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "csrc/device/device.h"
#include "multidevice/comm/communicator.h"
#include "tests/conformance/communicator_case.h"

namespace hir::comm {

// Makes ranks that can communicate: threads of this process, or processes of which this is one.
class CommBackend {
 public:
  virtual ~CommBackend() = default;
  // Why it cannot run here; empty: it can.
  virtual std::string Absent() const { return {}; }
  // As many ranks as it can make.
  virtual int64_t size_max() const { return 4; }
  // Whether sums and products of floats are added up in the order of the team.
  virtual bool fixed_order() const { return true; }
  // Whether a deadline tells which rank is missing.
  virtual bool names_missing_rank() const { return true; }
  // body(communicator, device) for each of `size` new ranks, at the same time; of processes, for the
  // one rank that is this, if it is below `size`.
  virtual void Run(int64_t size, base::Nanos op_timeout,
                   const std::function<void(Communicator&, device::Device&)>& body) = 0;
};
using CommBackendFactory = std::unique_ptr<CommBackend> (*)();

// `count` times `value`, f32.
inline Bytes Floats(int64_t count, float value) {
  Bytes bytes(static_cast<size_t>(count) * sizeof(float));
  for (int64_t i = 0; i < count; ++i) StoreAs(bytes, i, value);
  return bytes;
}

class CommunicatorSuite : public testing::TestWithParam<CommBackendFactory> {
 protected:
  // Of all that ends by itself: a busy machine under a sanitizer takes some of it.
  static constexpr base::Nanos kLong = std::chrono::seconds(60);

  void SetUp() override {
    if (const std::string reason = backend_->Absent(); !reason.empty()) GTEST_SKIP() << reason;
  }
  void Run(int64_t size, const std::function<void(Communicator&, device::Device&)>& body,
           base::Nanos op_timeout = kLong) {
    backend_->Run(size, op_timeout, body);
  }
  // `wanted` ranks, or as many as there can be.
  int64_t SizeUpTo(int64_t wanted) const { return std::min(wanted, backend_->size_max()); }
  const CommBackend& backend() const { return *backend_; }
  static std::vector<int64_t> All(int64_t size) {
    std::vector<int64_t> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

 private:
  const std::unique_ptr<CommBackend> backend_ = GetParam()();
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorSuite);

// Runs those of `cases` on this rank in whose team it is, and checks what came out. All are posted
// before the first is waited for.
inline void RunCases(std::span<const CommCase> cases, int64_t seq, Communicator& comm, device::Device& device,
                     device::Stream& stream) {
  std::deque<CaseBuffers> posted;
  std::vector<CommDesc> descs;
  for (const CommCase& c : cases) {
    const auto place = std::find(c.ranks.begin(), c.ranks.end(), comm.rank());
    if (place == c.ranks.end()) continue;
    const Result<TeamId> team = comm.Team(c.ranks, 0);
    ASSERT_TRUE(team.ok()) << team.status().ToString();
    posted.emplace_back(c, place - c.ranks.begin(), device, stream);
    descs.push_back(posted.back().Desc(*team, seq++));
  }
  for (const CommDesc& desc : descs) {
    const Status status = comm.Post(desc, stream);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  for (CaseBuffers& buffers : posted) buffers.Fetch();
  const Status done = stream.Synchronize(std::chrono::seconds(60));
  ASSERT_TRUE(done.ok()) << cases[0].ToString() << ": " << done.ToString();
  for (const CaseBuffers& buffers : posted) ASSERT_EQ(buffers.Check(), "");
}
inline void RunCase(const CommCase& c, int64_t seq, Communicator& comm, device::Device& device,
                    device::Stream& stream) {
  RunCases({&c, 1}, seq, comm, device, stream);
}

inline std::vector<ReduceOp> OpsOf(CommType type, DType dtype) {
  if (!Reduces(type)) return {ReduceOp::kSum};
  if (!IsFloat(dtype)) return {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax};
  return {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kMean};
}

TEST_P(CommunicatorSuite, EveryTypeDtypeSizeAndTeam) {
  const std::vector<std::pair<int64_t, std::vector<std::vector<int64_t>>>> worlds = {
      {1, {{0}}}, {2, {{0, 1}, {1, 0}}}, {3, {{0, 1, 2}, {2, 0}}}, {4, {{0, 1, 2, 3}, {0, 2}, {1, 3}, {3, 1, 2, 0}}}};
  for (const auto& [size, teams] : worlds) {
    if (size > backend().size_max()) continue;
    std::vector<CommCase> cases;
    for (CommType type : kAllCommTypes) {
      for (DType dtype : kAllDTypes) {
        for (ReduceOp reduce : OpsOf(type, dtype)) {
          for (int64_t count : {0, 1, 1021}) {
            for (bool in_place : {false, true}) {
              for (const auto& ranks : teams) {
                const auto i = static_cast<int64_t>(cases.size());
                cases.push_back({.type = type,
                                 .reduce = reduce,
                                 .dtype = dtype,
                                 .count = count,
                                 .in_place = in_place,
                                 .fixed_order = backend().fixed_order(),
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
      for (size_t i = 0; i < cases.size() && !testing::Test::HasFatalFailure(); i += 32) {
        RunCases(std::span(cases).subspan(i, std::min<size_t>(32, cases.size() - i)), static_cast<int64_t>(i), comm,
                 device, *stream);
      }
    });
  }
}

// A byte less, as much, and more than where backends go from one algorithm to another: 32 KiB and 256 KiB a chunk;
// 64 KiB that a rank has for the others, which is a fourth of it a chunk where it has one for each.
TEST_P(CommunicatorSuite, EitherSideOfEveryThreshold) {
  const int64_t n = SizeUpTo(4);
  std::vector<CommCase> cases;
  for (const CommType type : kAllCommTypes) {
    for (const int64_t threshold : {16 * 1024, 32 * 1024, 64 * 1024, 256 * 1024}) {
      for (const int64_t more : {-1, 0, 1}) {
        cases.push_back({.type = type,
                         .reduce = ReduceOp::kMax,
                         .dtype = DType::kBool,
                         .count = threshold + more,
                         .in_place = more == 0,
                         .ranks = All(n),
                         .root_index = (more + 1) % n,
                         .seed = cases.size()});
      }
    }
  }
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    for (size_t i = 0; i < cases.size() && !testing::Test::HasFatalFailure(); i += 6) {
      RunCases(std::span(cases).subspan(i, std::min<size_t>(6, cases.size() - i)), static_cast<int64_t>(i), comm,
               device, *stream);
    }
  });
}

// Long enough for every algorithm that is kept for large messages, and not a multiple of anything;
// every dtype, every root.
TEST_P(CommunicatorSuite, LargeMessages) {
  const int64_t n = SizeUpTo(3);
  const std::vector<int64_t> turned = n == 3 ? std::vector<int64_t>{2, 0, 1} : All(n);
  std::vector<CommCase> cases;
  for (CommType type : kAllCommTypes) {
    for (DType dtype : kAllDTypes) {
      cases.push_back({.type = type,
                       .dtype = dtype,
                       .count = (1 << 20) / DTypeBytes(dtype) + 1,
                       .in_place = cases.size() % 2 == 0,
                       .fixed_order = backend().fixed_order(),
                       .ranks = turned,
                       .root_index = static_cast<int64_t>(cases.size()) % n,
                       .seed = cases.size()});
    }
    cases.push_back({.type = type, .dtype = DType::kInt64, .count = 33'333, .ranks = All(n), .seed = 99});
  }
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    for (size_t i = 0; i < cases.size() && !testing::Test::HasFatalFailure(); i += 4) {
      RunCases(std::span(cases).subspan(i, std::min<size_t>(4, cases.size() - i)), static_cast<int64_t>(i), comm,
               device, *stream);
    }
  });
}

// Whatever the order of additions is, all ranks get the same bits, and the same ones again.
TEST_P(CommunicatorSuite, EveryRankGetsTheSameBits) {
  const int64_t n = SizeUpTo(4);
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(n), 0);
    for (DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      const int64_t count = 200'003, bytes = count * DTypeBytes(dtype);
      const CommCase c = {.dtype = dtype, .count = count, .ranks = All(n), .seed = 5};
      const DeviceBytes src(device, *stream, InputOf(c, comm.rank()));
      const DeviceBytes sum(device, *stream, Bytes(static_cast<size_t>(bytes)));
      const DeviceBytes again(device, *stream, Bytes(static_cast<size_t>(bytes)));
      const DeviceBytes all(device, *stream, Bytes(static_cast<size_t>(n * bytes)));
      CommDesc desc = {.team = team, .dtype = dtype, .count = count, .src = src.buffer()};
      for (const DeviceBytes* dst : {&sum, &again}) {
        desc.dst = dst->buffer();
        ASSERT_TRUE(comm.Post(desc, *stream).ok());
      }
      ASSERT_TRUE(comm.Post({.type = CommType::kAllgather,
                             .team = team,
                             .dtype = DType::kBool,
                             .count = bytes,
                             .src = sum.buffer(),
                             .dst = all.buffer()},
                            *stream)
                      .ok());
      const Bytes own = sum.Read(), gathered = all.Read();
      EXPECT_EQ(own, again.Read());
      for (int64_t j = 0; j < n; ++j)
        EXPECT_TRUE(std::equal(own.begin(), own.end(), gathered.begin() + j * bytes)) << j;
    }
  });
}

// Rank 0 to 1 and, where there are so many, 2 to 0, each with only its own half, and 3 with none.
TEST_P(CommunicatorSuite, AbsentHalves) {
  for (CommType type : {CommType::kSendRecv, CommType::kCollectivePermute}) {
    for (int64_t count : {int64_t{5}, int64_t{300'000}}) {
      const int64_t n = SizeUpTo(4);
      Run(n, [&](Communicator& comm, device::Device& device) {
        const auto stream = *device.CreateStream();
        const TeamId team = *comm.Team(All(n), 0);
        const DeviceBytes src(device, *stream, Floats(count, static_cast<float>(comm.rank())));
        const DeviceBytes dst(device, *stream, Floats(count, -1));
        const int64_t to[] = {1, kNoRank, 0, kNoRank};
        const int64_t from[] = {n > 2 ? 2 : kNoRank, 0, kNoRank, kNoRank};
        const Status posted = comm.Post({.type = type,
                                         .team = team,
                                         .count = count,
                                         .src = src.buffer(),
                                         .dst = dst.buffer(),
                                         .to = to[comm.rank()],
                                         .from = from[comm.rank()]},
                                        *stream);
        ASSERT_TRUE(posted.ok()) << posted.ToString();
        const float expected[] = {n > 2 ? 2.0f : -1.0f, 0, -1, -1};
        EXPECT_EQ(dst.Read(), Floats(count, expected[comm.rank()])) << "rank " << comm.rank();
      });
    }
  }
}

// A permutation is one of its team's collectives: those before and after it keep their order on
// ranks that it leaves alone.
TEST_P(CommunicatorSuite, PermutesAmongCollectives) {
  const int64_t n = SizeUpTo(3);
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    for (int64_t i = 0; i < 12; ++i) {
      const auto seed = static_cast<uint64_t>(i);
      RunCase({.type = CommType::kAllgather, .count = 100 + i, .ranks = All(n), .seed = seed}, 3 * i, comm, device,
              *stream);
      const TeamId team = *comm.Team(All(n), 0);
      const int64_t sender = i % n, receiver = (i + 1) % n;
      const DeviceBytes data(device, *stream, Floats(7, static_cast<float>(comm.rank())));
      ASSERT_TRUE(comm.Post({.type = CommType::kCollectivePermute,
                             .team = team,
                             .count = 7,
                             .src = data.buffer(),
                             .dst = data.buffer(),
                             .to = comm.rank() == sender ? receiver : kNoRank,
                             .from = comm.rank() == receiver ? sender : kNoRank,
                             .seq = 3 * i + 1},
                            *stream)
                      .ok());
      const int64_t expected = comm.rank() == receiver ? sender : comm.rank();
      EXPECT_EQ(data.Read(), Floats(7, static_cast<float>(expected)));
      RunCase({.type = CommType::kGather, .count = 9, .ranks = All(n), .seed = seed}, 3 * i + 2, comm, device, *stream);
    }
  });
}

// Every rank first sends to all others and then receives, on one stream: only a group makes that
// possible.
TEST_P(CommunicatorSuite, AGroupStartsTogether) {
  static constexpr int64_t kCount = 50'000;
  const int64_t n = SizeUpTo(3);
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(n), 0);
    const DeviceBytes src(device, *stream, Floats(kCount, static_cast<float>(comm.rank())));
    std::deque<DeviceBytes> dst;
    for (int64_t peer = 0; peer < n; ++peer) dst.emplace_back(device, *stream, Floats(kCount, -1));
    const CommDesc half = {.type = CommType::kSendRecv, .team = team, .count = kCount};
    ASSERT_TRUE(comm.GroupBegin().ok());
    EXPECT_EQ(comm.GroupBegin().ToString(), "FAILED_PRECONDITION: group: groups do not nest");
    for (int64_t peer = 0; peer < n; ++peer) {
      CommDesc send = half;
      send.src = src.buffer(), send.to = peer, send.seq = peer;
      if (peer == comm.rank()) continue;
      ASSERT_TRUE(comm.Post(send, *stream).ok());
    }
    EXPECT_EQ(comm.Post({.type = CommType::kSendRecv, .team = team, .count = -1}, *stream).code(),
              Code::kInvalidArgument);
    for (int64_t peer = 0; peer < n; ++peer) {
      CommDesc recv = half;
      recv.dst = dst[static_cast<size_t>(peer)].buffer(), recv.from = peer, recv.seq = n + peer;
      if (peer == comm.rank()) continue;
      ASSERT_TRUE(comm.Post(recv, *stream).ok());
    }
    ASSERT_TRUE(comm.GroupEnd().ok());
    EXPECT_EQ(comm.GroupEnd().ToString(), "FAILED_PRECONDITION: group: it has not begun");
    ASSERT_TRUE(stream->Synchronize(kLong).ok());
    for (int64_t peer = 0; peer < n; ++peer) {
      const int64_t expected = peer == comm.rank() ? -1 : peer;
      EXPECT_EQ(dst[static_cast<size_t>(peer)].Read(), Floats(kCount, static_cast<float>(expected)));
    }
  });
}

// Short and long ones of one team, more of them than have room at once, all started together: each meets its own.
TEST_P(CommunicatorSuite, AGroupOfManySizes) {
  static constexpr int64_t kPosts = 40;
  static constexpr CommType kTypes[] = {CommType::kAllreduce, CommType::kAllToAll, CommType::kAllgather};
  static constexpr int64_t kCounts[] = {1, 20'000, 13, 700, 9'000};
  const int64_t n = SizeUpTo(3);
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(n), 0);
    std::deque<CaseBuffers> posted;
    for (int64_t i = 0; i < kPosts; ++i) {
      const CommCase c = {.type = kTypes[i % 3],
                          .dtype = DType::kInt32,
                          .count = kCounts[i % 5],
                          .ranks = All(n),
                          .seed = static_cast<uint64_t>(i)};
      posted.emplace_back(c, comm.rank(), device, *stream);
    }
    ASSERT_TRUE(comm.GroupBegin().ok());
    for (int64_t i = 0; i < kPosts; ++i) {
      const CommDesc desc = posted[static_cast<size_t>(i)].Desc(team, i);
      ASSERT_TRUE(comm.Post(desc, *stream).ok());
    }
    ASSERT_TRUE(comm.GroupEnd().ok());
    for (CaseBuffers& buffers : posted) buffers.Fetch();
    const Status done = stream->Synchronize(kLong);
    ASSERT_TRUE(done.ok()) << done.ToString();
    for (const CaseBuffers& buffers : posted) ASSERT_EQ(buffers.Check(), "");
  });
}

// Two lanes, posted in opposite orders on even and odd ranks: they would block each other if they
// shared an order.
TEST_P(CommunicatorSuite, LanesProgressIndependently) {
  const int64_t n = SizeUpTo(4);
  Run(n, [&](Communicator& comm, device::Device& device) {
    const std::vector<std::unique_ptr<device::Stream>> streams = [&] {
      std::vector<std::unique_ptr<device::Stream>> made;
      for (int i = 0; i < 2; ++i) made.push_back(*device.CreateStream());
      return made;
    }();
    const std::vector<TeamId> teams = {*comm.Team(All(n), 0), *comm.Team(All(n), 1)};
    EXPECT_NE(static_cast<int>(teams[0]), static_cast<int>(teams[1]));
    EXPECT_EQ(*comm.Team(All(n), 1), teams[1]);
    for (uint64_t round = 0; round < 20; ++round) {
      const CommCase c = {.dtype = DType::kInt64, .count = 3000, .ranks = All(n), .seed = round};
      const CommCase d = {
          .type = CommType::kAllToAll, .dtype = DType::kInt32, .count = 70, .ranks = All(n), .seed = round};
      CaseBuffers a(c, comm.rank(), device, *streams[0]);
      CaseBuffers b(d, comm.rank(), device, *streams[1]);
      const auto post = [&](size_t lane) {
        const CaseBuffers& buffers = lane == 0 ? a : b;
        ASSERT_TRUE(comm.Post(buffers.Desc(teams[lane], static_cast<int64_t>(2 * round + lane)), *streams[lane]).ok());
      };
      const size_t first = comm.rank() % 2 == 0 ? 0 : 1;
      post(first);
      post(1 - first);
      a.Fetch();
      b.Fetch();
      for (const auto& stream : streams) ASSERT_TRUE(stream->Synchronize(kLong).ok());
      EXPECT_EQ(a.Check(), "");
      EXPECT_EQ(b.Check(), "");
    }
  });
}

// A chain of posts, copies and events over two streams, none of which is waited for: each step
// uses the one before.
TEST_P(CommunicatorSuite, CompletesInStreamOrder) {
  constexpr int64_t kCount = 2000;
  constexpr int kRounds = 12;
  const int64_t n = SizeUpTo(3);
  Run(n, [&](Communicator& comm, device::Device& device) {
    const auto compute = *device.CreateStream();
    const auto wire = *device.CreateStream();
    const auto event = *device.CreateEvent();
    const TeamId team = *comm.Team(All(n), 0);
    const DeviceBytes here(device, *compute, Floats(kCount, static_cast<float>(comm.rank())));
    const DeviceBytes there(device, *compute, Floats(kCount, -1));
    for (int round = 0; round < kRounds; ++round) {
      compute->Copy(there.buffer(), here.buffer());
      compute->Record(*event);
      wire->Wait(*event);
      ASSERT_TRUE(
          comm.Post({.team = team, .count = kCount, .src = there.buffer(), .dst = there.buffer(), .seq = round}, *wire)
              .ok());
      wire->Record(*event);
      compute->Wait(*event);
      compute->Copy(here.buffer(), there.buffer());
    }
    ASSERT_TRUE(compute->Synchronize(kLong).ok());
    // The first sum is 0 + 1 + ..., every other one n times the sum before: exact in f32.
    const auto size = static_cast<double>(n);
    const double sum = size * (size - 1) / 2 * std::pow(size, kRounds - 1);
    EXPECT_EQ(here.Read(), Floats(kCount, static_cast<float>(sum)));
    const base::Nanos end = base::Clock::Steady().Now() + kLong;
    while (comm.Progress().left < kRounds - 1 && base::Clock::Steady().Now() < end) std::this_thread::yield();
    EXPECT_EQ(comm.Progress().entered, kRounds - 1);
    EXPECT_EQ(comm.Progress().left, kRounds - 1);
  });
}

TEST_P(CommunicatorSuite, ArgumentErrorsQueueNothing) {
  Run(2, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(2), 0);
    const DeviceBytes data(device, *stream, Floats(64, 0));
    const device::Buffer whole = data.buffer();
    const auto refused = [&](const CommDesc& desc) { return comm.Post(desc, *stream).ToString(); };
    EXPECT_EQ(refused({.type = CommType::kGather, .team = team, .root = 2, .seq = 3}),
              "INVALID_ARGUMENT: gather #3: root 2 is not in team [0, 1]");
    EXPECT_EQ(refused({.team = TeamId{7}, .seq = 4}), "INVALID_ARGUMENT: allreduce #4: there is no team 7");
    EXPECT_EQ(refused({.team = team, .count = 8, .src = whole, .dst = {whole.data, 20}, .seq = 5}),
              "INVALID_ARGUMENT: allreduce #5: dst has 20 bytes, 32 are needed (1 x 8 f32)");
    EXPECT_EQ(stream->Synchronize(kLong).ToString(), "OK");
    RunCase({.dtype = DType::kInt32, .count = 10, .ranks = All(2), .seed = 1}, 6, comm, device, *stream);
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
  for (const CommCase& c : {CommCase{.count = 10, .ranks = All(2)}, CommCase{.count = 1 << 20, .ranks = All(2)},
                            CommCase{.type = CommType::kAllgather, .count = 1 << 18, .ranks = All(2)},
                            CommCase{.type = CommType::kSendRecv, .count = 1 << 18, .ranks = All(2)}}) {
    Run(2, [&](Communicator& comm, device::Device& device) {
      const auto stream = *device.CreateStream();
      const TeamId team = *comm.Team(c.ranks, 0);
      const CaseBuffers buffers(c, comm.rank(), device, *stream);
      const CaseBuffers queued(c, comm.rank(), device, *stream);
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
      EXPECT_EQ(comm.Post(buffers.Desc(team, 3), *stream).ToString(), "UNAVAILABLE: rank 1 was lost");
      EXPECT_EQ(comm.Team(std::vector<int64_t>{comm.rank()}, 5).status().ToString(), "UNAVAILABLE: rank 1 was lost");
    });
  }
}

// What was not finished in time is named, and so is the rank that did not come to it, where the
// backend can know.
TEST_P(CommunicatorSuite, ADeadlineNamesWhatIsMissing) {
  for (CommType type : {CommType::kAllgather, CommType::kReduceScatter, CommType::kAllToAll}) {
    const int64_t n = SizeUpTo(3);
    Run(
        n,
        [&](Communicator& comm, device::Device& device) {
          const auto stream = *device.CreateStream();
          const TeamId team = *comm.Team(All(n), 0);
          const CommCase c = {.type = type, .dtype = DType::kInt32, .count = 100, .ranks = All(n)};
          RunCase(c, 16, comm, device, *stream);
          if (comm.rank() == n - 1) return;
          const CaseBuffers buffers(c, comm.rank(), device, *stream);
          ASSERT_TRUE(comm.Post(buffers.Desc(team, 17), *stream).ok());
          const Status done = stream->Synchronize(kLong);
          EXPECT_EQ(done.code(), Code::kDeadlineExceeded);
          const std::string message(done.message());
          EXPECT_THAT(message, testing::HasSubstr(base::Cat(CommTypeName(type), " #17")));
          if (!backend().names_missing_rank()) return;
          EXPECT_THAT(message, testing::HasSubstr(base::Cat("rank ", n - 1, " ")));
        },
        std::chrono::milliseconds(500));
  }
}

// A stream that has failed does not start its communication; the communicator says so instead of
// leaving it open: at the post, where the failure is known by then, at the latest at the next.
TEST_P(CommunicatorSuite, ASkippedCommunicationPoisons) {
  Run(1, [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(All(1), 0);
    const CaseBuffers buffers({.ranks = All(1)}, 0, device, *stream);
    stream->HostCallback([] { return Internal("kernel failed"); });
    EXPECT_THAT(comm.Post(buffers.Desc(team, 0), *stream).ToString(), testing::AnyOf("OK", "INTERNAL: kernel failed"));
    EXPECT_EQ(stream->Synchronize(kLong).ToString(), "INTERNAL: kernel failed");
    EXPECT_EQ(comm.Post(buffers.Desc(team, 1), *stream).ToString(), "INTERNAL: kernel failed");
  });
}

}  // namespace hir::comm
