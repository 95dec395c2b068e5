// What only the host device does: split launches, how far a stream is, limits of its queue.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "csrc/base/background_work.h"
#include "csrc/device/host/host_device.h"
#include "tests/csrc/device/pending_operation.h"

namespace hir::device {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations in tests.

constexpr base::Nanos kLong = 30s;

std::unique_ptr<Device> NewDevice(HostDeviceOptions options = {}) {
  auto device = CreateHostDevice(std::move(options));
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return *std::move(device);
}
std::unique_ptr<Stream> NewStream(Device& device) { return *device.CreateStream(); }

int64_t Slot(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

void AddOne(const int64_t* args, int64_t begin, int64_t end) {
  auto* const data = reinterpret_cast<int32_t*>(args[0]);
  for (int64_t i = begin; i < end; ++i) data[i] += 1;
}
const HostKernel kAddOne({.name = "add_one", .function = AddOne});

using Pending = PendingOperation;

TEST(HostStream, ALaunchCoversItsGridOnce) {
  const auto device = NewDevice({.num_threads = 3});
  const auto stream = NewStream(*device);
  for (int64_t grid : {0, 1, 2, 7, 1000, 100'003}) {
    std::vector<int32_t> data(static_cast<size_t>(grid), 0);
    const int64_t args[] = {Slot(data.data())};
    for (int i = 0; i < 20; ++i) stream->Launch(kAddOne, args, grid);
    ASSERT_TRUE(stream->Synchronize(kLong).ok());
    EXPECT_EQ(data, std::vector<int32_t>(static_cast<size_t>(grid), 20)) << "grid " << grid;
  }
}

TEST(HostStream, ArgumentsAreCopied) {
  const auto device = NewDevice();
  const auto stream = NewStream(*device);
  int64_t sum = 0;
  const HostKernel kernel({.name = "sum", .function = [](const int64_t* args, int64_t, int64_t) {
                             *reinterpret_cast<int64_t*>(args[0]) += std::accumulate(args + 1, args + 100, int64_t{0});
                           }});
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> args(100, round);
    args[0] = Slot(&sum);
    stream->Launch(kernel, args, 1);
  }
  ASSERT_TRUE(stream->Synchronize(kLong).ok());
  EXPECT_EQ(sum, 99 * 299 * 300 / 2);
}

TEST(HostStream, SynchronizeSaysHowFarTheStreamIs) {
  const auto device = NewDevice({.name = "host:7"});
  const auto stream = NewStream(*device);
  Pending op;
  stream->HostCallback([] { return Status(); });
  stream->Enqueue(op);
  stream->HostCallback([] { return Status(); });
  op.WaitStarted();
  EXPECT_EQ(stream->Synchronize(1ms).ToString(),
            "DEADLINE_EXCEEDED: host:7 stream 0: 1 of 3 operations are done after 0.001 s");
  op.Done();
  EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

// What helps is called by the thread that waits, until it is removed; and no longer once that thread sleeps.
TEST(HostStream, AThreadThatWaitsDoesBackgroundWork) {
  struct Finisher final : base::BackgroundWork {
    explicit Finisher(Pending& op) : op(op) { base::AddBackgroundWork(*this); }
    ~Finisher() override { base::RemoveBackgroundWork(*this); }
    base::Found Help() override {
      helper = std::this_thread::get_id();
      if (++helped == 3) op.Done();
      if (helped == 3) return base::Found::kSomething;
      return helped == 1 ? base::Found::kNothing : base::Found::kNeedsCore;
    }
    void Leave() override { ++left; }
    bool IsUnderWay() const override { return true; }
    Pending& op;
    std::thread::id helper;
    std::atomic<int> helped = 0;
    std::atomic<int> left = 0;
  };
  const auto device = NewDevice();
  const auto stream = NewStream(*device);
  Pending op;
  stream->Enqueue(op);
  {
    Finisher finisher(op);
    EXPECT_TRUE(stream->Synchronize(kLong).ok());
    EXPECT_EQ(finisher.helped, 3);
    EXPECT_EQ(finisher.left, 0);
    EXPECT_EQ(finisher.helper, std::this_thread::get_id());
    Pending slow;
    stream->Enqueue(slow);
    EXPECT_EQ(stream->Synchronize(20ms).code(), Code::kDeadlineExceeded);
    EXPECT_EQ(finisher.left, 1);
    slow.Done();
  }
  Pending last;
  stream->Enqueue(last);
  EXPECT_EQ(stream->Synchronize(1ms).code(), Code::kDeadlineExceeded);
  last.Done();
  EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

TEST(HostStream, AFullQueueFailsTheStream) {
  const auto device = NewDevice({.queued_ops_max = 4});
  const auto stream = NewStream(*device);
  Pending op;
  Pending late;
  stream->Enqueue(op);
  op.WaitStarted();
  for (int i = 0; i < 3; ++i) stream->HostCallback([] { return Status(); });
  EXPECT_TRUE(stream->status().ok());
  stream->Enqueue(late);
  const std::string full = "RESOURCE_EXHAUSTED: host:0 stream 0: limit queued_ops_max: 4 operations are queued";
  EXPECT_EQ(late.skipped().ToString(), full);
  op.Done();
  EXPECT_EQ(stream->Synchronize(kLong).ToString(), full);
}

// What a kernel reads side by side: equal lower bits of addresses are equal places in a cache.
TEST(HostDevice, LargeTensorsOfASizeDifferInTheLowerBitsOfTheirAddresses) {
  constexpr int64_t kBytes = 4 << 20;
  const auto device = NewDevice();
  std::vector<std::unique_ptr<Allocation>> tensors;
  std::set<int64_t> lines;  // Of a page: where pages lie is the kernel's business.
  for (int i = 0; i < 8; ++i) {
    tensors.push_back(*device->Allocate(kBytes));
    const Buffer buffer = tensors.back()->buffer();
    const int64_t address = Slot(buffer.data);
    EXPECT_EQ(buffer.bytes, kBytes);
    EXPECT_EQ(address % kAlignmentBytes, 0);
    lines.insert(address % 4096 / kAlignmentBytes);
    buffer.data[0] = buffer.data[kBytes - 1] = std::byte{1};
  }
  EXPECT_EQ(lines.size(), tensors.size());
  EXPECT_EQ(device->allocated_bytes(), 8 * kBytes);
}

// What lies before the buffers, eight pages on average, would be 125,000 if it stayed mapped. (A thread that allocates
// for the first time may map 32,768 meanwhile.)
TEST(HostDevice, LargeTensorsGoBackWhole) {
  const auto mapped = [] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  const auto device = NewDevice();
  (void)*device->Allocate(4 << 20);
  const int64_t before = mapped();
  for (int i = 0; i < 16384; ++i) (void)*device->Allocate(4 << 20);
  EXPECT_LT(mapped() - before, 65536);
}

TEST(HostDevice, RefusesByNamedLimits) {
  const auto device = NewDevice({.name = "host:1", .memory_bytes_max = 100, .streams_max = 1});
  auto first = device->Allocate(60);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(device->Allocate(41).status().ToString(),
            "RESOURCE_EXHAUSTED: host:1: limit device_bytes_max: 100 bytes, 60 in use, 41 asked for; run "
            "smaller sizes, or raise it (hostird --device-bytes-max)");
  EXPECT_TRUE(device->Allocate(40).ok());
  EXPECT_EQ(device->allocated_bytes(), 60);
  EXPECT_TRUE(device->Allocate(0).ok());
  {
    const auto stream = NewStream(*device);
    EXPECT_EQ(device->CreateStream().status().ToString(),
              "RESOURCE_EXHAUSTED: host:1: limit streams_max: 1 streams exist");
  }
  EXPECT_TRUE(device->CreateStream().ok());  // The released one serves again.
  EXPECT_EQ(CreateHostDevice({.num_threads = 0}).status().ToString(),
            "INVALID_ARGUMENT: host:0: num_threads is 0, at least 1 is needed");
}

}  // namespace
}  // namespace hir::device
