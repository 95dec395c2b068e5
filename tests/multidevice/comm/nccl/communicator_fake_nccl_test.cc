// The NCCL communicator without a GPU: it loads a libnccl made for this test, whose ranks are
// threads (fake_nccl.cc). The communicator suite runs on it, and what goes to NCCL is looked at.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "multidevice/comm/nccl/nccl.h"
#include "multidevice/rendezvous/memory.h"
#include "tests/conformance/communicator_suite.h"
#include "tests/multidevice/comm/nccl/fake_gpu.h"

namespace hir::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// The library's own functions beside NCCL's.
struct Fake {
  static void* Handle() {
    static void* const handle = dlopen(HIR_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    HIR_CHECK(handle != nullptr);
    return handle;
  }
  static void SetScript(const FakeScript& script) {
    reinterpret_cast<decltype(&FakeNcclSetScript)>(dlsym(Handle(), "FakeNcclSetScript"))(&script);
  }
  // The lines of one rank since the last call.
  static std::vector<std::string> LogOf(int64_t rank) {
    std::string log;
    reinterpret_cast<decltype(&FakeNcclTakeLog)>(dlsym(Handle(), "FakeNcclTakeLog"))(&log);
    std::vector<std::string> lines;
    const std::string prefix = base::Cat("r", rank, " ");
    for (size_t at = 0; at < log.size(); at = log.find('\n', at) + 1) {
      const std::string line = log.substr(at, log.find('\n', at) - at);
      if (line.starts_with(prefix)) lines.push_back(line.substr(prefix.size()));
    }
    return lines;
  }
  static int Alive() { return reinterpret_cast<decltype(&FakeNcclAlive)>(dlsym(Handle(), "FakeNcclAlive"))(); }
};

using Body = std::function<void(Communicator&, device::Device&)>;

NcclOptions OptionsOf(int64_t rank, int64_t size, FakeGpu& gpu) {
  return {.rank = rank,
          .size = size,
          .generation = 3,
          .setup_timeout = seconds(20),
          .library = HIR_FAKE_NCCL,
          .device = &gpu,
          .native_stream = &FakeGpu::NativeStream,
          .begin_work = &FakeGpu::BeginWork};
}

void RunRanks(int64_t size, base::Nanos op_timeout, const Body& body) {
  MemoryRendezvous rendezvous;
  std::barrier all(size);
  std::vector<std::jthread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      FakeGpu gpu(rank);
      NcclOptions options = OptionsOf(rank, size, gpu);
      options.op_timeout = op_timeout;
      auto comm = CreateNccl(options, rendezvous);
      EXPECT_TRUE(comm.ok()) << comm.status().ToString();
      if (comm.ok()) body(**comm, gpu);
      all.arrive_and_wait();  // A rank that is done early stays as long as others may need it.
    });
  }
}

class FakeNcclBackend final : public CommBackend {
 public:
  FakeNcclBackend() { Fake::SetScript({}); }
  bool fixed_order() const override { return false; }
  bool names_missing_rank() const override { return false; }
  void Run(int64_t size, base::Nanos op_timeout, const Body& body) override {
    RunRanks(size, op_timeout, body);
    EXPECT_EQ(Fake::Alive(), 0);
  }
};

std::unique_ptr<CommBackend> FakeNccl() { return std::make_unique<FakeNcclBackend>(); }
INSTANTIATE_TEST_SUITE_P(FakeNccl, CommunicatorSuite, testing::Values(&FakeNccl));

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    Fake::SetScript({});
    Fake::LogOf(0);
  }
  void TearDown() override { EXPECT_EQ(Fake::Alive(), 0); }

  // One rank, to whose communicator no other comes.
  static Status CreateAlone(const NcclOptions& options) {
    MemoryRendezvous rendezvous;
    return CreateNccl(options, rendezvous).status();
  }
};

// What the member at place `place` of the team [1, 0] says to NCCL for one communication.
std::vector<std::string> CallsAt(int64_t place, CommDesc desc, bool in_place = false) {
  std::vector<std::string> calls;
  std::barrier both(2);
  RunRanks(2, seconds(20), [&](Communicator& comm, device::Device& device) {
    const bool looks = comm.rank() == 1 - place;
    const auto stream = *device.CreateStream();
    CommDesc mine = desc;
    mine.team = *comm.Team(std::vector<int64_t>{1, 0}, 0);
    const DeviceBytes memory(device, *stream, Bytes(1024));
    mine.src = memory.buffer().Slice(0, 512);
    mine.dst = in_place ? mine.src : memory.buffer().Slice(512, 512);
    if (HasHalves(desc.type)) mine.to = mine.from = 1 - comm.rank();
    both.arrive_and_wait();
    if (looks) Fake::LogOf(place);
    both.arrive_and_wait();
    ASSERT_TRUE(comm.Post(mine, *stream).ok());
    ASSERT_TRUE(stream->Synchronize(seconds(20)).ok());
    both.arrive_and_wait();
    if (looks) calls = Fake::LogOf(place);
    both.arrive_and_wait();
  });
  return calls;
}

// The root, rank 1, has place 0. Numbers are those of ncclDataType_t and ncclRedOp_t.
TEST_F(NcclTest, CallsOfEachType) {
  const auto calls = [](int64_t place, CommType type) {
    return CallsAt(place, {.type = type, .root = 1, .dtype = DType::kFloat16, .count = 5});
  };
  const std::string f16 = " 5 type=6";
  EXPECT_THAT(calls(1, CommType::kAllgather), ElementsAre("group", "allgather" + f16));
  EXPECT_THAT(calls(1, CommType::kAllreduce), ElementsAre("group", "allreduce" + f16 + " op=0"));
  EXPECT_THAT(calls(1, CommType::kReduceScatter), ElementsAre("group", "reducescatter" + f16 + " op=0"));
  EXPECT_THAT(calls(1, CommType::kReduce), ElementsAre("group", "reduce" + f16 + " op=0 peer=0"));
  EXPECT_THAT(calls(0, CommType::kBroadcast), ElementsAre("group", "broadcast" + f16 + " peer=0"));
  // Elsewhere the root's src is not looked at.
  EXPECT_THAT(calls(1, CommType::kBroadcast), ElementsAre("group", "broadcast" + f16 + " peer=0 in place"));
  // What a rank sends to itself is in the group, too.
  const std::string to_0 = "send" + f16 + " peer=0", from_0 = "recv" + f16 + " peer=0";
  const std::string to_1 = "send" + f16 + " peer=1", from_1 = "recv" + f16 + " peer=1";
  EXPECT_THAT(calls(0, CommType::kGather), ElementsAre("group", to_0, from_0, from_1));
  EXPECT_THAT(calls(1, CommType::kGather), ElementsAre("group", to_0));
  EXPECT_THAT(calls(0, CommType::kScatter), ElementsAre("group", to_0, from_0, to_1));
  EXPECT_THAT(calls(1, CommType::kScatter), ElementsAre("group", from_0));
  EXPECT_THAT(calls(1, CommType::kAllToAll), ElementsAre("group", to_1, from_1, to_0, from_0));
  for (CommType type : {CommType::kSendRecv, CommType::kCollectivePermute})
    EXPECT_THAT(calls(1, type), ElementsAre("group", to_0, from_0));
}

TEST_F(NcclTest, TypesAndReductions) {
  const auto call = [](DType dtype, ReduceOp reduce) {
    return CallsAt(0, {.reduce = reduce, .dtype = dtype, .count = 2})[1];
  };
  EXPECT_EQ(call(DType::kInt32, ReduceOp::kProd), "allreduce 2 type=2 op=1");
  EXPECT_EQ(call(DType::kInt64, ReduceOp::kMax), "allreduce 2 type=4 op=2");
  EXPECT_EQ(call(DType::kBFloat16, ReduceOp::kMin), "allreduce 2 type=9 op=3");
  EXPECT_EQ(call(DType::kFloat32, ReduceOp::kSum), "allreduce 2 type=7 op=0");
  EXPECT_EQ(call(DType::kFloat64, ReduceOp::kSum), "allreduce 2 type=8 op=0");
  EXPECT_EQ(call(DType::kFloat16, ReduceOp::kMean), "allreduce 2 type=6 op=4");
  // Truth values: "or" is a maximum, "and" a minimum, of bytes.
  EXPECT_EQ(call(DType::kBool, ReduceOp::kSum), "allreduce 2 type=1 op=2");
  EXPECT_EQ(call(DType::kBool, ReduceOp::kMax), "allreduce 2 type=1 op=2");
  EXPECT_EQ(call(DType::kBool, ReduceOp::kProd), "allreduce 2 type=1 op=3");
  EXPECT_EQ(call(DType::kBool, ReduceOp::kMin), "allreduce 2 type=1 op=3");
}

TEST_F(NcclTest, InPlaceAndNothing) {
  EXPECT_THAT(CallsAt(0, {.count = 2}, true), ElementsAre("group", HasSubstr("in place")));
  EXPECT_THAT(CallsAt(0, {.type = CommType::kAllToAll}), ElementsAre());  // count 0
  // The root's own chunk lies where it belongs.
  EXPECT_THAT(CallsAt(0, {.type = CommType::kGather, .root = 1, .count = 2}, true),
              ElementsAre("group", HasSubstr("recv 2 type=7 peer=1")));
}

// Three posts on two streams are one group; a fourth, of another team, is of it too.
TEST_F(NcclTest, AGroupIsOneGroup) {
  std::barrier all(3);
  RunRanks(3, seconds(20), [&](Communicator& comm, device::Device& device) {
    const auto one = *device.CreateStream(), two = *device.CreateStream();
    const TeamId team = *comm.Team(std::vector<int64_t>{0, 1, 2}, 0);
    const DeviceBytes memory(device, *one, Bytes(1024));
    ASSERT_TRUE(one->Synchronize(seconds(20)).ok());
    const auto post = [&](int64_t seq, device::Stream& stream) {
      const device::Buffer part = memory.buffer().Slice(seq * 64, 64);
      ASSERT_TRUE(comm.Post({.team = team, .count = 16, .src = part, .dst = part, .seq = seq}, stream).ok());
    };
    all.arrive_and_wait();
    if (comm.rank() == 0) Fake::LogOf(0);
    all.arrive_and_wait();
    ASSERT_TRUE(comm.GroupBegin().ok());
    post(0, *one);
    post(1, *two);
    post(2, *one);
    ASSERT_TRUE(comm.GroupEnd().ok());
    ASSERT_TRUE(one->Synchronize(seconds(20)).ok());
    ASSERT_TRUE(two->Synchronize(seconds(20)).ok());
    all.arrive_and_wait();
    if (comm.rank() == 0) {
      const std::string call = "allreduce 16 type=7 op=0 in place";
      EXPECT_THAT(Fake::LogOf(0), ElementsAre("group", call, call, call));
    }
    all.arrive_and_wait();
  });
}

// Those of the same ranks meet once, and their teams are split from that, one for each order and
// lane. One alone needs nothing. Multicast is off unless asked for.
TEST_F(NcclTest, TeamsAreMadeOnce) {
  RunRanks(3, seconds(20), [&](Communicator& comm, device::Device&) {
    const std::vector<int64_t> all = {0, 1, 2}, turned = {1, 2, 0}, alone = {comm.rank()};
    const TeamId first = *comm.Team(all, 0);
    EXPECT_EQ(*comm.Team(all, 0), first);
    EXPECT_NE(*comm.Team(all, 1), first);
    EXPECT_NE(*comm.Team(turned, 0), first);
    if (comm.rank() != 1) {
      EXPECT_TRUE(comm.Team(std::vector<int64_t>{0, 2}, 0).ok());
    }
    EXPECT_TRUE(comm.Team(alone, 0).ok());
  });
  // Of the world's rank 0, and of the first places of teams.
  std::vector<std::string> made;
  for (const std::string& line : Fake::LogOf(0)) {
    if (line.starts_with("init") || line.starts_with("split")) made.push_back(line);
  }
  EXPECT_THAT(made, ElementsAre("init size=3 nvls=0", "split color=0 key=0", "split color=0 key=0",
                                "split color=0 key=2", "init size=2 nvls=0", "split color=0 key=0"));
}

TEST_F(NcclTest, WhatTheEnvironmentSaysOfMulticastStandsWhenAskedFor) {
  setenv("NCCL_NVLS_ENABLE", "2", 1);
  FakeGpu gpu(0);
  NcclOptions options = OptionsOf(0, 1, gpu);
  options.nvlink_multicast = true;
  EXPECT_EQ(CreateAlone(options).ToString(), "OK");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "2");
  options.nvlink_multicast = false;
  EXPECT_EQ(CreateAlone(options).ToString(), "OK");
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
}

TEST_F(NcclTest, TheLibraryIsFoundOrNamed) {
  FakeGpu gpu(0);
  NcclOptions options = OptionsOf(0, 1, gpu);
  options.library = "/nowhere/libnccl.so.2";
  const Status missing = CreateAlone(options);
  EXPECT_EQ(missing.code(), Code::kUnimplemented);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/libnccl.so.2"));
  options.library = "";
  setenv("HOSTIR_NCCL", HIR_FAKE_NCCL, 1);
  EXPECT_EQ(CreateAlone(options).ToString(), "OK");
  setenv("HOSTIR_NCCL", "/nowhere/else.so", 1);
  EXPECT_THAT(CreateAlone(options).ToString(),
              AllOf(StartsWith("UNIMPLEMENTED: nccl:"), HasSubstr("/nowhere/else.so")));
  unsetenv("HOSTIR_NCCL");
}

TEST_F(NcclTest, AnOldLibraryIsRefused) {
  FakeGpu gpu(0);
  const NcclOptions options = OptionsOf(0, 1, gpu);
  const std::pair<int, std::string> refused[] = {{21705, "2.17.5"}, {2804, "2.8.4"}, {30000, "3.0.0"}};
  for (const auto& [version, text] : refused) {
    Fake::SetScript({.version = version});
    EXPECT_EQ(CreateAlone(options).ToString(), base::Cat("FAILED_PRECONDITION: nccl: ", HIR_FAKE_NCCL, " is version ",
                                                         text, ", not 2.18.1 or a later 2.x"));
  }
}

TEST_F(NcclTest, ARankThatDoesNotComeIsADeadline) {
  FakeGpu gpu(1);
  NcclOptions options = OptionsOf(1, 2, gpu);
  options.setup_timeout = milliseconds(30);
  EXPECT_THAT(CreateAlone(options).ToString(),
              StartsWith("DEADLINE_EXCEEDED: nccl: rank 0 did not come: rendezvous: g3/nccl/0,1 was not "
                         "published in 0.0"));
  options.rank = 0;  // Brings the id, and waits.
  EXPECT_EQ(CreateAlone(options).ToString(),
            "DEADLINE_EXCEEDED: nccl: ncclCommInitRankConfig: a rank did not come in time");
}

TEST_F(NcclTest, BadOptionsAreNamed) {
  FakeGpu gpu(0);
  EXPECT_EQ(CreateAlone(OptionsOf(2, 2, gpu)).ToString(), "INVALID_ARGUMENT: nccl: rank 2 is not in [0, 2)");
  EXPECT_EQ(CreateAlone({.library = HIR_FAKE_NCCL}).ToString(),
            "INVALID_ARGUMENT: nccl: no device, or not all of what its streams can do");
}

// A team that a member does not come to poisons: others may believe that it exists.
TEST_F(NcclTest, ATeamThatIsNotMadePoisons) {
  MemoryRendezvous rendezvous;
  std::barrier both(2);
  std::vector<std::jthread> threads;
  for (int64_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      FakeGpu gpu(rank);
      NcclOptions options = OptionsOf(rank, 2, gpu);
      options.setup_timeout = milliseconds(300);
      auto comm = CreateNccl(options, rendezvous);
      EXPECT_TRUE(comm.ok()) << comm.status().ToString();
      if (comm.ok() && rank == 0) {
        const std::vector<int64_t> team = {0, 1};
        const std::string refused = "DEADLINE_EXCEEDED: team [0, 1]: nccl: ncclCommSplit: a rank did not come in time";
        EXPECT_EQ((*comm)->Team(team, 0).status().ToString(), refused);
        EXPECT_EQ((*comm)->Team(team, 0).status().ToString(), refused);
      }
      both.arrive_and_wait();
    });
  }
}

// NCCL finds an error by itself while a communication is pending: that is the cause.
TEST_F(NcclTest, AnAsynchronousErrorEndsWhatIsPending) {
  Fake::SetScript({.broken_rank = 0, .broken_after = 1});
  RunRanks(2, seconds(20), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(std::vector<int64_t>{0, 1}, 0);
    if (comm.rank() == 1) return;  // Never comes.
    const CaseBuffers buffers({.count = 10, .ranks = {0, 1}}, 0, device, *stream);
    EXPECT_TRUE(comm.Post(buffers.Desc(team, 7), *stream).ok());
    EXPECT_EQ(stream->Synchronize(seconds(20)).ToString(),
              "UNAVAILABLE: nccl: asynchronously: remote process exited or there was a network "
              "error");
  });
}

TEST_F(NcclTest, ARefusedGroupIsOurBug) {
  RunRanks(1, seconds(20), [](Communicator&, device::Device&) {});
  std::barrier both(2);
  RunRanks(2, seconds(20), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(std::vector<int64_t>{0, 1}, 0);
    const CaseBuffers buffers({.count = 10, .ranks = {0, 1}}, comm.rank(), device, *stream);
    both.arrive_and_wait();
    if (comm.rank() == 0) Fake::SetScript({.refuses_group = true});
    both.arrive_and_wait();
    EXPECT_EQ(comm.Post(buffers.Desc(team, 1), *stream).ToString(), "INTERNAL: nccl: ncclGroupEnd: some error");
    EXPECT_EQ(stream->Synchronize(seconds(20)).code(), Code::kInternal);
    both.arrive_and_wait();
  });
}

// Peers of a rank whose GPU is stuck get their deadline, it too, and nothing is left behind.
TEST_F(NcclTest, AStuckRankIsADeadlineOnAll) {
  Fake::SetScript({.deaf_rank = 1, .deaf_after = 2});
  RunRanks(3, milliseconds(200), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(std::vector<int64_t>{0, 1, 2}, 0);
    RunCase({.dtype = DType::kInt32, .count = 10, .ranks = {0, 1, 2}}, 1, comm, device, *stream);
    const CaseBuffers buffers({.count = 10, .ranks = {0, 1, 2}}, comm.rank(), device, *stream);
    ASSERT_TRUE(comm.Post(buffers.Desc(team, 2), *stream).ok());
    EXPECT_EQ(stream->Synchronize(seconds(20)).ToString(),
              base::Cat("DEADLINE_EXCEEDED: allreduce #2 in [0, 1, 2]: rank ", comm.rank(),
                        " waiting 0.2 s for its peers; NCCL does not tell for whom"));
  });
}

// In place exchanges go through scratch memory, which is used again, and grows while what uses the
// smaller one is still pending.
TEST_F(NcclTest, ScratchGrowsBehindWhatUsesIt) {
  std::barrier both(2);
  RunRanks(2, seconds(20), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const std::vector<int64_t> ranks = {0, 1};
    const TeamId team = *comm.Team(ranks, 0);
    std::deque<CaseBuffers> buffers;
    for (int64_t i = 0; i < 8; ++i) {
      buffers.emplace_back(CommCase{.type = CommType::kAllToAll,
                                    .dtype = DType::kInt32,
                                    .count = 100 << i,
                                    .in_place = true,
                                    .ranks = ranks,
                                    .seed = static_cast<uint64_t>(i)},
                           comm.rank(), device, *stream);
    }
    ASSERT_TRUE(stream->Synchronize(seconds(20)).ok());
    const int64_t before = device.allocated_bytes();
    if (comm.rank() == 1) both.arrive_and_wait();  // Rank 0 has posted all of them.
    for (int64_t i = 0; i < 8; ++i) ASSERT_TRUE(comm.Post(buffers[static_cast<size_t>(i)].Desc(team, i), *stream).ok());
    if (comm.rank() == 0) both.arrive_and_wait();
    for (CaseBuffers& one : buffers) one.Fetch();
    ASSERT_TRUE(stream->Synchronize(seconds(20)).ok());
    for (const CaseBuffers& one : buffers) EXPECT_EQ(one.Check(), "");
    // What was replaced goes when the watch has seen that it is done.
    const base::Nanos end = base::Clock::Steady().Now() + seconds(20);
    while (device.allocated_bytes() - before > 2 * 2 * 100 * 4 << 7 && base::Clock::Steady().Now() < end)
      std::this_thread::yield();
    EXPECT_LE(device.allocated_bytes() - before, 2 * 2 * 100 * 4 << 7);
  });
}

}  // namespace
}  // namespace hir::comm
