// Short programs of communications that go by peer memory: run on the fake driver, traced, and with an op left out.
#pragma once

#include <algorithm>
#include <barrier>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/prng.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/peer/peer_team.h"
#include "tests/multidevice/comm/peer/cuda/fake_peers.h"
#include "tests/multidevice/comm/peer/cuda/word_trace.h"

namespace hir::comm {

inline constexpr PeerPaths kAllByCopies = {.push_bytes_max = 0, .copies_alone_bytes_min = 1};
inline constexpr int64_t kSmallTeamBytes = 256 << 10;
inline constexpr base::Nanos kAmple = std::chrono::seconds(20);  // For what takes milliseconds.
inline constexpr int64_t kRankMemoryBytes = int64_t{1} << 30;    // More than a rank has: a slab of 256 MiB.

// The same communication several times: with other data each time, in the same buffers.
struct PeerProgram {
  std::string name = {};
  CommType type = CommType::kAllgather;
  int64_t ranks = 2;
  int64_t calls = 2;
  double pieces = 2.5;  // Of a message, as the copies take it apart.
  int64_t count = 0;    // Elements of a chunk, where not 0.
  bool in_place = false;
  bool windows = false;
  bool two_streams = false;  // In turn, with buffers of their own.
};

// What one rank queues; on the thread that queues. Leaves out the op `drop`.
struct Recorder {
  std::vector<QueuedOp> ops = {};
  std::optional<size_t> drop = {};
};
inline thread_local Recorder* recording = nullptr;
inline thread_local void* owner_of_run = nullptr;  // Of the run whose rank the thread is: set_owner.
inline bool RecordQueued(const device::FakeQueued& queued) {
  if (recording == nullptr) return true;
  recording->ops.push_back(MakeQueuedOp(queued));
  return recording->drop != recording->ops.size() - 1;
}

class PeerProgramRun {
 public:
  explicit PeerProgramRun(const PeerProgram& program)
      : program_(program),
        layout_(program.ranks, kSmallTeamBytes),
        recorders_(static_cast<size_t>(program.ranks)),
        statuses_(static_cast<size_t>(program.ranks)),
        all_(program.ranks) {
    const auto bytes = static_cast<int64_t>(static_cast<double>(layout_.piece_bytes()) * program.pieces);
    const bool parts = program.type == CommType::kAllreduce;  // It takes its own bytes apart.
    count_ = program.count != 0 ? program.count : bytes / 4 * (parts ? program.ranks : 1);
    wide_ = program.type == CommType::kAllToAll || program.type == CommType::kReduceScatter;
  }

  void set_owner(void* owner) { owner_ = owner; }
  // `backend` has kSmallTeamBytes. REQUIRES: RecordQueued is asked, where an op is dropped, or Trace() follows.
  void Run(FakePeers& backend, base::Nanos op_timeout, std::optional<OpName> drop = {}) {
    if (drop) recorders_[drop->rank].drop = drop->index;
    backend.Run(program_.ranks, op_timeout,
                [this](Communicator& comm, device::Device& device) { RunRank(comm, device); });
  }
  // After a run: what was queued.
  WordTrace Trace() const {
    std::vector<std::vector<QueuedOp>> by_rank;
    for (const Recorder& recorder : recorders_) by_rank.push_back(recorder.ops);
    return WordTrace(by_rank, given_);
  }
  // What each rank's streams came to in the end.
  const std::vector<Status>& statuses() const { return statuses_; }
  // The longest that a rank waited for its streams.
  base::Nanos longest() const { return longest_; }
  // Of ranks whose streams are fine: what was not as it should be.
  const std::vector<std::string>& wrong() const { return wrong_; }

 private:
  using Ints = std::vector<int32_t>;

  int64_t SrcCount() const { return count_ * (wide_ ? program_.ranks : 1); }
  int64_t DstCount() const {
    const bool all = program_.type == CommType::kAllgather || program_.type == CommType::kAllToAll;
    return count_ * (all ? program_.ranks : 1);
  }

  Ints Input(int64_t rank, int64_t call) const {
    base::Prng prng(static_cast<uint64_t>(rank * 100 + call + 1));
    Ints values(static_cast<size_t>(SrcCount()));
    for (int32_t& value : values) value = static_cast<int32_t>(prng.Below(1 << 20));
    return values;
  }
  Ints Expected(int64_t rank, int64_t call) const {
    const auto n = static_cast<ptrdiff_t>(count_);
    Ints out;
    std::vector<Ints> inputs;
    for (int64_t r = 0; r < program_.ranks; ++r) inputs.push_back(Input(r, call));
    const auto append = [&](int64_t from, int64_t chunk) {
      const Ints& in = inputs[static_cast<size_t>(from)];
      out.insert(out.end(), in.begin() + chunk * n, in.begin() + (chunk + 1) * n);
    };
    if (program_.type == CommType::kCollectivePermute) append((rank + program_.ranks - 1) % program_.ranks, 0);
    for (int64_t r = 0; program_.type == CommType::kAllgather && r < program_.ranks; ++r) append(r, 0);
    for (int64_t r = 0; program_.type == CommType::kAllToAll && r < program_.ranks; ++r) append(r, rank);
    if (!out.empty()) return out;
    const int64_t chunk = program_.type == CommType::kReduceScatter ? rank : 0;
    append(0, chunk);
    for (int64_t r = 1; r < program_.ranks; ++r) {
      const Ints& in = inputs[static_cast<size_t>(r)];
      for (ptrdiff_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] += in[static_cast<size_t>(chunk * n + i)];
    }
    return out;
  }

  struct Lane {  // What the calls of one stream use.
    std::unique_ptr<device::Stream> stream;
    std::unique_ptr<device::Allocation> src, dst;
  };

  void RunRank(Communicator& comm, device::Device& device) {
    owner_of_run = owner_;
    const int64_t rank = comm.rank();
    std::vector<int64_t> ranks;
    for (int64_t r = 0; r < program_.ranks; ++r) ranks.push_back(r);
    const TeamId team = *comm.Team(ranks, 0);
    std::shared_ptr<const Window> window;
    if (program_.windows) window = *comm.MakeWindow(team, DstCount() * 4);
    std::vector<Lane> lanes(program_.two_streams ? 2 : 1);
    for (Lane& lane : lanes) {
      lane.stream = *device.CreateStream();
      lane.src = *device.Allocate(SrcCount() * 4);
      lane.dst = *device.Allocate(DstCount() * 4);
    }
    std::vector<std::unique_ptr<device::Allocation>> inputs, outputs;
    for (int64_t call = 0; call < program_.calls; ++call) {
      inputs.push_back(*device.Allocate(SrcCount() * 4));
      outputs.push_back(*device.Allocate(DstCount() * 4));
      const Ints input = Input(rank, call);
      ASSERT_TRUE(device::CopyFromHost(device, inputs.back()->buffer(), std::as_bytes(std::span(input))).ok());
    }
    all_.arrive_and_wait();
    recording = &recorders_[static_cast<size_t>(rank)];
    for (int64_t call = 0; call < program_.calls; ++call) {
      const auto i = static_cast<size_t>(call);
      const Lane& lane = lanes[i % lanes.size()];
      lane.stream->Copy(lane.src->buffer(), inputs[i]->buffer());
      CommDesc desc = {.type = program_.type, .team = team, .dtype = DType::kInt32, .count = count_};
      desc.to = (rank + 1) % program_.ranks;
      desc.from = (rank + program_.ranks - 1) % program_.ranks;
      desc.src = lane.src->buffer();
      desc.dst = window != nullptr ? window->own() : program_.in_place ? desc.src : lane.dst->buffer();
      desc.window = window.get();
      desc.seq = call;
      const Status posted = comm.Post(desc, *lane.stream);
      EXPECT_TRUE(posted.ok()) << posted.ToString();
      const device::Buffer dst = desc.dst.Slice(0, DstCount() * 4);
      lane.stream->Copy(outputs[i]->buffer(), dst);
      lane.stream->Fill(dst, 0, 4);  // Whatever still reads it is late.
    }
    for (const Lane& lane : lanes) lane.stream->Fill(lane.src->buffer(), 0, 4);
    recording = nullptr;
    const auto posted = std::chrono::steady_clock::now();
    Status status;
    for (const Lane& lane : lanes) {
      const Status of_stream = lane.stream->Synchronize(std::chrono::seconds(60));
      if (status.ok()) status = of_stream;
    }
    const auto took = std::chrono::steady_clock::now() - posted;
    std::vector<std::string> wrong;
    for (int64_t call = 0; call < program_.calls && status.ok(); ++call) {
      Ints got(static_cast<size_t>(DstCount()));
      const auto bytes = std::as_writable_bytes(std::span(got));
      EXPECT_TRUE(device::CopyToHost(device, bytes, outputs[static_cast<size_t>(call)]->buffer()).ok());
      if (got != Expected(rank, call)) wrong.push_back(base::Cat("rank ", rank, ", call ", call));
    }
    std::lock_guard lock(mutex_);
    longest_ = std::max<base::Nanos>(longest_, took);
    statuses_[static_cast<size_t>(rank)] = status;
    wrong_.insert(wrong_.end(), wrong.begin(), wrong.end());
    FindGiven(rank);
  }

  // The words of this rank's memory that are 1 before all: it takes them itself.
  void FindGiven(int64_t rank) {
    const std::vector<int64_t> offsets = layout_.free_words();
    for (const QueuedOp& op : recorders_[static_cast<size_t>(rank)].ops) {
      if (op.queued.kind != device::FakeQueued::Kind::kTakeWord) continue;
      if (std::ranges::find(offsets, op.queued.dst.offset) != offsets.end()) given_.insert(op.queued.dst);
    }
  }

  const PeerProgram program_;
  const PeerLayout layout_;
  void* owner_ = nullptr;
  int64_t count_ = 0;
  bool wide_ = false;
  std::vector<Recorder> recorders_;
  std::vector<Status> statuses_;
  std::vector<std::string> wrong_;
  base::Nanos longest_ = {};
  std::set<device::FakePlace> given_;
  std::barrier<> all_;
  std::mutex mutex_;
};

}  // namespace hir::comm
