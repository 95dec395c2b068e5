// Streams and events of the host device: order, waiting without holding a thread, failures, limits.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "csrc/device/host/host_device.h"

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
std::unique_ptr<Event> NewEvent(Device& device) { return *device.CreateEvent(); }

int64_t Slot(const void* pointer) { return reinterpret_cast<int64_t>(pointer); }

void AddOne(const int64_t* args, int64_t begin, int64_t end) {
  auto* const data = reinterpret_cast<int32_t*>(args[0]);
  for (int64_t i = begin; i < end; ++i) data[i] += 1;
}
const HostKernel kAddOne({.name = "add_one", .function = AddOne});

// An operation that a test completes when it likes.
class Pending final : public AsyncOp {
 public:
  void Start(Completion completion) override {
    completion_ = std::move(completion);
    started_ = true;
    started_.notify_all();
  }
  void Skip(const Status& cause) override { skipped_ = cause; }
  void WaitStarted() { started_.wait(false); }
  bool started() const { return started_; }
  void Done(Status status = {}) { completion_.Done(std::move(status)); }
  const Status& skipped() const { return skipped_; }

 private:
  Completion completion_;
  std::atomic<bool> started_ = false;
  Status skipped_;
};

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
                             *reinterpret_cast<int64_t*>(args[0]) +=
                                 std::accumulate(args + 1, args + 100, int64_t{0});
                           }});
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> args(100, round);
    args[0] = Slot(&sum);
    stream->Launch(kernel, args, 1);
  }
  ASSERT_TRUE(stream->Synchronize(kLong).ok());
  EXPECT_EQ(sum, 99 * 299 * 300 / 2);
}

TEST(HostStream, CopiesAndFills) {
  const auto device = NewDevice({.num_threads = 2});
  const auto stream = NewStream(*device);
  const auto a = *device->Allocate(3'000'008);
  const auto b = *device->Allocate(3'000'008);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->buffer().data) % kAlignmentBytes, 0u);
  for (int width : {1, 2, 4, 8}) {
    const uint64_t pattern = 0x0123456789abcdef;
    stream->Fill(a->buffer(), pattern, width);
    stream->Fill(b->buffer(), 0, 8);
    stream->Copy(b->buffer(), a->buffer());
    stream->Copy(b->buffer(), b->buffer());
    ASSERT_TRUE(stream->Synchronize(kLong).ok());
    for (int64_t i = 0; i < b->buffer().bytes; ++i) {
      ASSERT_EQ(b->buffer().data[i], std::byte{static_cast<uint8_t>(pattern >> (8 * (i % width)))})
          << i;
    }
  }
}

TEST(HostStream, AWaitMeansTheLatestRecordBeforeIt) {
  const auto device = NewDevice();
  const auto a = NewStream(*device);
  const auto b = NewStream(*device);
  const auto c = NewStream(*device);
  const auto event = NewEvent(*device);
  Pending first;
  Pending second;

  a->Enqueue(first);
  a->Record(*event);
  c->Wait(*event);  // The record on a.
  b->Enqueue(second);
  b->Record(*event);
  first.WaitStarted();
  first.Done();
  EXPECT_TRUE(
      c->Synchronize(kLong).ok());  // Though the event has been recorded anew and has not fired.
  EXPECT_FALSE(event->Fired());

  c->Wait(*event);  // The record on b.
  EXPECT_EQ(c->Synchronize(1ms).code(), Code::kDeadlineExceeded);
  second.WaitStarted();
  second.Done();
  EXPECT_TRUE(c->Synchronize(kLong).ok());
  EXPECT_TRUE(event->Fired());
  EXPECT_TRUE(event->Synchronize(kLong).ok());
}

TEST(HostStream, AnEventThatWasNeverRecordedHasFired) {
  const auto device = NewDevice();
  const auto stream = NewStream(*device);
  const auto event = NewEvent(*device);
  EXPECT_TRUE(event->Fired());
  stream->Wait(*event);
  EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

// One thread, eight streams that wait for something, and one that still runs.
TEST(HostStream, WaitingStreamsHoldNoThread) {
  const auto device = NewDevice({.num_threads = 1});
  const auto event = NewEvent(*device);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Pending>> pending;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(NewStream(*device));
    if (i % 2 == 0) {
      pending.push_back(std::make_unique<Pending>());
      streams.back()->Enqueue(*pending.back());
      streams.back()->Record(*event);
    } else {
      streams.back()->Wait(*event);
    }
  }
  const auto free = NewStream(*device);
  free->HostCallback([] { return Status(); });
  EXPECT_TRUE(free->Synchronize(kLong).ok());
  for (auto& op : pending) {
    op->WaitStarted();
    op->Done();
  }
  for (auto& stream : streams) EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

TEST(HostStream, AnOperationMayBeDoneInsideStart) {
  class Instant final : public AsyncOp {
   public:
    void Start(Completion completion) override { completion.Done({}); }
    void Skip(const Status&) override {}
  };
  const auto device = NewDevice();
  const auto stream = NewStream(*device);
  Instant op;
  for (int i = 0; i < 1000; ++i) stream->Enqueue(op);
  EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

TEST(HostStream, AFailureSkipsWhatFollowsAndReachesWaitingStreams) {
  const auto device = NewDevice();
  const auto a = NewStream(*device);
  const auto b = NewStream(*device);
  const auto before = NewEvent(*device);
  const auto after = NewEvent(*device);
  Pending op;
  Pending skipped;
  std::atomic<int> ran = 0;
  const auto count = [&ran] { return ++ran, Status(); };

  a->HostCallback(count);
  a->Record(*before);
  a->Enqueue(op);
  a->HostCallback(count);
  a->Enqueue(skipped);
  a->Record(*after);
  b->Wait(*before);
  b->HostCallback(count);
  b->Wait(*after);
  b->HostCallback(count);
  op.WaitStarted();
  op.Done(Unavailable("rank 2 left"));
  EXPECT_EQ(a->Synchronize(kLong).ToString(), "UNAVAILABLE: rank 2 left");
  EXPECT_EQ(b->Synchronize(kLong).ToString(), "UNAVAILABLE: rank 2 left");
  EXPECT_EQ(skipped.skipped().ToString(), "UNAVAILABLE: rank 2 left");
  EXPECT_FALSE(skipped.started());
  EXPECT_EQ(ran, 2);
  EXPECT_TRUE(before->Synchronize(kLong).ok());
  EXPECT_EQ(after->Synchronize(kLong).code(), Code::kUnavailable);

  // The first failure stays until it is cleared.
  a->HostCallback([] { return Internal("second"); });
  EXPECT_EQ(a->Synchronize(kLong).code(), Code::kUnavailable);
  a->ClearError();
  EXPECT_TRUE(a->status().ok());
  a->HostCallback(count);
  EXPECT_TRUE(a->Synchronize(kLong).ok());
  EXPECT_EQ(ran, 3);
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
  const std::string full =
      "RESOURCE_EXHAUSTED: host:0 stream 0: limit queued_ops_max: 4 operations are queued";
  EXPECT_EQ(late.skipped().ToString(), full);
  op.Done();
  EXPECT_EQ(stream->Synchronize(kLong).ToString(), full);
}

TEST(HostDevice, RefusesByNamedLimits) {
  const auto device = NewDevice({.name = "host:1", .memory_bytes_max = 100, .streams_max = 1});
  auto first = device->Allocate(60);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(
      device->Allocate(41).status().ToString(),
      "RESOURCE_EXHAUSTED: host:1: limit memory_bytes_max: 100 bytes, 60 in use, 41 asked for");
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
