// Runs that communicate, on several ranks with GPUs, with a driver and a libnccl made for tests: they are replayed as
// graphs, compute what queued ones do, and end when a peer does not come.
#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include "csrc/ir/parse.h"
#include "host_ir/eval/evaluator.h"
#include "multidevice/rendezvous/memory.h"
#include "tests/multidevice/comm/nccl/fake_cuda_streams.h"

namespace hir::host {
namespace {

using device::Fake;
using std::chrono::seconds;

// out[i] = salt + 2 in[i]; slots: in, out, count, salt.
void Mix(const int64_t* slots, int64_t ctas) {
  for (int64_t i = 0; i < ctas; ++i)
    reinterpret_cast<int64_t*>(slots[1])[i] = slots[3] + 2 * reinterpret_cast<int64_t*>(slots[0])[i];
}

// On each rank: y = the sum over the ranks of 4 x + 3, and z = what the next rank has of x, through a group.
constexpr std::string_view kProgram = R"(
mesh @m = [0, 1]
mesh @turned = [1, 0]
host @p(%x: i64[6], %y: i64[6], %z: i64[6]) {
  %e: event[2] = event()
  %c: i64[6] = alloc() {space=pool}
  %d: i64[6] = alloc() {space=pool}
  launch(%x, %c) {kernel="mix", inputs=1, outputs=1, workspaces=0, extents=[6, 1], grid=6, stream=0}
  launch(%c, %d) {kernel="mix", inputs=1, outputs=1, workspaces=0, extents=[6, 1], grid=6, stream=0}
  record(%e) {index=0, stream=0}
  wait(%e) {index=0, stream=1}
  communication(%d, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=1, seq=3}
  communication(%x, %z) {type=send_recv, reduce=none, mesh=@m, dim=none, to=@turned, stream=0, seq=4}
  record(%e) {index=1, stream=1}
  wait(%e) {index=1, stream=0}
  dealloc(%c)
  dealloc(%d)
  return %y, %z
})";

class ReplayRanks : public testing::Test {
 protected:
  static constexpr int64_t kRanks = 2;
  // One of the ranks.
  struct Rank {
    device::Device& device;
    comm::Communicator& communicator;
    Evaluator& evaluator;
    Binding binding = {};
    std::vector<std::unique_ptr<device::Allocation>> tensors = {};

    // x = first, first + 1, ...
    void Bind(int64_t first) {
      std::vector<Argument> arguments;
      for (int i = 0; i < 3; ++i) {
        tensors.push_back(*device.Allocate(48));
        arguments.push_back({.buffer = tensors.back()->buffer()});
      }
      int64_t x[6];
      for (int64_t& value : x) value = first++;
      EXPECT_TRUE(device::CopyFromHost(device, arguments[0].buffer, std::as_bytes(std::span(x))).ok());
      const Status bound = evaluator.Bind(arguments, {}, &binding);
      EXPECT_TRUE(bound.ok()) << bound.ToString();
    }
    // Of the latest binding.
    std::vector<int64_t> Read(size_t param) {
      std::vector<int64_t> values(6);
      const device::Buffer from = tensors[tensors.size() - 3 + param]->buffer();
      EXPECT_TRUE(device::CopyToHost(device, std::as_writable_bytes(std::span(values)), from).ok());
      return values;
    }
  };

  void SetUp() override {
    Fake().Reset();
    Fake().num_devices = kRanks;
  }
  void TearDown() override { EXPECT_EQ(Fake().live_objects, 0); }

  void RunRanks(base::Nanos op_timeout, const std::function<void(Rank&)>& body) {
    comm::MemoryRendezvous rendezvous;
    std::barrier all(kRanks);
    std::vector<std::jthread> threads;
    for (int64_t number = 0; number < kRanks; ++number) {
      threads.emplace_back([&, number] {
        const auto device = *device::OpenCudaDevice({.ordinal = number, .driver = HIR_FAKE_CUDA});
        const device::CudaKernelInfo info = {.name = "mix", .threads = 32, .num_slots = 4};
        const auto kernels =
            *device::LoadCubin(*device, device::FakeCubin({device::MakeFakeKernel("mix", Mix, 4)}), {&info, 1});
        const auto streams = std::array{*device->CreateStream(), *device->CreateStream()};
        device::Stream* const pointers[] = {streams[0].get(), streams[1].get()};
        Pool pool(*device);
        comm::NcclOptions options = comm::FakeGpuOptions(number, kRanks, *device);
        options.op_timeout = op_timeout;
        const auto communicator = *comm::CreateNccl(options, rendezvous);
        const auto program = *HostProgram::Load(kProgram);
        {
          const auto evaluator = *Evaluator::Prepare(*program, {.rank = number,
                                                                .device = device.get(),
                                                                .streams = pointers,
                                                                .kernels = kernels.get(),
                                                                .communicator = communicator.get(),
                                                                .pool = &pool});
          EXPECT_TRUE(evaluator->replayable().ok()) << evaluator->replayable().ToString();
          Rank rank = {.device = *device, .communicator = *communicator, .evaluator = *evaluator};
          body(rank);
          all.arrive_and_wait();
        }
      });
    }
  }
};

TEST_F(ReplayRanks, CommunicationsAreInTheGraph) {
  RunRanks(seconds(20), [](Rank& rank) {
    const int64_t own = rank.communicator.rank();
    for (int64_t run = 0; run < 6; ++run) {
      if (run % 3 == 0) rank.Bind(100 * run + 10 * own);  // Other operands: another graph.
      const Status status = rank.evaluator.Run(rank.binding, {.seq_base = 100 * run});
      ASSERT_TRUE(status.ok()) << status.ToString();
      const Status end = rank.evaluator.Synchronize(seconds(20));
      ASSERT_TRUE(end.ok()) << end.ToString();
      const int64_t base = 100 * (run / 3 * 3);
      for (int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(rank.Read(1)[static_cast<size_t>(i)], 4 * (2 * base + 2 * i + 10) + 6) << run;
        EXPECT_EQ(rank.Read(2)[static_cast<size_t>(i)], base + 10 * (1 - own) + i) << run;
      }
    }
    EXPECT_THAT(rank.evaluator.DescribeGraphs(), testing::Each(testing::StartsWith("4 nodes (4 kernel), ")));
    EXPECT_EQ(rank.evaluator.DescribeGraphs().size(), 2U);
  });
  EXPECT_EQ(Fake().Calls("StreamBeginCapture"), 2 * kRanks);
  EXPECT_EQ(Fake().Calls("GraphLaunch"), 5 * kRanks);  // All but the first run.
}

// The second launch of the graph has no peer.
TEST_F(ReplayRanks, APeerThatDoesNotComeIsADeadlineOfTheGraph) {
  RunRanks(std::chrono::milliseconds(300), [](Rank& rank) {
    rank.Bind(1);
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(rank.evaluator.Run(rank.binding, {.seq_base = 100 * run}).ok());
      ASSERT_TRUE(rank.evaluator.Synchronize(seconds(20)).ok());
    }
    if (rank.communicator.rank() == 1) return;
    ASSERT_TRUE(rank.evaluator.Run(rank.binding, {.seq_base = 200}).ok());
    const Status end = rank.evaluator.Synchronize(seconds(20));
    EXPECT_EQ(end.code(), Code::kDeadlineExceeded);
    EXPECT_THAT(std::string(end.message()),
                testing::HasSubstr("a graph with communications #203 to #204: rank 0 waiting 0.3 s"));
    // What is poisoned is launched no more.
    EXPECT_THAT(rank.evaluator.Run(rank.binding, {.seq_base = 300}).ToString(),
                testing::StartsWith("DEADLINE_EXCEEDED: program @p as a graph: "));
  });
}

TEST_F(ReplayRanks, AnAbortEndsAGraph) {
  RunRanks(seconds(20), [](Rank& rank) {
    rank.Bind(1);
    for (int run = 0; run < 2; ++run) {
      ASSERT_TRUE(rank.evaluator.Run(rank.binding, {}).ok());
      ASSERT_TRUE(rank.evaluator.Synchronize(seconds(20)).ok());
    }
    if (rank.communicator.rank() == 1) return;
    ASSERT_TRUE(rank.evaluator.Run(rank.binding, {}).ok());
    EXPECT_EQ(rank.evaluator.Synchronize(std::chrono::milliseconds(20)).code(), Code::kDeadlineExceeded);
    rank.evaluator.Abort(Unavailable("rank 1 was lost"));
    EXPECT_THAT(rank.evaluator.Synchronize(seconds(1)).ToString(), testing::HasSubstr("rank 1 was lost"));
  });
}

}  // namespace
}  // namespace hir::host
