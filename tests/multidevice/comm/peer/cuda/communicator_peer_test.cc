// Peer memory on the streams of csrc/device/cuda, with a driver and a libnccl made for tests and the kernels as CPU
// code: the communicator suites with all that can going by pushes, by copies, and by both; teams that cannot.
#include <cmath>

#include "csrc/base/prng.h"
#include "multidevice/comm/reduce.h"
#include "tests/conformance/communicator_graph_suite.h"
#include "tests/multidevice/comm/peer/cuda/fake_peers.h"

namespace hir::comm {
namespace {

using std::chrono::seconds;

// Everything that can goes one way.
constexpr PeerPaths kPushes = {.push_bytes_max = kNoBytes};
constexpr PeerPaths kCopies = {.push_bytes_max = 0, .copies_alone_bytes_min = 1};
constexpr PeerPaths kBoth = {.push_bytes_max = 2000, .copies_alone_bytes_min = 8000};

std::unique_ptr<CommBackend> Pushes() { return std::make_unique<FakePeers>(kPushes); }
std::unique_ptr<CommBackend> Copies() { return std::make_unique<FakePeers>(kCopies); }
std::unique_ptr<CommBackend> Both() { return std::make_unique<FakePeers>(kBoth); }
std::string Name(const testing::TestParamInfo<CommBackendFactory>& info) {
  return info.param == &Pushes ? "Pushes" : info.param == &Copies ? "Copies" : "Both";
}
INSTANTIATE_TEST_SUITE_P(Peers, CommunicatorSuite, testing::Values(&Pushes, &Copies, &Both), Name);
INSTANTIATE_TEST_SUITE_P(Peers, CommunicatorGraphSuite, testing::Values(&Pushes, &Copies, &Both), Name);

// Unlike NCCL's: equal to the bit to what the other backends give.
TEST(PeerMemoryOfRanks, SumsAreInTheOrderOfTheTeam) {
  constexpr int64_t kRanks = 4, kCount = 3000;
  const auto random = [](int64_t rank, DType dtype) {
    Bytes bytes(static_cast<size_t>(kRanks * kCount * DTypeBytes(dtype)));
    base::Prng prng(static_cast<uint64_t>(rank + 7));
    for (int64_t i = 0; i < kRanks * kCount; ++i) {
      const double value = (prng.Unit() - 0.5) * std::exp2(static_cast<double>(i % 9));
      if (dtype == DType::kFloat32) StoreAs(bytes, i, static_cast<float>(value));
      if (dtype == DType::kBFloat16) StoreAs(bytes, i, FloatToBFloat16(static_cast<float>(value)));
      if (dtype == DType::kFloat16) StoreAs(bytes, i, FloatToFloat16(static_cast<float>(value)));
    }
    return bytes;
  };
  for (const PeerPaths& paths : {kPushes, kCopies}) {
    FakePeers(paths, int64_t{4} << 20).Run(kRanks, seconds(60), [&](Communicator& comm, device::Device& device) {
      const auto stream = *device.CreateStream();
      const TeamId team = *comm.Team(std::vector<int64_t>{2, 0, 3, 1}, 0);
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
          std::vector<Bytes> all;
          std::vector<const std::byte*> srcs;
          for (const int64_t rank : {2, 0, 3, 1}) all.push_back(random(rank, dtype));
          for (const Bytes& bytes : all) srcs.push_back(bytes.data());
          Bytes expected(all[0].size());
          Reduce(op, dtype, srcs, expected.data(), kRanks * kCount);
          const DeviceBytes src(device, *stream, random(comm.rank(), dtype)),
              dst(device, *stream, Bytes(all[0].size()));
          CommDesc desc = {.team = team, .reduce = op, .dtype = dtype, .count = kRanks * kCount};
          desc.src = src.buffer();
          desc.dst = dst.buffer();
          ASSERT_TRUE(comm.Post(desc, *stream).ok());
          ASSERT_TRUE(stream->Synchronize(seconds(60)).ok());
          const Bytes got = dst.Read();
          const auto apart = std::ranges::mismatch(got, expected);
          EXPECT_TRUE(got == expected) << DTypeName(dtype) << " " << ReduceOpName(op) << ": byte "
                                       << apart.in1 - got.begin() << " of " << got.size();
        }
      }
    });
  }
}

// Shifts of random chunks into windows, each rank's into another place, again and again; in a graph, too.
TEST(PeerMemoryOfRanks, PutsIntoWindows) {
  static constexpr int64_t kRanks = 3, kBytes = 5000, kRounds = 20;
  FakePeers(kBoth).Run(kRanks, seconds(60), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const std::vector<int64_t> ranks = {2, 0, 1};
    const TeamId team = *comm.Team(ranks, 0);
    const auto first = *comm.MakeWindow(team, 64), window = *comm.MakeWindow(team, kRanks * kBytes);
    EXPECT_EQ(first->own().bytes, 64);
    const device::Buffer own = window->own();
    const auto src = *device.Allocate(kBytes);
    const auto random = [](int64_t rank, int64_t round) {
      Bytes bytes(kBytes);
      base::Prng prng(static_cast<uint64_t>(100 * round + rank));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.Next());
      return bytes;
    };
    // What rank r sends lies at place r in the window of the next one but k.
    const auto post = [&](int64_t k) {
      CommDesc desc = {.type = CommType::kCollectivePermute, .team = team, .dtype = DType::kBool, .count = kBytes};
      desc.to = (comm.rank() + k) % kRanks;
      desc.from = (comm.rank() + kRanks - k) % kRanks;
      desc.src = src->buffer();
      desc.dst = own.Slice(desc.from * kBytes, kBytes);
      desc.window = window.get();
      desc.put_at = comm.rank() * kBytes;
      const Status posted = comm.Post(desc, *stream);
      EXPECT_TRUE(posted.ok()) << posted.ToString();
    };
    const auto check = [&](int64_t k, int64_t round) {
      const int64_t from = (comm.rank() + kRanks - k) % kRanks;
      Bytes got(kBytes);
      ASSERT_TRUE(device::CopyToHost(device, got, own.Slice(from * kBytes, kBytes)).ok());
      EXPECT_TRUE(got == random(from, round)) << "round " << round << ", shift " << k;
    };
    std::unique_ptr<device::Graph> graph;
    for (int64_t round = 0; round < kRounds; ++round) {
      ASSERT_TRUE(device::CopyFromHost(device, src->buffer(), random(comm.rank(), round)).ok());
      stream->Fill(own, 0, 1);
      if (round == kRounds / 2) {
        ASSERT_TRUE(device.BeginCapture(*stream).ok());
        device.CaptureFixed(true);
        for (int64_t k = 0; k < kRanks; ++k) post(k);
        graph = *device.EndCapture(*stream);
      }
      if (graph == nullptr) {
        for (int64_t k = 0; k < kRanks; ++k) post(k);
      } else {
        ASSERT_TRUE(comm.LaunchGraph(*graph, *stream, {.count = kRanks, .last_seq = kRanks - 1}).ok());
      }
      ASSERT_TRUE(stream->Synchronize(seconds(60)).ok());
      for (int64_t k = 0; k < kRanks; ++k) check(k, round);
    }
  });
}

// Rank 1 waits by NCCL for what never comes, and then would send. Its deadline passes before that of rank 0, which has
// given it leave to send long ago.
TEST(PeerMemoryOfRanks, WhatGoesOnAfterAnAbortSendsNothing) {
  FakePeers backend(kCopies);
  backend.give_time(0, std::chrono::milliseconds(150));
  backend.Run(3, std::chrono::milliseconds(200), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId all = *comm.Team(std::vector<int64_t>{0, 1, 2}, 0);
    if (comm.rank() == 2) return;
    const TeamId team = *comm.Team(std::vector<int64_t>{0, 1}, 0);
    const DeviceBytes src(device, *stream, Floats(64, 1)), dst(device, *stream, Floats(128, 0));
    if (comm.rank() == 1) {
      CommDesc never = {.type = CommType::kSendRecv, .team = all, .count = 64, .dst = src.buffer(), .from = 2};
      ASSERT_TRUE(comm.Post(never, *stream).ok());
    }
    CommDesc desc = {.type = CommType::kAllgather, .team = team, .count = 64, .src = src.buffer(), .dst = dst.buffer()};
    ASSERT_TRUE(comm.Post(desc, *stream).ok());
    EXPECT_EQ(stream->Synchronize(seconds(60)).code(), Code::kDeadlineExceeded) << comm.rank();
  });
}

// Where one rank has no memory for a team, NCCL does all of its work, on all ranks.
TEST(PeerMemoryOfRanks, ATeamWithoutMemoryGoesByNccl) {
  FakePeers backend(kPushes);
  backend.set_bytes_max([](int64_t rank) { return rank == 1 ? int64_t{3} << 20 : int64_t{64} << 20; });
  backend.Run(2, seconds(60), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    for (const int64_t lane : {0, 1, 2, 3}) {  // There is room for some.
      const TeamId team = *comm.Team(std::vector<int64_t>{0, 1}, lane);
      const DeviceBytes data(device, *stream, Floats(64, 1));
      ASSERT_TRUE(comm.Post({.team = team, .count = 64, .src = data.buffer(), .dst = data.buffer()}, *stream).ok());
      ASSERT_TRUE(stream->Synchronize(seconds(60)).ok());
      EXPECT_TRUE(data.Read() == Floats(64, 2));
    }
  });
}

}  // namespace
}  // namespace hir::comm
