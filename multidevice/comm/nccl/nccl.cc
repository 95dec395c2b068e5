#include "multidevice/comm/nccl/nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/nccl/library.h"
#include "multidevice/comm/nccl/nccl_calls.h"
#include "multidevice/comm/nccl/nccl_comm.h"
#include "multidevice/comm/nccl/watch.h"
#include "multidevice/comm/team.h"

namespace hir::comm {
namespace {

using base::Cat;
using std::chrono::milliseconds;

// An abort waits so long for a call that another thread is in, then goes ahead.
constexpr base::Nanos kLockForAbort = milliseconds(500);
// What every member sends every other when a team is made: it makes them connect.
constexpr int64_t kGreetingBytes = 64;

using base::Now;

// Scratch of one stream: used from the front by the posts that start together, then again.
struct Scratch {
  std::unique_ptr<device::Allocation> memory = {};
  int64_t used = 0;
  bool in_graph = false;  // A graph names its addresses.
  std::vector<std::unique_ptr<device::Allocation>> replaced = {};
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const NcclOptions& options, Rendezvous& rendezvous, NcclLibrary nccl)
      : options_(options),
        rendezvous_(rendezvous),
        nccl_(std::move(nccl)),
        teams_(options.rank, options.size),
        watch_({.rank = options.rank,
                .op_timeout = options.op_timeout,
                .device = options.device,
                .async_error = [this] { return AsyncError(); },
                .abort = [this] { AbortComms(); }}) {}

  ~NcclCommunicator() override {
    if (watch_.poisoned()) return;  // The watch's thread has aborted them when it has ended.
    const base::Nanos deadline = Now() + options_.setup_timeout;
    std::lock_guard lock(calls_);
    for (auto& [id, comm] : comms_) comm->Close(deadline);
    for (auto& [ranks, comm] : parents_) comm->Close(deadline);
    comms_.clear();
    parents_.clear();
  }

  // All ranks meet.
  Status Start() {
    HIR_ASSIGN(stream_, options_.device->CreateStream());
    HIR_ASSIGN(greetings_, options_.device->Allocate(2 * kGreetingBytes * options_.size));
    if (options_.size == 1) return {};
    std::vector<int64_t> all;
    for (int64_t rank = 0; rank < options_.size; ++rank) {
      if (!std::binary_search(options_.absent.begin(), options_.absent.end(), rank)) all.push_back(rank);
    }
    if (all.size() == 1) return {};
    std::lock_guard lock(calls_);
    return ParentOf(all, Now() + options_.setup_timeout).status();
  }

  int64_t rank() const override { return options_.rank; }
  int64_t size() const override { return options_.size; }

  Result<TeamId> Team(std::span<const int64_t> ranks, int64_t lane) override {
    HIR_TRY(watch_.failure());
    HIR_ASSIGN(const std::optional<TeamId> known, teams_.Find(ranks, lane));
    if (known) return *known;
    std::lock_guard lock(calls_);
    const std::string team = Cat("team [", base::JoinInts(ranks, ", "), "]");
    if (ranks.size() > 1) {
      if (const Status made = MakeComm(ranks, team); !made.ok()) {
        watch_.Poison(made.WithContext(team));  // Its members may believe that it exists.
        return watch_.failure();
      }
    }
    const TeamId id = teams_.Add(ranks, lane);
    if (making_ != nullptr) comms_.emplace(id, std::move(making_));
    if (options_.peers == nullptr) return id;
    watch_.SetDeadline(Now() + options_.setup_timeout, team);
    const Status added = options_.peers->AddTeam(id, *teams_.Get(id));
    watch_.SetDeadline(std::nullopt);
    if (added.ok() || added.code() == Code::kUnavailable) return id;  // NCCL takes what is the team's.
    watch_.Poison(added.WithContext(team));
    return watch_.failure();
  }

  Result<std::shared_ptr<const Window>> MakeWindow(TeamId id, int64_t bytes) override {
    HIR_TRY(watch_.failure());
    const TeamInfo* const team = teams_.Get(id);
    if (team == nullptr) return InvalidArgument("a window of no team");
    if (options_.peers == nullptr) return Communicator::MakeWindow(id, bytes);
    watch_.SetDeadline(Now() + options_.setup_timeout, "a window");
    auto made = options_.peers->MakeWindow(id, *team, bytes);
    watch_.SetDeadline(std::nullopt);
    if (made.ok() || made.status().code() == Code::kUnavailable) return made;
    watch_.Poison(made.status());
    return watch_.failure();
  }

  Status Post(const CommDesc& desc, device::Stream& stream) override {
    HIR_TRY(watch_.failure());
    const TeamInfo* const team = teams_.Get(desc.team);
    HIR_TRY(CheckDesc(desc, team, rank()));
    HIR_TRY(CheckStream(stream));
    NcclOp op = {.desc = desc, .team = team, .stream = &stream};
    op.by_peers = options_.peers != nullptr && options_.peers->Takes(desc, *team);
    if (const int64_t bytes = op.by_peers ? 0 : ScratchBytes(desc, *team, rank()); bytes > 0) {
      HIR_ASSIGN(op.scratch, TakeScratch(stream, bytes));
    }
    ops_.push_back(op);
    return in_group_ ? Status() : Launch();
  }

  Status GroupBegin() override {
    if (in_group_) return {Code::kFailedPrecondition, "group: groups do not nest"};
    in_group_ = true;
    return {};
  }
  Status GroupEnd() override {
    if (!in_group_) return {Code::kFailedPrecondition, "group: it has not begun"};
    in_group_ = false;
    return Launch();
  }

  bool can_capture() const override { return options_.is_capturing != nullptr; }

  Status LaunchGraph(device::Graph& graph, device::Stream& stream, const GraphPosts& posts) override {
    if (!can_capture()) return Communicator::LaunchGraph(graph, stream, posts);
    HIR_TRY(watch_.failure());
    HIR_TRY(CheckStream(stream));
    HIR_ASSIGN(InFlight what, EnterStream(stream));
    what.entered_seq = posts.first_seq;
    what.last_seq = posts.last_seq;
    what.graph_posts = posts.count;
    graph.Launch(stream);
    if (options_.peers != nullptr) {
      if (const Status followed = options_.peers->FollowGraph(stream); !followed.ok()) watch_.Poison(followed);
    }
    Follow(stream, std::move(what));
    return watch_.failure();
  }

  void Abort(Status cause) override { watch_.Poison(cause); }
  CommProgress Progress() const override { return watch_.progress(); }

 private:
  bool GivesUp() const { return watch_.poisoned(); }

  // What the teams of `ranks`, which ascend, are split from: made once, by its members alone; the
  // first of them brings the id. (A split concerns every rank of the communicator that is split, so
  // that of all ranks does not serve for a team of some.)
  Result<NcclComm*> ParentOf(const std::vector<int64_t>& ranks, base::Nanos deadline) {
    if (const auto known = parents_.find(ranks); known != parents_.end()) return known->second.get();
    const std::string key = Cat("g", options_.generation, "/nccl/", base::JoinInts(ranks, ","));
    ncclUniqueId id = {};
    if (ranks[0] == rank()) {
      HIR_ASSIGN(id, NcclComm::NewId(nccl_));
      HIR_TRY(rendezvous_.Publish(key, {id.internal, sizeof id.internal}));
    } else {
      const Result<std::string> bytes = rendezvous_.Get(key, deadline - Now());
      if (!bytes.ok()) return bytes.status().WithContext(Cat("nccl: rank ", ranks[0], " did not come"));
      if (bytes->size() != sizeof id.internal) return Internal(Cat("nccl: ", key, " holds no id"));
      std::memcpy(id.internal, bytes->data(), sizeof id.internal);
    }
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    HIR_ASSIGN(std::unique_ptr<NcclComm> comm,
               NcclComm::Join(nccl_, id, {.size = static_cast<int>(ranks.size()), .rank = static_cast<int>(place)},
                              deadline, [this] { return GivesUp(); }));
    return parents_.emplace(ranks, std::move(comm)).first->second.get();
  }

  // Leaves the communicator of a new team in making_.
  Status MakeComm(std::span<const int64_t> ranks, const std::string& team) {
    const base::Nanos deadline = Now() + options_.setup_timeout;
    std::vector<int64_t> ascending(ranks.begin(), ranks.end());
    std::sort(ascending.begin(), ascending.end());
    HIR_ASSIGN(NcclComm* const parent, ParentOf(ascending, deadline));
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    HIR_ASSIGN(making_, parent->SplitAll(static_cast<int>(place), deadline, [this] { return GivesUp(); }));
    watch_.SetDeadline(deadline, team);  // The calls wait for peers.
    const Status met = Greet(*making_, static_cast<int64_t>(ranks.size()), place, deadline);
    watch_.SetDeadline(std::nullopt);
    return met;
  }

  // Sends every other member something and waits for theirs, so that all are connected: a post
  // that had to connect first would wait for its peers.
  Status Greet(const NcclComm& comm, int64_t size, int64_t place, base::Nanos deadline) {
    const auto stream = static_cast<cudaStream_t>(options_.native_stream(*stream_));
    std::byte* const out = greetings_->buffer().data;
    std::byte* const in = out + kGreetingBytes * options_.size;
    stream_->Fill({out, kGreetingBytes * options_.size}, 0, 8);
    HIR_TRY(NcclStatus(nccl_, nccl_.GroupStart(), "ncclGroupStart", nullptr));
    Status status;
    for (int64_t peer = 0; peer < size && status.ok(); ++peer) {
      if (peer == place) continue;
      const auto to = static_cast<int>(peer);
      status = NcclStatus(nccl_,
                          nccl_.Send(out + peer * kGreetingBytes, kGreetingBytes, ncclUint8, to, comm.handle(), stream),
                          "ncclSend", comm.handle());
      if (!status.ok()) break;
      status = NcclStatus(nccl_,
                          nccl_.Recv(in + peer * kGreetingBytes, kGreetingBytes, ncclUint8, to, comm.handle(), stream),
                          "ncclRecv", comm.handle());
    }
    const ncclResult_t ended = nccl_.GroupEnd();
    HIR_TRY(status);
    HIR_TRY(NcclStatus(nccl_, ended, "ncclGroupEnd", comm.handle()));
    HIR_TRY(comm.Await("ncclGroupEnd", deadline, [this] { return GivesUp(); }));
    return stream_->Synchronize(deadline - Now());
  }

  Result<std::byte*> TakeScratch(device::Stream& stream, int64_t bytes) {
    Scratch& scratch = scratch_[&stream];
    const int64_t have = scratch.memory == nullptr ? 0 : scratch.memory->buffer().bytes;
    if (scratch.used + bytes > have) {
      HIR_ASSIGN(std::unique_ptr<device::Allocation> larger, options_.device->Allocate(std::max(bytes, 2 * have)));
      if (scratch.memory != nullptr)
        (scratch.in_graph ? of_graphs_ : scratch.replaced).push_back(std::move(scratch.memory));
      scratch.memory = std::move(larger);
      scratch.used = 0;
      scratch.in_graph = false;
    }
    std::byte* const data = scratch.memory->buffer().data + scratch.used;
    scratch.used += base::CeilDiv(bytes, device::kAlignmentBytes) * device::kAlignmentBytes;
    return data;
  }

  // What failed before on a stream; asking the device would cost more than all of a post.
  Status CheckStream(const device::Stream& stream) {
    const Status failed = stream.known_status();
    if (failed.ok()) return failed;
    watch_.Poison(failed);
    return watch_.failure();
  }

  bool IsCaptured(const NcclOp& op) const {
    return options_.is_capturing != nullptr && options_.is_capturing(*op.stream);
  }

  // Starts ops_ together.
  Status Launch() {
    if (ops_.empty()) return {};
    const bool captured = IsCaptured(ops_[0]);
    Status status = captured ? CheckCapture() : Enter();
    if (status.ok()) {
      for (const NcclOp& op : ops_) {
        if (!op.by_peers) QueueCopies(op, rank());
        if (op.by_peers && status.ok()) status = options_.peers->Queue(op.desc, *op.team, *op.stream);
      }
      if (status.ok()) status = Issue();
    }
    if (!status.ok()) {
      // The library says what it met; the device, why.
      const Status cause = captured ? Status() : ops_[0].stream->status();
      watch_.Poison(cause.ok() ? status : cause);
    }
    for (auto& [stream, what] : starting_) {
      if (const auto scratch = scratch_.find(stream); scratch != scratch_.end()) {
        scratch->second.used = 0;
        what.scratch = std::exchange(scratch->second.replaced, {});
      }
      Follow(*stream, std::move(what));
    }
    if (captured) KeepScratch();
    starting_.clear();
    ops_.clear();
    return watch_.failure();
  }

  // What is captured is followed when its graph is launched.
  Status CheckCapture() const {
    if (std::all_of(ops_.begin(), ops_.end(), [this](const NcclOp& op) { return IsCaptured(op); })) {
      return {};
    }
    return {Code::kFailedPrecondition,
            Cat(CommName(ops_[0].desc), ": a group is captured on all of its streams, or on none")};
  }
  // A graph may run as long as this lives.
  void KeepScratch() {
    for (const NcclOp& op : ops_) {
      if (op.scratch == nullptr) continue;
      Scratch& scratch = scratch_.at(op.stream);
      scratch.used = 0;
      scratch.in_graph = true;
      std::move(scratch.replaced.begin(), scratch.replaced.end(), std::back_inserter(of_graphs_));
      scratch.replaced.clear();
    }
  }

  // The begin of something on `stream`, which Follow follows to its end.
  Result<InFlight> EnterStream(device::Stream& stream) {
    HIR_ASSIGN(InFlight what, watch_.Take());
    const auto last = marks_.find(&stream);
    what.follows = options_.work_mark != nullptr && last != marks_.end() && last->second == options_.work_mark(stream);
    if (!what.follows) stream.Record(*what.entered);
    what.over = options_.begin_work(stream);
    what.team = nullptr;
    what.graph_posts = 0;
    return what;
  }
  void Follow(device::Stream& stream, InFlight what) {
    stream.Record(*what.left);
    if (options_.work_mark != nullptr) marks_[&stream] = options_.work_mark(stream);
    watch_.Follow(stream, std::move(what));
  }

  // Begins on each of the streams of ops_.
  Status Enter() {
    for (const NcclOp& op : ops_) {
      const auto known =
          std::find_if(starting_.begin(), starting_.end(), [&](const auto& one) { return one.first == op.stream; });
      if (known != starting_.end()) {
        known->second.entered_seq = known->second.last_seq = op.desc.seq;
        continue;
      }
      HIR_ASSIGN(InFlight taken, EnterStream(*op.stream));
      taken.first = op.desc;
      taken.team = op.team;
      taken.entered_seq = taken.last_seq = op.desc.seq;
      starting_.emplace_back(op.stream, std::move(taken));
    }
    return {};
  }

  bool GoesToNccl(const NcclOp& op) const { return !op.by_peers && NeedsNccl(op, rank()); }

  Status Issue() {
    if (std::none_of(ops_.begin(), ops_.end(), [this](const NcclOp& op) { return GoesToNccl(op); })) {
      return {};
    }
    std::lock_guard lock(calls_);
    if (watch_.poisoned()) return watch_.failure();
    HIR_TRY(NcclStatus(nccl_, nccl_.GroupStart(), "ncclGroupStart", nullptr));
    Status status;
    for (NcclOp& op : ops_) {
      if (!GoesToNccl(op) || !status.ok()) continue;
      op.comm = comms_.at(op.desc.team)->handle();
      const auto stream = static_cast<cudaStream_t>(options_.native_stream(*op.stream));
      status = IssueCalls(nccl_, op, rank(), stream);
      if (!status.ok()) status = status.WithContext(CommName(op.desc));
    }
    const ncclResult_t ended = nccl_.GroupEnd();
    HIR_TRY(status);
    HIR_TRY(NcclStatus(nccl_, ended, "ncclGroupEnd", nullptr));
    if (ended == ncclSuccess) return {};
    const base::Nanos deadline = Now() + options_.op_timeout;
    for (const NcclOp& op : ops_) {
      if (op.comm == nullptr) continue;
      HIR_TRY(comms_.at(op.desc.team)->Await(CommName(op.desc), deadline, [this] { return GivesUp(); }));
    }
    return {};
  }

  // The watch's thread.
  Status AsyncError() {
    const std::unique_lock lock(calls_, std::try_to_lock);
    if (!lock.owns_lock()) return {};  // A post is being made, and will see it.
    for (const auto& [id, comm] : comms_) {
      if (Status error = comm->AsyncError(); !error.ok()) return error;
    }
    return {};
  }

  // The watch's thread, once. All at the same time: one alone may wait for what another holds up.
  void AbortComms() {
    if (options_.peers != nullptr) {
      options_.peers->Abort();
      // What goes on behind one of NCCL's would send garbage, too.
      std::this_thread::sleep_for(kPeerHoldBack);
    }
    // Without the lock NCCL is told to end what another thread is in.
    std::unique_lock lock(calls_, std::defer_lock);
    for (const base::Nanos end = Now() + kLockForAbort; !lock.try_lock() && Now() < end;)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::vector<std::jthread> threads;
    for (auto& [id, comm] : comms_) threads.emplace_back([&comm = *comm] { comm.Abort(); });
    for (auto& [ranks, comm] : parents_) threads.emplace_back([&comm = *comm] { comm.Abort(); });
    if (making_ != nullptr) threads.emplace_back([this] { making_->Abort(); });
  }

  const NcclOptions options_;
  Rendezvous& rendezvous_;
  const NcclLibrary nccl_;
  TeamTable teams_;
  std::unique_ptr<device::Stream> stream_;         // For greetings.
  std::unique_ptr<device::Allocation> greetings_;  // Out, then in; kGreetingBytes a rank.
  std::map<device::Stream*, Scratch> scratch_;
  std::vector<std::unique_ptr<device::Allocation>> of_graphs_;  // Scratch that was replaced, in graphs.
  std::map<device::Stream*, int64_t> marks_;                    // Of the latest end of a post.
  bool in_group_ = false;
  std::vector<NcclOp> ops_;                                     // Of the group, or the one that is being posted.
  std::vector<std::pair<device::Stream*, InFlight>> starting_;  // Empty but in Launch.

  // Held while NCCL is called, by the thread that posts or the watch's. Only Team's calls may wait
  // for a peer.
  std::mutex calls_;
  // By ranks, ascending. Guarded by calls_, as are the next.
  std::map<std::vector<int64_t>, std::unique_ptr<NcclComm>> parents_;
  std::map<TeamId, std::unique_ptr<NcclComm>> comms_;
  std::unique_ptr<NcclComm> making_;  // Of a team that is being made.

  Watch watch_;  // Last: its thread uses the above.
};

Status CheckOptions(const NcclOptions& options) {
  if (options.size < 1) return InvalidArgument(Cat("nccl: size is ", options.size));
  if (options.rank < 0 || options.rank >= options.size) {
    return InvalidArgument(Cat("nccl: rank ", options.rank, " is not in [0, ", options.size, ")"));
  }
  if (options.device == nullptr || options.native_stream == nullptr || options.begin_work == nullptr) {
    return InvalidArgument("nccl: no device, or not all of what its streams can do");
  }
  return {};
}

}  // namespace

bool HasNccl() { return true; }

Result<std::unique_ptr<Communicator>> CreateNccl(const NcclOptions& options, Rendezvous& rendezvous) {
  HIR_TRY(CheckOptions(options));
  HIR_ASSIGN(NcclLibrary nccl, LoadNccl(options.library, options.nvlink_multicast));
  auto communicator = std::make_unique<NcclCommunicator>(options, rendezvous, std::move(nccl));
  HIR_TRY(communicator->Start());
  return std::unique_ptr<Communicator>(std::move(communicator));
}

}  // namespace hir::comm
