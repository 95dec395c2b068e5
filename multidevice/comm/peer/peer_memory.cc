#include "multidevice/comm/peer/peer_memory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/checked.h"
#include "csrc/base/text.h"
#include "csrc/device/cuda/cuda_device.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/peer/kernels_text.h"

namespace hir::comm {
namespace {

using base::Cat;

constexpr std::string_view kPushKernel = "peer.push", kReduceKernel = "peer.reduce";
// Two CTAs of a push run on a multiprocessor. One push takes a quarter of them: those of other lanes, which wait for
// other ranks like it, find room beside it.
constexpr int64_t kMultiprocessorsPerPushCta = 2;
constexpr int64_t kReduceElementBytes = 16;  // What a thread reads at a time.
// An aborted wait may stand in front of others, each taking its word again.
constexpr auto kReleaseEvery = std::chrono::microseconds(200);
// After an abort, what is queued ends within this time.
constexpr base::Nanos kEndsWithin = std::chrono::seconds(2);

base::Nanos Now() { return base::Clock::Steady().Now(); }

int64_t AddressOf(const std::byte* data) { return reinterpret_cast<int64_t>(data); }

// Whether all ranks say that they are ready: empty words; else the first one's.
Status Agree(const PeerOptions& options, const std::string& key, const Status& mine, Rendezvous& rendezvous) {
  const base::Nanos end = Now() + options.setup_timeout;
  HIR_TRY(rendezvous.Publish(Cat(key, options.rank), mine.ok() ? "" : mine.ToString()));
  for (int64_t other = 0; other < options.size; ++other) {
    if (std::ranges::binary_search(options.absent, other)) continue;
    HIR_ASSIGN(const std::string said, rendezvous.Get(Cat(key, other), end - Now()));
    if (!said.empty()) return Unavailable(Cat("rank ", other, ": ", said));
  }
  return {};
}

}  // namespace

class PeerWindow final : public Window {
 public:
  PeerWindow(std::unique_ptr<device::Allocation> own, std::vector<std::unique_ptr<device::Allocation>> others)
      : own_(std::move(own)), others_(std::move(others)) {}
  device::Buffer own() const override { return own_->buffer(); }
  device::Buffer Of(int64_t place) const { return others_[static_cast<size_t>(place)]->buffer(); }

 private:
  const std::unique_ptr<device::Allocation> own_;
  const std::vector<std::unique_ptr<device::Allocation>> others_;  // By place; null in this rank's.
};

// Pushes of more than a piece run beside the receipts, on a stream of their own.
struct PeerMemory::Side {
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<device::Event> fork, join;
};

struct PeerMemory::Phase {
  struct Message {
    int64_t place;
    std::byte* data;
    int64_t bytes;
  };
  std::vector<Message> sends = {}, receives = {};
  bool in_place = false;  // What is received overwrites what is sent: then they take turns.
  // Where set, what is received is not kept, but combined with `own` in `dst`; all messages are as long.
  const CommDesc* reduces = nullptr;
  std::byte* own = nullptr;
  std::byte* dst = nullptr;
  int64_t bytes = 0;
};

Result<std::unique_ptr<PeerMemory>> PeerMemory::Create(const PeerOptions& options, Rendezvous& rendezvous) {
  HIR_CHECK(options.device != nullptr && options.compile != nullptr);
  std::unique_ptr<PeerMemory> peers(new PeerMemory(options));
  const std::string key = Cat("g", options.generation, "/peers/");
  HIR_ASSIGN(peers->descriptors_, DescriptorExchange::Create(options.rank, options.size, Cat(key, "at/"), rendezvous,
                                                             options.setup_timeout, options.absent));
  HIR_TRY(Agree(options, Cat(key, "ready/"), peers->Prepare(), rendezvous));
  return peers;
}

Status PeerMemory::Prepare() {
  device::Device& device = *options_.device;
  HIR_ASSIGN(stream_, device.CreateUrgentStream());
  HIR_ASSIGN(const device::CudaFacts facts, device::FactsOf(device));
  multiprocessors_ = facts.multiprocessors;
  HIR_ASSIGN(const std::string cubin, options_.compile(Cat(kPeerIntrinsics, kPeerText), facts.architecture));
  const auto info = [](std::string_view name, std::string_view symbol) {
    return device::CudaKernelInfo{
        .name = std::string(name), .symbol = std::string(symbol), .threads = kPeerThreads, .num_slots = kPeerSlots};
  };
  const std::array infos = {info(kPushKernel, "hir_peer_push"), info(kReduceKernel, "hir_peer_reduce")};
  HIR_ASSIGN(source_, device::LoadCubin(device, cubin, infos));
  HIR_ASSIGN(push_, source_->Get(kPushKernel));
  HIR_ASSIGN(reduce_, source_->Get(kReduceKernel));
  return {};
}

PeerMemory::PeerMemory(const PeerOptions& options) : options_(options) {}

PeerMemory::~PeerMemory() {
  if (aborted_) {  // Waits of what is queued are let go until all of it is over: it uses this memory.
    const base::Nanos end = Now() + kEndsWithin;
    for (const auto& [id, team] : teams_) (void)team->behind->Synchronize(std::max(end - Now(), base::Nanos())).ok();
    for (const auto& [stream, event] : graph_ends_) (void)event->Synchronize(std::max(end - Now(), base::Nanos())).ok();
  }
  release_ = {};
  if (stream_ != nullptr) (void)stream_->Synchronize(options_.setup_timeout).ok();
}

Status PeerMemory::AddTeam(TeamId id, const TeamInfo& info) {
  if (info.size() < 2) return {};
  const std::string name = Cat("team of lane ", info.lane, " of ", base::JoinInts(info.ranks, ","));
  const int64_t ranks = info.size(), bytes = options_.team_bytes;
  Status why;
  device::SharedMemory shared;
  if (ranks > kPeerRanksMax || bytes < PeerLayout::LeastBytes(ranks)) {
    why = Unimplemented(Cat("peer memory of ", ranks, " ranks in ", bytes, " bytes; at most ", kPeerRanksMax,
                            " ranks, at least ", PeerLayout::LeastBytes(ranks), " bytes"));
  } else if (Result<device::SharedMemory> made = device::AllocateShared(*options_.device, bytes); made.ok()) {
    shared = *std::move(made);
    why = Clear(shared.memory->buffer(), PeerLayout(ranks, bytes));
  } else {
    why = made.status();
  }
  std::unique_ptr<PeerTeam> team;
  if (why.ok()) {
    team = std::make_unique<PeerTeam>(PeerTeam{.layout = PeerLayout(ranks, bytes), .place = info.index});
    Result<std::unique_ptr<device::Event>> behind = options_.device->CreateEvent();
    why = behind.status();
    if (behind.ok()) team->behind = *std::move(behind);
  }
  HIR_ASSIGN(auto others, MapAll(name, info, bytes, shared.fd.get(), why));
  if (!why.ok()) ++num_refused_;
  HIR_TRY(why);
  team->others = std::move(others);
  team->own = std::move(shared.memory);
  std::lock_guard lock(mutex_);
  teams_.emplace(id, std::move(team));
  return {};
}

Result<std::vector<std::unique_ptr<device::Allocation>>> PeerMemory::MapAll(std::string_view name, const TeamInfo& info,
                                                                            int64_t bytes, int fd, Status& mine) {
  HIR_ASSIGN(const std::vector<base::Fd> fds,
             descriptors_->Swap(name, info.ranks, mine.ok() ? fd : -1, options_.setup_timeout));
  std::vector<std::unique_ptr<device::Allocation>> others;
  for (int64_t place = 0; place < info.size(); ++place) {
    others.emplace_back();
    if (place == info.index || !mine.ok()) continue;
    const base::Fd& theirs = fds[static_cast<size_t>(place)];
    if (!theirs.valid()) {
      mine = Unavailable(Cat("rank ", info.ranks[static_cast<size_t>(place)], " has no memory for it"));
      continue;
    }
    Result<std::unique_ptr<device::Allocation>> mapped = device::MapShared(*options_.device, theirs.get(), bytes);
    if (!mapped.ok()) mine = mapped.status();
    if (mapped.ok()) others.back() = *std::move(mapped);
  }
  // All of them use it, or none.
  HIR_ASSIGN(const bool all,
             descriptors_->AllAgree(Cat(name, " ready"), info.ranks, mine.ok(), options_.setup_timeout));
  if (!all) {
    mine = Unavailable(std::string(mine.ok() ? "another member cannot reach the memory of all" : mine.message()));
  }
  return others;
}

Result<std::shared_ptr<const Window>> PeerMemory::MakeWindow(TeamId id, const TeamInfo& info, int64_t bytes) {
  if (!teams_.contains(id)) return Status(Code::kUnavailable, "a team without peer memory has no windows");
  // Members number their windows alike: each is made by all of them.
  const std::string name = Cat("window ", teams_.at(id)->num_windows++, " of lane ", info.lane, " of ",
                               base::JoinInts(info.ranks, ","), ", ", bytes, " bytes");
  Result<device::SharedMemory> shared = device::AllocateShared(*options_.device, bytes);
  Status why = shared.status();
  HIR_ASSIGN(auto others, MapAll(name, info, bytes, shared.ok() ? shared->fd.get() : -1, why));
  HIR_TRY(why);
  return std::shared_ptr<const Window>(std::make_shared<PeerWindow>(std::move(shared->memory), std::move(others)));
}

// No message has arrived, and every piece is free.
Status PeerMemory::Clear(device::Buffer memory, const PeerLayout& layout) {
  std::lock_guard lock(mutex_);
  stream_->Fill(memory.Slice(0, layout.piece(1, 0, 0)), 0, 8);
  for (const int64_t offset : layout.free_words()) stream_->Fill(memory.Slice(offset, 8), 1, 8);
  return stream_->Synchronize(options_.setup_timeout);
}

bool PeerMemory::Takes(const CommDesc& desc, const TeamInfo& team) const {
  const auto found = teams_.find(desc.team);
  return found != teams_.end() &&
         PathOf(desc, team.size(), found->second->layout.push_bytes(), options_.paths) != PeerPath::kNone;
}

Status PeerMemory::Queue(const CommDesc& desc, const TeamInfo& info, device::Stream& stream) {
  PeerTeam& team = *teams_.at(desc.team);
  if (team.last != nullptr && team.last != &stream) stream.Wait(*team.behind);
  switch (PathOf(desc, info.size(), team.layout.push_bytes(), options_.paths)) {
    case PeerPath::kPush: QueuePush(desc, team, stream); break;
    case PeerPath::kCopies: HIR_TRY(QueueCopies(desc, info, team, stream)); break;
    case PeerPath::kPuts: QueuePut(desc, info, team, stream); break;
    case PeerPath::kNone: HIR_CHECK(false);
  }
  stream.Record(*team.behind);
  team.last = &stream;
  return {};
}

void PeerMemory::QueuePush(const CommDesc& desc, const PeerTeam& team, device::Stream& stream) const {
  const int64_t bytes = ChunkBytes(desc), ranks = team.ranks();
  const bool chunked_src = desc.type == CommType::kReduceScatter || desc.type == CommType::kAllToAll;
  std::array<int64_t, kPeerSlots> slots = {};
  slots[kPushDst] = AddressOf(desc.dst.data);
  slots[kPushSrc] = AddressOf(desc.src.data);
  slots[kPushBytes] = bytes;
  slots[kPushSrcStride] = chunked_src ? bytes : 0;
  slots[kPushDstStride] = bytes;
  slots[kPushReduce] = Reduces(desc.type) ? static_cast<int64_t>(desc.reduce) : -1;
  slots[kPushDType] = static_cast<int64_t>(desc.dtype);
  slots[kPushRanks] = ranks;
  slots[kPushPlace] = team.place;
  slots[kPushControl] = AddressOf(team.WordAt(team.place, team.layout.control()).data);
  slots[kPushUnits] = team.layout.push_units();
  slots[kPushNanosMax] = (options_.op_timeout + std::chrono::seconds(1)).count();
  for (int64_t member = 0; member < ranks; ++member) {
    slots[static_cast<size_t>(kPushRooms + member)] = AddressOf(team.WordAt(member, team.layout.rooms()).data);
  }
  const int64_t units = base::CeilDiv(bytes, int64_t{8});
  stream.Launch(*push_, {slots.data(), static_cast<size_t>(kPushRooms + ranks)},
                std::min(base::CeilDiv(units, int64_t{kPeerThreads}),
                         std::max<int64_t>(multiprocessors_ / kMultiprocessorsPerPushCta, 1)));
}

// The receiver says that its memory may be written, once its stream is there; words are taken and given in turn.
void PeerMemory::QueuePut(const CommDesc& desc, const TeamInfo& info, const PeerTeam& team,
                          device::Stream& stream) const {
  const int64_t bytes = ChunkBytes(desc), place = team.place;
  if (desc.to == options_.rank) {
    if (desc.src.data != desc.dst.data) stream.Copy({desc.dst.data, bytes}, {desc.src.data, bytes});
    return;
  }
  const bool receives = desc.from != kNoRank;
  const int64_t from = receives ? *info.IndexOf(desc.from) : 0;
  if (receives) stream.Fill(team.WordAt(from, team.layout.ready(place)), 1, 8);
  if (desc.to != kNoRank) {
    const int64_t to = *info.IndexOf(desc.to);
    const device::Buffer theirs = static_cast<const PeerWindow&>(*desc.window).Of(to);
    HIR_CHECK(desc.put_at >= 0 && desc.put_at + bytes <= theirs.bytes);
    device::TakeWord(stream, team.WordAt(place, team.layout.ready(to)));
    stream.Copy(theirs.Slice(desc.put_at, bytes), {desc.src.data, bytes});
    stream.Fill(team.WordAt(to, team.layout.written(place)), 1, 8);
  }
  if (receives) device::TakeWord(stream, team.WordAt(place, team.layout.written(from)));
}

Result<PeerMemory::Side*> PeerMemory::SideOf(device::Stream& stream) {
  std::unique_ptr<Side>& side = sides_[&stream];
  if (side == nullptr) {
    auto made = std::make_unique<Side>();
    HIR_ASSIGN(made->stream, options_.device->CreateUrgentStream());
    HIR_ASSIGN(made->fork, options_.device->CreateEvent());
    HIR_ASSIGN(made->join, options_.device->CreateEvent());
    side = std::move(made);
  }
  return side.get();
}

Status PeerMemory::QueueCopies(const CommDesc& desc, const TeamInfo& info, const PeerTeam& team,
                               device::Stream& stream) {
  const int64_t bytes = ChunkBytes(desc), ranks = team.ranks(), place = team.place;
  std::byte* const src = desc.src.data;
  std::byte* const dst = desc.dst.data;
  const auto copy_own = [&](std::byte* to, std::byte* from, int64_t size) {
    if (to != from) stream.Copy({to, size}, {from, size});
  };
  Phase phase;
  phase.in_place = src == dst && (desc.type == CommType::kAllToAll || desc.type == CommType::kCollectivePermute);
  // Every rank begins with another one: no one is written by all.
  const auto for_others = [&](const auto& add) {
    for (int64_t i = 1; i < ranks; ++i) add((place + i) % ranks, (place - i + ranks) % ranks);
  };
  switch (desc.type) {
    case CommType::kAllgather:
      copy_own(dst + place * bytes, src, bytes);
      for_others([&](int64_t to, int64_t from) {
        phase.sends.push_back({to, src, bytes});
        phase.receives.push_back({from, dst + from * bytes, bytes});
      });
      break;
    case CommType::kAllToAll:
      copy_own(dst + place * bytes, src + place * bytes, bytes);
      for_others([&](int64_t to, int64_t from) {
        phase.sends.push_back({to, src + to * bytes, bytes});
        phase.receives.push_back({from, dst + from * bytes, bytes});
      });
      break;
    case CommType::kCollectivePermute:
      if (desc.to == options_.rank) {
        copy_own(dst, src, bytes);
        return {};
      }
      if (desc.to != kNoRank) phase.sends.push_back({*info.IndexOf(desc.to), src, bytes});
      if (desc.from != kNoRank) phase.receives.push_back({*info.IndexOf(desc.from), dst, bytes});
      break;
    case CommType::kReduceScatter:
      phase.reduces = &desc;
      phase.own = src + place * bytes;
      phase.dst = dst;
      phase.bytes = bytes;
      for_others([&](int64_t to, int64_t from) {
        phase.sends.push_back({to, src + to * bytes, bytes});
        phase.receives.push_back({from, nullptr, bytes});
      });
      break;
    case CommType::kAllreduce: {
      // Each reduces a part, then sends it to all.
      const int64_t grain = device::kAlignmentBytes;
      const int64_t part = base::CeilDiv(base::CeilDiv(bytes, ranks), grain) * grain;
      const auto begin = [&](int64_t member) { return std::min(member * part, bytes); };
      const auto size = [&](int64_t member) { return begin(member + 1) - begin(member); };
      Phase gather;
      phase.reduces = &desc;
      phase.own = src + begin(place);
      phase.dst = dst + begin(place);
      phase.bytes = size(place);
      for_others([&](int64_t to, int64_t from) {
        phase.sends.push_back({to, src + begin(to), size(to)});
        phase.receives.push_back({from, nullptr, size(place)});
        gather.sends.push_back({to, dst + begin(place), size(place)});
        gather.receives.push_back({from, dst + begin(from), size(from)});
      });
      HIR_TRY(QueuePhase(phase, team, stream));
      return QueuePhase(gather, team, stream);
    }
    case CommType::kGather:
    case CommType::kScatter:
    case CommType::kReduce:
    case CommType::kBroadcast:
    case CommType::kSendRecv: HIR_CHECK(false);  // PathOf refuses them.
  }
  return QueuePhase(phase, team, stream);
}

// Piece by piece, in rounds, from the first half each time: so ranks need not agree on anything but the sizes, and a
// graph may do the same again at any time.
Status PeerMemory::QueuePhase(const Phase& phase, const PeerTeam& team, device::Stream& stream) {
  const int64_t piece = team.layout.piece_bytes(), place = team.place;
  int64_t longest = phase.bytes;
  for (const Phase::Message& message : phase.sends) longest = std::max(longest, message.bytes);
  for (const Phase::Message& message : phase.receives) longest = std::max(longest, message.bytes);
  const int64_t rounds = base::CeilDiv(longest, piece);
  Side* side = nullptr;
  if (rounds > 1 && !phase.in_place) {
    HIR_ASSIGN(side, SideOf(stream));
    stream.Record(*side->fork);
    side->stream->Wait(*side->fork);
  }
  device::Stream& out = side == nullptr ? stream : *side->stream;
  for (int64_t round = 0; round < rounds; ++round) {
    const auto half = static_cast<int>(round % 2);
    const int64_t offset = round * piece;
    const auto left = [&](int64_t bytes) { return std::clamp<int64_t>(bytes - offset, 0, piece); };
    for (const auto& [to, data, all] : phase.sends) {
      const int64_t bytes = left(all);
      if (bytes == 0) continue;
      device::TakeWord(out, team.WordAt(place, team.layout.free(to, half)));
      out.Copy(team.At(to, team.layout.piece(to, place, half), bytes), {data + offset, bytes});
      out.Fill(team.WordAt(to, team.layout.arrived(place, half)), 1, 8);
    }
    for (const auto& [from, data, all] : phase.receives) {
      const int64_t bytes = left(all);
      if (bytes == 0) continue;
      device::TakeWord(stream, team.WordAt(place, team.layout.arrived(from, half)));
      if (phase.reduces != nullptr) continue;
      stream.Copy({data + offset, bytes}, team.At(place, team.layout.piece(place, from, half), bytes));
      stream.Fill(team.WordAt(from, team.layout.free(place, half)), 1, 8);
    }
    if (phase.reduces == nullptr || left(phase.bytes) == 0) continue;
    ReducePiece(phase, team, offset, left(phase.bytes), half, stream);
    for (const auto& message : phase.receives) {
      stream.Fill(team.WordAt(message.place, team.layout.free(place, half)), 1, 8);
    }
  }
  if (side != nullptr) {
    side->stream->Record(*side->join);
    stream.Wait(*side->join);
  }
  return {};
}

void PeerMemory::ReducePiece(const Phase& phase, const PeerTeam& team, int64_t offset, int64_t bytes, int half,
                             device::Stream& stream) const {
  std::array<int64_t, kPeerSlots> slots = {};
  slots[kReduceDst] = AddressOf(phase.dst + offset);
  slots[kReduceCount] = bytes / DTypeBytes(phase.reduces->dtype);
  slots[kReduceOp] = static_cast<int64_t>(phase.reduces->reduce);
  slots[kReduceDType] = static_cast<int64_t>(phase.reduces->dtype);
  slots[kReduceRanks] = team.ranks();
  for (int64_t member = 0; member < team.ranks(); ++member) {
    const std::byte* const src = member == team.place
                                     ? phase.own + offset
                                     : team.At(team.place, team.layout.piece(team.place, member, half), bytes).data;
    slots[static_cast<size_t>(kReduceSrcs + member)] = AddressOf(src);
  }
  stream.Launch(*reduce_, {slots.data(), static_cast<size_t>(kReduceSrcs + team.ranks())},
                std::min(base::CeilDiv(bytes, kPeerThreads * kReduceElementBytes), 2 * multiprocessors_));
}

Status PeerMemory::FollowGraph(device::Stream& stream) {
  std::unique_ptr<device::Event>& end = graph_ends_[&stream];
  if (end == nullptr) {
    HIR_ASSIGN(end, options_.device->CreateEvent());
  }
  stream.Record(*end);
  return {};
}

void PeerMemory::Abort() {
  if (aborted_.exchange(true)) return;
  std::lock_guard lock(mutex_);
  release_ = std::jthread([this, from = Now() + kPeerHoldBack](const std::stop_token& stop) {
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kReleaseEvery)) {
      if (Now() >= from) Release();
    }
  });
}

// Every word is given: a wait takes it and goes on, and one behind it waits for the next time.
void PeerMemory::Release() {
  std::lock_guard lock(mutex_);
  for (const auto& [id, team] : teams_) {
    for (const int64_t offset : team->layout.words()) stream_->Fill(team->WordAt(team->place, offset), 1, 8);
    stream_->Fill(team->WordAt(team->place, team->layout.control() + 8 * kPushAbort), 1, 8);
  }
  (void)stream_->Synchronize(options_.setup_timeout).ok();  // One that cannot be queued any more is over.
}

}  // namespace hir::comm
