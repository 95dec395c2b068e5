// What the communicators pass whose posts can be captured (Communicator::can_capture), beside the CommunicatorSuite.
#pragma once

#include "csrc/device/graph.h"
#include "tests/conformance/communicator_suite.h"

namespace hir::comm {

class CommunicatorGraphSuite : public CommunicatorSuite {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorGraphSuite);

// Posts of most kinds on two streams, with copies between them: out of `x`, which holds the same on every rank but the
// first element, into one part of `out` each.
struct GraphPostsCase {
  static constexpr int64_t kCount = 3000;  // Elements of x, of int32; divisible by the ranks.
  static constexpr int64_t kParts = 5;
  Communicator& comm;
  device::Stream& a;
  device::Stream& b;
  device::Event& fork;
  device::Event& join;
  TeamId first, second;  // Lanes of the two streams.

  void Queue(const DeviceBytes& x, const DeviceBytes& out, int64_t seq) const {
    const int64_t n = comm.size(), bytes = kCount * 4;
    const auto part = [&](int64_t i) { return out.buffer().Slice(i * n * bytes, n * bytes); };
    const auto front = [&](int64_t i) { return part(i).Slice(0, bytes); };
    const auto post = [&](CommDesc desc, device::Stream& stream) {
      desc.dtype = DType::kInt32;
      desc.team = &stream == &a ? first : second;
      desc.seq = seq++;
      const Status posted = comm.Post(desc, stream);
      EXPECT_TRUE(posted.ok()) << posted.ToString();
    };
    a.Record(fork);
    b.Wait(fork);
    post({.type = CommType::kAllgather, .count = kCount, .src = x.buffer(), .dst = part(0)}, a);
    post({.count = kCount, .src = x.buffer(), .dst = front(1)}, b);
    a.Copy(front(2), x.buffer());
    // In place, through scratch.
    post({.type = CommType::kAllToAll, .count = kCount / n, .src = front(2), .dst = front(2)}, a);
    b.Copy(front(3), front(1));
    EXPECT_TRUE(comm.GroupBegin().ok());
    const int64_t to = (comm.rank() + 1) % n, from = (comm.rank() + n - 1) % n;
    post({.type = CommType::kSendRecv, .count = kCount, .src = front(1), .dst = front(3), .to = to, .from = from}, b);
    post({.type = CommType::kReduce, .root = 0, .count = kCount, .src = front(1), .dst = front(4)}, b);
    EXPECT_TRUE(comm.GroupEnd().ok());
    b.Record(join);
    a.Wait(join);
  }
  static constexpr int64_t kPosts = 5;
};

// A rank's streams, events, teams, and a captured program.
class GraphPostsRank {
 public:
  GraphPostsRank(Communicator& comm, device::Device& device)
      : comm_(comm),
        a_(*device.CreateStream()),
        b_(*device.CreateStream()),
        fork_(*device.CreateEvent()),
        join_(*device.CreateEvent()),
        x_(device, *a_, Bytes(Elements(1))),
        queued_(device, *a_, Bytes(Elements(GraphPostsCase::kParts * comm.size()))),
        replayed_(device, *a_, Bytes(Elements(GraphPostsCase::kParts * comm.size()))) {
    std::vector<int64_t> all(static_cast<size_t>(comm.size()));
    std::iota(all.begin(), all.end(), 0);
    const TeamId first = *comm.Team(all, 0), second = *comm.Team(all, 1);
    case_ = std::make_unique<GraphPostsCase>(GraphPostsCase{comm, *a_, *b_, *fork_, *join_, first, second});
    EXPECT_TRUE(a_->Synchronize(std::chrono::seconds(20)).ok());
    case_->Queue(x_, queued_, 0);  // Whatever is made at a first post is.
    EXPECT_TRUE(a_->Synchronize(std::chrono::seconds(20)).ok());
    EXPECT_TRUE(device.BeginCapture(*a_).ok());
    device.CaptureFixed(true);
    case_->Queue(x_, replayed_, 0);
    auto graph = device.EndCapture(*a_);
    EXPECT_TRUE(graph.ok()) << graph.status().ToString();
    if (graph.ok()) graph_ = *std::move(graph);
  }

  bool captured() const { return graph_ != nullptr; }
  device::Stream& stream() { return *a_; }
  Status Launch(int64_t seq) {
    return comm_.LaunchGraph(
        *graph_, *a_,
        {.count = GraphPostsCase::kPosts, .first_seq = seq, .last_seq = seq + GraphPostsCase::kPosts - 1});
  }
  void QueueNext(int64_t seq) { case_->Queue(x_, queued_, seq); }
  // Another x, on the device.
  void Fill(uint64_t value) { a_->Fill(x_.buffer(), value | (7 * value + 3) << 32, 8); }
  void Clear() {
    a_->Fill(queued_.buffer(), 0, 1);
    a_->Fill(replayed_.buffer(), 0xff, 1);
  }
  Bytes Queued() const { return queued_.Read(); }
  Bytes Replayed() const { return replayed_.Read(); }
  // What no post of this rank writes is as Clear has left it.
  static Bytes Cleared(Bytes bytes, const Bytes& like) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == std::byte{0xff} && like[i] == std::byte{0}) bytes[i] = std::byte{0};
    }
    return bytes;
  }

 private:
  static size_t Elements(int64_t chunks) { return static_cast<size_t>(chunks * GraphPostsCase::kCount * 4); }

  Communicator& comm_;
  const std::unique_ptr<device::Stream> a_, b_;
  const std::unique_ptr<device::Event> fork_, join_;
  const DeviceBytes x_, queued_, replayed_;
  std::unique_ptr<GraphPostsCase> case_;
  std::unique_ptr<device::Graph> graph_;
};

// What was captured does what is queued, as often as it is launched, among posts that are queued; progress tells of
// it.
TEST_P(CommunicatorGraphSuite, AGraphDoesWhatWasPosted) {
  Run(SizeUpTo(3), [&](Communicator& comm, device::Device& device) {
    ASSERT_TRUE(comm.can_capture());
    GraphPostsRank rank(comm, device);
    ASSERT_TRUE(rank.captured());
    int64_t seq = 100;
    for (uint64_t round = 1; round <= 4; ++round) {
      rank.Fill(round * 1000 + static_cast<uint64_t>(comm.rank()) + 1);
      rank.Clear();
      rank.QueueNext(seq);
      seq += GraphPostsCase::kPosts;
      for (uint64_t again = 0; again < round % 3; ++again, seq += GraphPostsCase::kPosts)
        ASSERT_TRUE(rank.Launch(seq).ok());
      const Status launched = rank.Launch(seq);
      ASSERT_TRUE(launched.ok()) << launched.ToString();
      seq += GraphPostsCase::kPosts;
      const Bytes queued = rank.Queued();
      EXPECT_EQ(GraphPostsRank::Cleared(rank.Replayed(), queued), queued) << "round " << round;
      EXPECT_NE(queued, Bytes(queued.size()));
    }
    const base::Nanos end = base::Clock::Steady().Now() + kLong;
    while (comm.Progress().left < seq - 1 && base::Clock::Steady().Now() < end) std::this_thread::yield();
    EXPECT_EQ(comm.Progress().entered, seq - 1);
    EXPECT_EQ(comm.Progress().left, seq - 1);
  });
}

// A peer that is gone while a graph communicates: an abort gives the stream back within a second, with the cause, and
// the graph is launched no more.
TEST_P(CommunicatorGraphSuite, AbortEndsAGraph) {
  Run(2, [&](Communicator& comm, device::Device& device) {
    GraphPostsRank rank(comm, device);
    ASSERT_TRUE(rank.captured());
    ASSERT_TRUE(rank.Launch(10).ok());
    ASSERT_TRUE(rank.stream().Synchronize(kLong).ok());
    if (comm.rank() == 1) return;  // It never comes.
    ASSERT_TRUE(rank.Launch(20).ok());
    ASSERT_TRUE(rank.Launch(30).ok());
    Status pending;
    do {
      pending = rank.stream().Synchronize(std::chrono::milliseconds(10));
    } while (pending.code() == Code::kDeadlineExceeded && comm.Progress().entered < 20);
    EXPECT_EQ(pending.code(), Code::kDeadlineExceeded);
    EXPECT_EQ(comm.Progress().entered, 20);
    EXPECT_EQ(comm.Progress().left, 14);
    comm.Abort(Unavailable("rank 1 was lost"));
    const Status done = rank.stream().Synchronize(std::chrono::seconds(1));
    EXPECT_EQ(done.ToString(), "UNAVAILABLE: rank 1 was lost");
    EXPECT_EQ(rank.Launch(40).ToString(), "UNAVAILABLE: rank 1 was lost");
  });
}

// Without an abort, the deadline: of the graph as a whole.
TEST_P(CommunicatorGraphSuite, ADeadlineEndsAGraph) {
  Run(
      2,
      [&](Communicator& comm, device::Device& device) {
        GraphPostsRank rank(comm, device);
        ASSERT_TRUE(rank.captured());
        ASSERT_TRUE(rank.Launch(10).ok());
        ASSERT_TRUE(rank.stream().Synchronize(kLong).ok());
        if (comm.rank() == 1) return;
        ASSERT_TRUE(rank.Launch(20).ok());
        const Status done = rank.stream().Synchronize(kLong);
        EXPECT_EQ(done.code(), Code::kDeadlineExceeded);
        EXPECT_THAT(std::string(done.message()), testing::HasSubstr("a graph with communications #20 to #24"));
      },
      std::chrono::milliseconds(500));
}

}  // namespace hir::comm
