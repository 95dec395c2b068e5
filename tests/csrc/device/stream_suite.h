// What every device's streams and events must do. A test file instantiates it with its device:
//   INSTANTIATE_TEST_SUITE_P(Host, StreamSuite, testing::Values(DeviceCase{...}), CaseName);
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/device/device.h"
#include "tests/csrc/device/pending_operation.h"

namespace hir::device {

struct DeviceCase {
  std::string name;
  // The device, or why there is none here: then the tests are skipped.
  std::function<Result<std::unique_ptr<Device>>()> open;
  // The bytes of a buffer of it, once its work is done.
  std::function<std::vector<std::byte>(Device&, Buffer)> read;
};
inline void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.name; }

inline std::string CaseName(const testing::TestParamInfo<DeviceCase>& info) { return info.param.name; }

class StreamSuite : public testing::TestWithParam<DeviceCase> {
 protected:
  static constexpr base::Nanos kLong = std::chrono::seconds(30);
  static constexpr base::Nanos kShort = std::chrono::milliseconds(1);

  void SetUp() override {
    auto opened = GetParam().open();
    if (!opened.ok()) GTEST_SKIP() << "SKIPPED, no device: " << opened.status().ToString();
    device_ = *std::move(opened);
  }
  std::unique_ptr<Stream> NewStream() { return *device_->CreateStream(); }
  std::unique_ptr<Event> NewEvent() { return *device_->CreateEvent(); }
  std::vector<std::byte> Read(Buffer buffer) { return GetParam().read(*device_, buffer); }

  std::unique_ptr<Device> device_;
};

TEST_P(StreamSuite, CopiesAndFills) {
  const auto stream = NewStream();
  const auto a = *device_->Allocate(3'000'008);
  const auto b = *device_->Allocate(3'000'008);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a->buffer().data) % kAlignmentBytes, 0u);
  for (const uint64_t pattern : {uint64_t{0x0123456789abcdef}, uint64_t{0x89abcdef89abcdef}}) {
    for (const int width : {1, 2, 4, 8}) {
      stream->Fill(a->buffer(), pattern, width);
      stream->Fill(b->buffer(), 0, 8);
      stream->Fill(b->buffer().Slice(0, 8), 1, 8);
      stream->Copy(b->buffer(), a->buffer());
      stream->Copy(b->buffer(), b->buffer());
      stream->Fill(b->buffer().Slice(0, 0), 1, 8);
      stream->Copy(b->buffer().Slice(0, 0), a->buffer().Slice(0, 0));
      ASSERT_TRUE(stream->Synchronize(kLong).ok());
      const std::vector<std::byte> bytes = Read(b->buffer());
      for (size_t i = 0; i < bytes.size(); ++i) {
        ASSERT_EQ(bytes[i], std::byte{static_cast<uint8_t>(pattern >> (8 * (i % static_cast<size_t>(width))))}) << i;
      }
    }
  }
}

TEST_P(StreamSuite, AWaitMeansTheLatestRecordBeforeIt) {
  const auto a = NewStream(), b = NewStream(), c = NewStream();
  const auto event = NewEvent();
  PendingOperation first, second;

  a->Enqueue(first);
  a->Record(*event);
  c->Wait(*event);  // The record on a.
  b->Enqueue(second);
  b->Record(*event);
  first.WaitStarted();
  first.Done();
  EXPECT_TRUE(c->Synchronize(kLong).ok());  // Though the event has been recorded anew and has not fired.
  EXPECT_FALSE(event->Fired());

  c->Wait(*event);  // The record on b.
  EXPECT_EQ(c->Synchronize(kShort).code(), Code::kDeadlineExceeded);
  second.WaitStarted();
  second.Done();
  EXPECT_TRUE(c->Synchronize(kLong).ok());
  EXPECT_TRUE(event->Synchronize(kLong).ok());
  EXPECT_TRUE(event->Fired());
}

TEST_P(StreamSuite, AnEventThatWasNeverRecordedHasFired) {
  const auto stream = NewStream();
  const auto event = NewEvent();
  EXPECT_TRUE(event->Fired());
  EXPECT_TRUE(event->Synchronize(kLong).ok());
  stream->Wait(*event);
  EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

TEST_P(StreamSuite, WaitingStreamsHoldNoThread) {
  const auto event = NewEvent();
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<PendingOperation>> pending;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(NewStream());
    if (i % 2 == 0) {
      pending.push_back(std::make_unique<PendingOperation>());
      streams.back()->Enqueue(*pending.back());
      streams.back()->Record(*event);
    } else {
      streams.back()->Wait(*event);
    }
  }
  const auto free = NewStream();
  free->HostCallback([] { return Status(); });
  EXPECT_TRUE(free->Synchronize(kLong).ok());
  for (auto& op : pending) {
    op->WaitStarted();
    op->Done();
  }
  for (auto& stream : streams) EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

TEST_P(StreamSuite, AnOperationMayBeDoneInsideStart) {
  class Instant final : public AsyncOp {
   public:
    void Start(Completion completion) override { completion.Done({}); }
    void Skip(const Status&) override {}
  };
  const auto stream = NewStream();
  Instant op;
  for (int i = 0; i < 200; ++i) stream->Enqueue(op);
  EXPECT_TRUE(stream->Synchronize(kLong).ok());
}

TEST_P(StreamSuite, AFailureSkipsWhatFollowsAndReachesWaitingStreams) {
  const auto a = NewStream(), b = NewStream(), c = NewStream();
  const auto before = NewEvent(), after = NewEvent(), far = NewEvent();
  PendingOperation op, skipped;
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
  b->Record(*far);
  c->Wait(*far);
  op.WaitStarted();
  op.Done(Unavailable("rank 2 left"));
  EXPECT_EQ(a->Synchronize(kLong).ToString(), "UNAVAILABLE: rank 2 left");
  EXPECT_EQ(b->Synchronize(kLong).ToString(), "UNAVAILABLE: rank 2 left");
  EXPECT_EQ(c->Synchronize(kLong).ToString(), "UNAVAILABLE: rank 2 left");
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
  EXPECT_EQ(b->status().code(), Code::kUnavailable);
}

TEST_P(StreamSuite, MemoryIsLimitedByName) {
  const int64_t limit = device_->memory_bytes_max();
  const int64_t before = device_->allocated_bytes();
  {
    const auto some = *device_->Allocate(1000);
    EXPECT_EQ(some->buffer().bytes, 1000);
    EXPECT_EQ(device_->allocated_bytes(), before + 1000);
    const Status status = device_->Allocate(limit).status();
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_NE(status.message().find("limit device_bytes_max: " + std::to_string(limit)), std::string::npos)
        << status.ToString();
    EXPECT_TRUE(device_->Allocate(0).ok());
  }
  EXPECT_EQ(device_->allocated_bytes(), before);
}

// Random work over cells, ordered by random but sufficient events, equals the sequential run.
TEST_P(StreamSuite, RandomWorkEqualsTheSequentialRun) {
  constexpr int64_t kStreams = 4, kCells = 5, kEvents = 6, kOps = 60;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::Prng random(seed);
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> events;
    for (int64_t i = 0; i < kStreams; ++i) streams.push_back(NewStream());
    for (int64_t i = 0; i < kEvents; ++i) events.push_back(NewEvent());
    const auto memory = *device_->Allocate(kCells * 8);
    std::array<uint64_t, kCells> expected = {};
    std::array<int64_t, kCells> writer = {0, 0, 0, 0, 0};
    std::array<std::array<bool, kStreams>, kCells> readers = {};
    streams[0]->Fill(memory->buffer(), 0, 8);
    const auto after = [&](int64_t later, int64_t earlier) {
      Event& event = *events[static_cast<size_t>(random.Below(kEvents))];
      streams[static_cast<size_t>(earlier)]->Record(event);
      streams[static_cast<size_t>(later)]->Wait(event);
    };
    for (int64_t op = 0; op < kOps; ++op) {
      const int64_t s = random.Below(kStreams);
      const auto read = static_cast<size_t>(random.Below(kCells));
      const auto write = static_cast<size_t>(random.Below(kCells));
      after(s, writer[read]);
      after(s, writer[write]);
      for (int64_t reader = 0; reader < kStreams; ++reader) {
        if (readers[write][static_cast<size_t>(reader)]) after(s, reader);
      }
      readers[write] = {};
      writer[write] = s;
      Stream& stream = *streams[static_cast<size_t>(s)];
      const Buffer cell = memory->buffer().Slice(static_cast<int64_t>(write) * 8, 8);
      if (read != write && random.OneIn(2)) {
        readers[read][static_cast<size_t>(s)] = true;
        stream.Copy(cell, memory->buffer().Slice(static_cast<int64_t>(read) * 8, 8));
        expected[write] = expected[read];
      } else {
        expected[write] = static_cast<uint64_t>(op) * 0x9e3779b97f4a7c15ULL + seed;
        stream.Fill(cell, expected[write], 8);
      }
    }
    for (auto& stream : streams) ASSERT_TRUE(stream->Synchronize(kLong).ok());
    const std::vector<std::byte> bytes = Read(memory->buffer());
    std::array<uint64_t, kCells> cells;
    ASSERT_EQ(bytes.size(), sizeof(cells));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(cells.data()));
    ASSERT_EQ(cells, expected) << "seed " << seed;
  }
}

}  // namespace hir::device
