// Random programs over several streams, against the same program run in order. An operation reads
// one cell and writes another; where two operations on different streams touch the same cell, the
// generator records an event behind the earlier one and lets the later one's stream wait, and now
// and then it does so without need. Operations are launches, callbacks, and operations that another
// thread completes.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/device/host/host_device.h"

namespace hir::device {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kEvents = 3;  // Few, so that they are recorded again while streams wait for them.
constexpr int64_t kCells = 6;
constexpr int64_t kOps = 60;

int64_t Mix(int64_t value, int64_t op) {
  return static_cast<int64_t>(static_cast<uint64_t>(value ^ op) * 0x5851f42d4c957f2d + 1);
}

// args: &cells[read], &cells[write], op
void Step(const int64_t* args, int64_t begin, int64_t end) {
  if (begin == end) return;
  *reinterpret_cast<int64_t*>(args[1]) = Mix(*reinterpret_cast<int64_t*>(args[0]), args[2]);
}
const HostKernel kStep({.name = "step", .function = Step});

// Completes what it is given, on a thread of its own.
class Finisher {
 public:
  ~Finisher() { Push(nullptr); }
  void Push(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void Loop() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      if (!work) return;
      lock.unlock();
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::jthread thread_{[this] { Loop(); }};
};

class AsyncStep final : public AsyncOp {
 public:
  AsyncStep(Finisher& finisher, std::array<int64_t, 3> args) : finisher_(finisher), args_(args) {}
  void Start(Completion completion) override {
    completion_ = std::move(completion);
    finisher_.Push([this] {
      Step(args_.data(), 0, 1);
      completion_.Done({});
    });
  }
  void Skip(const Status&) override { FAIL(); }

 private:
  Finisher& finisher_;
  const std::array<int64_t, 3> args_;
  Completion completion_;
};

struct Cells {
  std::array<int64_t, kCells> value = {};
  std::array<std::array<bool, kStreams>, kCells> readers = {};  // Streams that read it since the last write.
  std::array<int64_t, kCells> writer = {-1, -1, -1, -1, -1, -1};
};

void RunOne(uint64_t seed, Device& device, Finisher& finisher) {
  base::Prng random(seed);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Event>> events;
  for (int64_t i = 0; i < kStreams; ++i) streams.push_back(*device.CreateStream());
  for (int64_t i = 0; i < kEvents; ++i) events.push_back(*device.CreateEvent());
  std::vector<std::unique_ptr<AsyncStep>> pending;
  Cells cells;
  std::array<int64_t, kCells> expected = {};

  const auto after = [&](int64_t later, int64_t earlier) {
    if (earlier < 0 || (later == earlier && !random.OneIn(4))) return;
    Event& event = *events[static_cast<size_t>(random.Below(kEvents))];
    streams[static_cast<size_t>(earlier)]->Record(event);
    streams[static_cast<size_t>(later)]->Wait(event);
  };
  for (int64_t op = 0; op < kOps; ++op) {
    const int64_t s = random.Below(kStreams);
    const auto read = static_cast<size_t>(random.Below(kCells));
    const auto write = static_cast<size_t>(random.Below(kCells));
    after(s, cells.writer[read]);
    after(s, cells.writer[write]);
    for (int64_t reader = 0; reader < kStreams; ++reader) {
      if (cells.readers[write][static_cast<size_t>(reader)]) after(s, reader);
    }
    if (random.OneIn(8)) after(s, random.Below(kStreams));
    cells.readers[read][static_cast<size_t>(s)] = true;
    cells.readers[write] = {};
    cells.writer[write] = s;
    expected[write] = Mix(expected[read], op);

    Stream& stream = *streams[static_cast<size_t>(s)];
    const std::array<int64_t, 3> args = {reinterpret_cast<int64_t>(&cells.value[read]),
                                         reinterpret_cast<int64_t>(&cells.value[write]), op};
    switch (random.Below(3)) {
      case 0: stream.Launch(kStep, args, 1); break;
      case 1: stream.HostCallback([args] { return Step(args.data(), 0, 1), Status(); }); break;
      default: pending.push_back(std::make_unique<AsyncStep>(finisher, args)); stream.Enqueue(*pending.back());
    }
  }
  for (auto& stream : streams) ASSERT_TRUE(stream->Synchronize(std::chrono::seconds(30)).ok());
  ASSERT_EQ(cells.value, expected);
}

TEST(RandomStreams, EqualTheSequentialRun) {
  const auto device = *CreateHostDevice({.num_threads = 3});
  Finisher finisher;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RunOne(seed, *device, finisher);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hir::device
