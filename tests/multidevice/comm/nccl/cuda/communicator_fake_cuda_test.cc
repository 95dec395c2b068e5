// The NCCL communicator on the streams of csrc/device/cuda, with a driver and a libnccl made for tests: the
// communicator suites, graphs included, and what a communication asks of the driver.
#include <barrier>
#include <map>
#include <thread>

#include "multidevice/rendezvous/memory.h"
#include "tests/conformance/communicator_graph_suite.h"
#include "tests/multidevice/comm/nccl/fake_cuda_streams.h"

namespace hir::comm {
namespace {

using device::Fake;
using std::chrono::seconds;

class FakeCudaBackend final : public CommBackend {
 public:
  FakeCudaBackend() {
    Fake().Reset();
    Fake().num_devices = 4;
  }
  bool fixed_order() const override { return false; }
  bool names_missing_rank() const override { return false; }
  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    MemoryRendezvous rendezvous;
    std::barrier all(size);
    {
      std::vector<std::jthread> threads;
      for (int64_t rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          const auto device = *device::OpenCudaDevice({.ordinal = rank, .driver = HIR_FAKE_CUDA});
          NcclOptions options = FakeGpuOptions(rank, size, *device);
          options.op_timeout = op_timeout;
          auto comm = CreateNccl(options, rendezvous);
          EXPECT_TRUE(comm.ok()) << comm.status().ToString();
          if (comm.ok()) body(**comm, *device);
          all.arrive_and_wait();  // A rank that is done early stays as long as others may need it.
        });
      }
    }
    EXPECT_EQ(Fake().live_objects, 0);
  }
};

std::unique_ptr<CommBackend> FakeCudaNccl() { return std::make_unique<FakeCudaBackend>(); }
INSTANTIATE_TEST_SUITE_P(FakeCuda, CommunicatorSuite, testing::Values(&FakeCudaNccl));
INSTANTIATE_TEST_SUITE_P(FakeCuda, CommunicatorGraphSuite, testing::Values(&FakeCudaNccl));

// Calls of the driver that queue or ask, but for those of the thread that watches.
std::map<std::string, int64_t> CallsOf(const std::function<void()>& body) {
  const auto calls = [] {
    std::lock_guard lock(Fake().mutex);
    return Fake().calls;
  };
  const auto before = calls();
  body();
  std::map<std::string, int64_t> made;
  for (const auto& [name, count] : calls()) {
    const auto known = before.find(name);
    const int64_t more = count - (known == before.end() ? 0 : known->second);
    if (more > 0 && name != "EventQuery") made[name] = more;
  }
  return made;
}

// One event a communication that follows another, two where other work is between; nothing for the host to run, no
// other stream, no question to the device.
TEST(NcclOnCuda, DriverCallsOfACommunication) {
  constexpr int64_t kPosts = 10;
  using Calls = std::map<std::string, int64_t>;
  Calls first, following, apart, launched;
  std::barrier both(2);
  FakeCudaBackend().Run(2, seconds(20), [&](Communicator& comm, device::Device& device) {
    const auto stream = *device.CreateStream();
    const TeamId team = *comm.Team(std::vector<int64_t>{0, 1}, 0);
    const DeviceBytes data(device, *stream, Floats(64, 1));
    const auto post = [&] {
      ASSERT_TRUE(comm.Post({.team = team, .count = 8, .src = data.buffer(), .dst = data.buffer()}, *stream).ok());
    };
    const auto count = [&](Calls& calls, const std::function<void()>& body) {
      both.arrive_and_wait();
      if (comm.rank() == 0) {
        calls = CallsOf(body);
        // They are used again, as soon as another thread has seen them fire.
        calls.erase("EventCreate");
        both.arrive_and_wait();
      } else {
        both.arrive_and_wait();
        body();
      }
      ASSERT_TRUE(stream->Synchronize(seconds(20)).ok());
    };
    for (int64_t i = 0; i < 2 * kPosts; ++i) post();  // There are events for all.
    ASSERT_TRUE(stream->Synchronize(seconds(20)).ok());
    const base::Nanos end = base::Clock::Steady().Now() + seconds(20);
    while (comm.Progress().left < 0 && base::Clock::Steady().Now() < end) std::this_thread::yield();
    const auto work = [&] { stream->Fill(data.buffer().Slice(128, 64), 0, 1); };
    work();
    count(first, post);
    count(following, [&] {
      for (int64_t i = 0; i < kPosts; ++i) post();
    });
    count(apart, [&] {
      for (int64_t i = 0; i < kPosts; ++i) {
        work();
        post();
      }
    });
    ASSERT_TRUE(device.BeginCapture(*stream).ok());
    for (int64_t i = 0; i < kPosts; ++i) post();
    const auto graph = *device.EndCapture(*stream);
    EXPECT_EQ(graph->Describe(), "10 nodes (10 kernel), 9 edges, 0 of them programmatic");
    work();
    count(launched, [&] { ASSERT_TRUE(comm.LaunchGraph(*graph, *stream, {.count = kPosts, .last_seq = 9}).ok()); });
  });
  EXPECT_EQ(first, (Calls{{"EventRecord", 2}}));
  EXPECT_EQ(following, (Calls{{"EventRecord", kPosts}}));
  EXPECT_EQ(apart, (Calls{{"EventRecord", 2 * kPosts}, {"MemsetD8Async", kPosts}}));
  EXPECT_EQ(launched, (Calls{{"EventRecord", 2}, {"GraphLaunch", 1}}));
}

TEST(NcclOnCuda, AGroupIsCapturedWhollyOrNotAtAll) {
  FakeCudaBackend().Run(1, seconds(20), [&](Communicator& comm, device::Device& device) {
    const auto captured = *device.CreateStream(), queued = *device.CreateStream();
    const TeamId team = *comm.Team(std::vector<int64_t>{0}, 0);
    ASSERT_TRUE(device.BeginCapture(*captured).ok());
    ASSERT_TRUE(comm.GroupBegin().ok());
    ASSERT_TRUE(comm.Post({.team = team, .seq = 4}, *captured).ok());
    ASSERT_TRUE(comm.Post({.team = team, .seq = 5}, *queued).ok());
    EXPECT_EQ(comm.GroupEnd().ToString(),
              "FAILED_PRECONDITION: allreduce #4: a group is captured on all of its streams, or on "
              "none");
    EXPECT_TRUE(device.EndCapture(*captured).ok());
  });
}

}  // namespace
}  // namespace hir::comm
