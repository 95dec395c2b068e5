// Communications between the GPUs of this machine, a process each: each of the ten, called as NCCL's own calls, and in
// turn posted through comm/nccl, run by the evaluator, and replayed by it from a graph, beside a graph of NCCL's own
// calls. What counts is our share of the bandwidth of large messages, and what we add to a small one, on the device and
// on the host. The way "nccl_graph" is NCCL alone: its calls replayed from a graph beside its calls.
//
// `collectives_gpu [--ranks N] [--pairs N] [--types A,B] [--sizes BYTES,BYTES] [--ways post,run,graph,nccl_graph]
//     [--paths chosen|nccl|pushes|copies] [--json FILE]`
//
// Both sides of a pair are timed alike, one right after the other, by events around calls that are queued back to back
// behind one that is not timed: that one lets the devices start together, and the host get ahead of them.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/measurement.h"
#include "benchmarks/payload.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/eval/evaluator.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/nccl/library.h"
#include "multidevice/comm/nccl/nccl.h"
#include "multidevice/comm/nccl/nccl_comm.h"
#include "multidevice/comm/peer/peer_memory.h"
#include "multidevice/comm/team.h"
#include "multidevice/rendezvous/forked.h"

namespace hir {
namespace {

using base::Cat;
using comm::CommType;

constexpr base::Nanos kLong = std::chrono::seconds(60);
constexpr int kPostsInGraph = 20;
constexpr std::array<std::string_view, 4> kWays = {"post", "run", "graph", "nccl_graph"};
struct Paths {
  std::string_view name;
  comm::PeerPaths paths;
};
// Which way comm/nccl takes: as chosen, or one way as far as it goes.
constexpr std::array<Paths, 4> kPaths = {
    Paths{"chosen", {}}, Paths{"nccl", {.push_bytes_max = 0, .reduce_scatter_bytes_min = comm::kNoBytes}},
    Paths{"pushes", {.push_bytes_max = comm::kNoBytes, .reduce_scatter_bytes_min = comm::kNoBytes}},
    Paths{"copies", {.push_bytes_max = 0, .copies_alone_bytes_min = 1}}};

struct Arguments {
  int64_t ranks = 0;
  int pairs = 9;
  std::vector<CommType> types = {std::begin(comm::kAllCommTypes), std::end(comm::kAllCommTypes)};
  std::vector<int64_t> sizes = {4 << 10, 1 << 20, 64 << 20, 256 << 20, int64_t{1} << 30};
  std::vector<std::string> ways = {kWays.begin(), kWays.end()};
  std::string paths = "chosen";
  std::string json = {};
  std::string command = {};
};

// One kind of communication at one size. `bytes`: of the larger of src and dst.
struct Case {
  CommType type = CommType::kAllreduce;
  int64_t bytes = 0;
};

// Whether src, dst hold a chunk for each rank.
bool ManySrc(CommType type) {
  return type == CommType::kScatter || type == CommType::kReduceScatter || type == CommType::kAllToAll;
}
bool ManyDst(CommType type) {
  return type == CommType::kGather || type == CommType::kAllgather || type == CommType::kAllToAll;
}

// A host program of `posts` communications of one kind.
std::string ProgramText(const Case& c, int64_t ranks, int posts) {
  std::vector<int64_t> all, turned;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    all.push_back(rank);
    turned.push_back((rank + 1) % ranks);
  }
  const int64_t chunk = c.bytes / 4 / ranks;
  const std::string whole = Cat("f32[", ranks, ", ", chunk, "]"), part = Cat("f32[", chunk, "]");
  const bool chunked = ManySrc(c.type) || ManyDst(c.type);
  std::string_view mesh = "m", dim = "none", to = "m";
  if (comm::HasHalves(c.type)) {
    to = "turned";
  } else if (c.type == CommType::kScatter || c.type == CommType::kBroadcast) {
    mesh = "root";
  } else if (comm::IsRooted(c.type)) {
    to = "root";
  } else {
    dim = "mesh_x";
  }
  std::string text = Cat("mesh @m = [", base::JoinInts(all, ", "), "]\nmesh @turned = [", base::JoinInts(turned, ", "),
                         "]\nmesh @root = [0]\nhost @p(%x: ", chunked && !ManySrc(c.type) ? part : whole,
                         ", %y: ", chunked && !ManyDst(c.type) ? part : whole, ") {\n");
  for (int i = 0; i < posts; ++i) {
    base::Append(text, "  communication(%x, %y) {type=", comm::CommTypeName(c.type),
                 ", reduce=", comm::Reduces(c.type) ? "sum" : "none", ", mesh=@", mesh, ", dim=", dim, ", to=@", to,
                 ", stream=0, seq=", i, "}\n");
  }
  return text + "  return %y\n}\n";
}

class NoKernels final : public device::KernelSource {
 public:
  Result<const device::Kernel*> Get(std::string_view name) override {
    return Status(Code::kNotFound, Cat("no kernel ", name));
  }
};

// One rank, ready to call in any way.
class Rank {
 public:
  static Result<std::unique_ptr<Rank>> Make(int64_t rank, const Arguments& arguments, comm::Rendezvous& rendezvous) {
    auto made = std::unique_ptr<Rank>(new Rank(rank, arguments.ranks));
    const auto* const paths = std::ranges::find(kPaths, arguments.paths, &Paths::name);
    HIR_TRY(made->Start(*std::max_element(arguments.sizes.begin(), arguments.sizes.end()), paths->paths, rendezvous));
    return made;
  }
  ~Rank() {
    if (stream_ != nullptr) (void)stream_->Synchronize(kLong).ok();
  }

  comm::CommDesc DescOf(const Case& c) const {
    const bool chunked = ManySrc(c.type) || ManyDst(c.type);
    comm::CommDesc desc = {.type = c.type,
                           .team = team_id_,
                           .root = comm::IsRooted(c.type) ? 0 : comm::kNoRank,
                           .count = c.bytes / 4 / size_ * (chunked ? 1 : size_),
                           .src = {src_->buffer().data, c.bytes},
                           .dst = {dst_->buffer().data, c.bytes}};
    if (comm::HasHalves(c.type)) {
      desc.to = (rank_ + 1) % size_;
      desc.from = (rank_ + size_ - 1) % size_;
    }
    return desc;
  }

  Status Post(const comm::CommDesc& desc) { return communicator_->Post(desc, *stream_); }
  // What NCCL's manual says to call; nothing of comm/nccl is in it.
  Status CallNccl(const comm::CommDesc& desc) {
    HIR_TRY(comm::NcclStatus(nccl_, nccl_.GroupStart(), "ncclGroupStart", nullptr));
    HIR_TRY(comm::NcclStatus(nccl_, IssueNccl(desc), "an NCCL call", nullptr));
    const ncclResult_t ended = nccl_.GroupEnd();
    HIR_TRY(comm::NcclStatus(nccl_, ended, "ncclGroupEnd", nullptr));
    return ended == ncclInProgress ? Await() : Status();
  }
  // NCCL's own calls, `posts` of them, as a graph. Called once before: a communicator may connect its peers then.
  Status CaptureNccl(const comm::CommDesc& desc, int posts) {
    HIR_TRY(CallNccl(desc));
    HIR_TRY(stream_->Synchronize(kLong));
    HIR_TRY(device_->BeginCapture(*stream_));
    Status status;
    device_->CaptureFixed(true);
    for (int i = 0; i < posts && status.ok(); ++i) status = CallNccl(desc);
    device_->CaptureFixed(false);
    auto graph = device_->EndCapture(*stream_);
    HIR_TRY(status);
    HIR_ASSIGN(nccl_graph_, std::move(graph));
    for (int i = 0; i < 3; ++i) nccl_graph_->Launch(*stream_);
    return stream_->Synchronize(kLong);
  }
  Status ReplayNccl() {
    nccl_graph_->Launch(*stream_);
    return {};
  }
  // A program of `posts` communications, bound to this rank's buffers; `replay`: as a graph, captured by now.
  Status Load(const Case& c, int posts, bool replay) {
    Unload();
    HIR_ASSIGN(program_, host::HostProgram::Load(ProgramText(c, size_, posts)));
    device::Stream* const streams[] = {stream_.get()};
    HIR_ASSIGN(evaluator_, host::Evaluator::Prepare(*program_, {.rank = rank_,
                                                                .device = device_.get(),
                                                                .streams = streams,
                                                                .kernels = &kernels_,
                                                                .communicator = communicator_.get(),
                                                                .pool = pool_.get(),
                                                                .replay = replay}));
    if (replay) HIR_TRY(evaluator_->replayable());
    const host::Argument arguments[] = {{.buffer = {src_->buffer().data, c.bytes}},
                                        {.buffer = {dst_->buffer().data, c.bytes}}};
    HIR_TRY(evaluator_->Bind(arguments, {}, &binding_));
    for (int i = 0; i < 3; ++i) HIR_TRY(Run());
    return evaluator_->Synchronize(kLong);
  }
  Status Run() { return evaluator_->Run(binding_, {}); }
  std::vector<std::string> Graphs() const { return evaluator_->DescribeGraphs(); }
  void Unload() {
    evaluator_.reset();
    binding_ = host::Binding();
    program_.reset();
    nccl_graph_.reset();
  }

  Status Meet() {
    HIR_TRY(Post({.team = team_id_, .count = 1, .src = src_->buffer(), .dst = dst_->buffer()}));
    return stream_->Synchronize(kLong);
  }

  // `call` gives the bits that NCCL does: the first mebibyte is compared.
  Status Check(const Case& c, const std::function<Status()>& call) {
    const comm::CommDesc desc = DescOf(c);
    const bool written =
        !comm::IsRooted(c.type) || rank_ == 0 || c.type == CommType::kScatter || c.type == CommType::kBroadcast;
    std::array<std::vector<std::byte>, 2> results;
    for (size_t way = 0; way < 2; ++way) {
      stream_->Fill(dst_->buffer(), 0xee, 1);
      HIR_TRY(way == 0 ? CallNccl(desc) : call());
      HIR_TRY(stream_->Synchronize(kLong));
      results[way].resize(static_cast<size_t>(std::min<int64_t>(c.bytes / size_, 1 << 20)));
      HIR_TRY(device::CopyToHost(*device_, results[way], {desc.dst.data, static_cast<int64_t>(results[way].size())}));
    }
    const bool poisoned =
        std::all_of(results[0].begin(), results[0].end(), [](std::byte b) { return b == std::byte{0xee}; });
    if (poisoned != written && results[0] == results[1]) return {};
    return Internal(Cat(comm::CommName(desc), " of ", c.bytes, " bytes: both ways differ"));
  }

  // Microseconds of one communication on the device, and of the host in queueing it.
  struct Times {
    double device_us = 0;
    double host_us = 0;
  };
  Result<Times> Time(int calls, int posts_in_call, const std::function<Status()>& call) {
    HIR_TRY(Meet());
    HIR_TRY(call());
    stream_->Record(*begin_);
    Status status;
    const double seconds = bench::Seconds([&] {
      for (int i = 0; i < calls && status.ok(); ++i) status = call();
    });
    HIR_TRY(status);
    stream_->Record(*end_);
    HIR_TRY(stream_->Synchronize(kLong));
    HIR_ASSIGN(const double ms, device::ElapsedMs(*begin_, *end_));
    const double posts = calls * posts_in_call;
    return Times{.device_us = ms * 1e3 / posts, .host_us = seconds * 1e6 / posts};
  }

  std::string MachineJson() const {
    const Result<device::CudaFacts> facts = device::FactsOf(*device_);
    const int cuda = facts.ok() ? facts->driver_version : 0;
    return Cat("{\"gpu\": \"", facts.ok() ? facts->model : "?", "\", \"num_gpus\": ", size_, ", \"cuda\": \"",
               cuda / 1000, ".", cuda % 1000 / 10, "\", \"nccl\": \"", comm::NcclVersionText(nccl_.version), "\"}");
  }

 private:
  Rank(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

  Status Start(int64_t bytes_max, const comm::PeerPaths& paths, comm::Rendezvous& rendezvous) {
    HIR_ASSIGN(device_, device::OpenCudaDevice({.ordinal = rank_}));
    HIR_ASSIGN(stream_, device_->CreateStream());
    HIR_ASSIGN(src_, device_->Allocate(bytes_max));
    HIR_ASSIGN(dst_, device_->Allocate(bytes_max));
    HIR_ASSIGN(begin_, device::CreateTimedEvent(*device_));
    HIR_ASSIGN(end_, device::CreateTimedEvent(*device_));
    pool_ = std::make_unique<host::Pool>(*device_);
    const std::vector<float> random = bench::RandomFloats(1 << 20, static_cast<uint64_t>(rank_));
    for (int64_t at = 0; at < bytes_max; at += 4 << 20) {
      const int64_t bytes = std::min<int64_t>(4 << 20, bytes_max - at);
      HIR_TRY(device::CopyFromHost(*device_, src_->buffer().Slice(at, bytes),
                                   std::as_bytes(std::span(random)).first(static_cast<size_t>(bytes))));
    }
    const auto compile = [](std::string_view text, int architecture) -> Result<std::string> {
      HIR_ASSIGN(codegen::gpu::Compiled compiled, codegen::gpu::CompileCuda(std::string(text), architecture));
      return std::move(compiled.cubin);
    };
    HIR_ASSIGN(
        std::shared_ptr<comm::PeerMemory> peers,
        comm::PeerMemory::Create(
            {.rank = rank_, .size = size_, .device = device_.get(), .compile = compile, .paths = paths}, rendezvous));
    HIR_ASSIGN(communicator_, comm::CreateNccl({.rank = rank_,
                                                .size = size_,
                                                .device = device_.get(),
                                                .native_stream = &device::NativeStream,
                                                .begin_work = &device::BeginWork,
                                                .work_mark = &device::WorkMark,
                                                .is_capturing = &device::IsCapturing,
                                                .peers = std::move(peers)},
                                               rendezvous));
    std::vector<int64_t> everyone;
    for (int64_t rank = 0; rank < size_; ++rank) everyone.push_back(rank);
    HIR_ASSIGN(team_id_, communicator_->Team(everyone, 0));
    HIR_ASSIGN(nccl_, comm::LoadNccl("", false));
    return JoinRaw(rendezvous);
  }

  // Of floats; the root is rank 0, a halved one goes around in a ring.
  ncclResult_t IssueNccl(const comm::CommDesc& desc) const {
    const auto stream = static_cast<cudaStream_t>(device::NativeStream(*stream_));
    const ncclComm_t to = raw_->handle();
    const auto count = static_cast<size_t>(desc.count);
    const int64_t chunk = desc.count * 4;
    const std::byte* const src = desc.src.data;
    std::byte* const dst = desc.dst.data;
    const auto send = [&](int64_t peer, int64_t at) {
      return nccl_.Send(src + at, count, ncclFloat32, static_cast<int>(peer), to, stream);
    };
    const auto recv = [&](int64_t peer, int64_t at) {
      return nccl_.Recv(dst + at, count, ncclFloat32, static_cast<int>(peer), to, stream);
    };
    ncclResult_t result = ncclSuccess;
    const auto also = [&](ncclResult_t next) { result = result == ncclSuccess ? next : result; };
    switch (desc.type) {
      case CommType::kAllgather: return nccl_.AllGather(src, dst, count, ncclFloat32, to, stream);
      case CommType::kAllreduce: return nccl_.AllReduce(src, dst, count, ncclFloat32, ncclSum, to, stream);
      case CommType::kReduceScatter: return nccl_.ReduceScatter(src, dst, count, ncclFloat32, ncclSum, to, stream);
      case CommType::kReduce: return nccl_.Reduce(src, dst, count, ncclFloat32, ncclSum, 0, to, stream);
      case CommType::kBroadcast: return nccl_.Broadcast(src, dst, count, ncclFloat32, 0, to, stream);
      case CommType::kGather:
        also(send(0, 0));
        for (int64_t peer = 0; rank_ == 0 && peer < size_; ++peer) also(recv(peer, peer * chunk));
        return result;
      case CommType::kScatter:
        for (int64_t peer = 0; rank_ == 0 && peer < size_; ++peer) also(send(peer, peer * chunk));
        also(recv(0, 0));
        return result;
      case CommType::kAllToAll:
        for (int64_t peer = 0; peer < size_; ++peer) {
          also(send(peer, peer * chunk));
          also(recv(peer, peer * chunk));
        }
        return result;
      case CommType::kSendRecv:
      case CommType::kCollectivePermute:
        also(send((rank_ + 1) % size_, 0));
        also(recv((rank_ + size_ - 1) % size_, 0));
        return result;
    }
    return result;
  }

  Status JoinRaw(comm::Rendezvous& rendezvous) {
    ncclUniqueId id = {};
    if (rank_ == 0) {
      HIR_ASSIGN(id, comm::NcclComm::NewId(nccl_));
      HIR_TRY(rendezvous.Publish("raw", {id.internal, sizeof id.internal}));
    } else {
      HIR_ASSIGN(const std::string bytes, rendezvous.Get("raw", kLong));
      std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    }
    const base::Nanos deadline = base::Clock::Steady().Now() + kLong;
    HIR_ASSIGN(raw_parent_,
               comm::NcclComm::Join(nccl_, id, {.size = static_cast<int>(size_), .rank = static_cast<int>(rank_)},
                                    deadline, [] { return false; }));
    HIR_ASSIGN(raw_, raw_parent_->SplitAll(static_cast<int>(rank_), deadline, [] { return false; }));
    return {};
  }
  Status Await() const {
    return raw_->Await("ncclGroupEnd", base::Clock::Steady().Now() + kLong, [] { return false; });
  }

  const int64_t rank_;
  const int64_t size_;
  // In the order in which they are made: graphs go before the communicator.
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> begin_, end_;
  std::unique_ptr<device::Allocation> src_, dst_;
  std::unique_ptr<host::Pool> pool_;
  NoKernels kernels_;
  comm::TeamId team_id_ = {};
  comm::NcclLibrary nccl_;
  std::unique_ptr<comm::NcclComm> raw_parent_, raw_;
  std::unique_ptr<comm::Communicator> communicator_;
  std::unique_ptr<host::HostProgram> program_;
  host::Binding binding_;
  std::unique_ptr<host::Evaluator> evaluator_;
  std::unique_ptr<device::Graph> nccl_graph_;
};

// The bytes that a link must carry at least, over the bytes of the case: what makes bandwidths of
// different communications comparable.
double BusFactor(CommType type, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  if (type == CommType::kAllreduce) return 2 * (n - 1) / n;
  return ManySrc(type) || ManyDst(type) ? (n - 1) / n : 1;
}

std::array<double, 3> Quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
  };
  return {at(0.25), at(0.5), at(0.75)};
}

// ours[i] and theirs[i] were taken one after the other.
struct Row {
  std::string way = {};
  Case c = {};
  std::vector<double> us = {}, nccl_us = {}, host_us = {}, nccl_host_us = {};
};

std::string ToJson(const Row& row) {
  return Cat("{\"type\": \"", comm::CommTypeName(row.c.type), "\", \"bytes\": ", row.c.bytes, ", \"way\": \"", row.way,
             "\", \"us\": [", base::Join(row.us, ", "), "], \"nccl_us\": [", base::Join(row.nccl_us, ", "),
             "], \"host_us\": [", base::Join(row.host_us, ", "), "], \"nccl_host_us\": [",
             base::Join(row.nccl_host_us, ", "), "]}");
}

void Print(const Row& row, int64_t ranks) {
  const auto ours = Quartiles(row.us), theirs = Quartiles(row.nccl_us);
  const double factor = BusFactor(row.c.type, ranks) * static_cast<double>(row.c.bytes) * 1e-3;
  std::vector<double> shares, added, host;
  for (size_t i = 0; i < row.us.size(); ++i) {
    shares.push_back(row.nccl_us[i] / row.us[i]);
    added.push_back(row.us[i] - row.nccl_us[i]);
    host.push_back(row.host_us[i] - row.nccl_host_us[i]);
  }
  std::printf("%-10s %-18s %8lld %9.2f %9.2f %9.2f  %9.2f %9.2f %9.2f %7.1f %6.3f %7.2f %7.2f\n", row.way.c_str(),
              std::string(comm::CommTypeName(row.c.type)).c_str(), static_cast<long long>(row.c.bytes >> 10), ours[0],
              ours[1], ours[2], theirs[0], theirs[1], theirs[2], factor / ours[1], Quartiles(shares)[1],
              Quartiles(added)[1], Quartiles(host)[1]);
  std::fflush(stdout);
}

Result<Row> Measure(const Arguments& arguments, const std::string& way, const Case& c, Rank& rank) {
  const comm::CommDesc desc = rank.DescOf(c);
  struct Side {
    std::function<Status()> call;
    int posts = 1;
  };
  Side ours = {[&] { return rank.Post(desc); }}, nccl = {[&] { return rank.CallNccl(desc); }};
  const Side nccl_replay = {[&] { return rank.ReplayNccl(); }, kPostsInGraph};
  rank.Unload();
  if (way == "run") {
    HIR_TRY(rank.Load(c, 1, false));
    ours.call = [&] { return rank.Run(); };
  } else if (way == "graph") {
    HIR_TRY(rank.Load(c, kPostsInGraph, true));
    HIR_TRY(rank.CaptureNccl(desc, kPostsInGraph));
    ours = {[&] { return rank.Run(); }, kPostsInGraph};
    nccl = nccl_replay;
  } else if (way == "nccl_graph") {
    HIR_TRY(rank.CaptureNccl(desc, kPostsInGraph));
    ours = nccl_replay;
  }
  HIR_TRY(rank.Check(c, ours.call));
  const int calls = c.bytes >= 256 << 20 ? 20 : c.bytes >= 64 << 20 ? 40 : 200;
  const auto time = [&](const Side& side) { return rank.Time(calls / side.posts, side.posts, side.call); };
  HIR_TRY(time(nccl).status());
  HIR_TRY(time(ours).status());
  Row row = {.way = way, .c = c};
  for (int pair = 0; pair < arguments.pairs; ++pair) {
    HIR_ASSIGN(const Rank::Times our, time(ours));
    HIR_ASSIGN(const Rank::Times their, time(nccl));
    row.us.push_back(our.device_us);
    row.nccl_us.push_back(their.device_us);
    row.host_us.push_back(our.host_us);
    row.nccl_host_us.push_back(their.host_us);
  }
  return row;
}

Status WriteJson(const Arguments& arguments, const Rank& rank, const std::vector<Row>& rows) {
  std::FILE* const out = std::fopen(arguments.json.c_str(), "w");
  if (out == nullptr) return Status(Code::kNotFound, Cat(arguments.json, " cannot be written"));
  std::vector<std::string> texts;
  for (const Row& row : rows) texts.push_back(ToJson(row));
  std::fprintf(out, "{\"machine\": %s,\n \"command\": \"%s\",\n \"ranks\": %lld,\n \"rows\": [\n  %s]}\n",
               rank.MachineJson().c_str(), arguments.command.c_str(), static_cast<long long>(arguments.ranks),
               base::Join(texts, ",\n  ").c_str());
  std::fclose(out);
  return {};
}

Status RunRank(const Arguments& arguments, int64_t rank, comm::Rendezvous& rendezvous) {
  HIR_ASSIGN(const std::unique_ptr<Rank> self, Rank::Make(rank, arguments, rendezvous));
  std::vector<Row> rows;
  for (const std::string& way : arguments.ways) {
    if (rank == 0) {
      std::printf(
          "%lld GPUs, way \"%s\": us a communication, quartiles and median of %d pairs; bus GB/s; "
          "share of NCCL's "
          "speed, us added on the device and on the host (medians of the pairs)\n",
          static_cast<long long>(arguments.ranks), way.c_str(), arguments.pairs);
      std::printf("%-10s %-18s %8s %9s %9s %9s  %9s %9s %9s %7s %6s %7s %7s\n", "way", "type", "KiB", "ours q1",
                  "median", "q3", "NCCL q1", "median", "q3", "GB/s", "share", "added", "host");
    }
    for (const int64_t bytes : arguments.sizes) {
      for (const CommType type : arguments.types) {
        HIR_ASSIGN(Row row, Measure(arguments, way, {type, bytes}, *self));
        if (rank == 0) Print(row, arguments.ranks);
        rows.push_back(std::move(row));
      }
    }
    if (rank == 0 && way == "graph") {
      for (const std::string& graph : self->Graphs()) std::printf("graph: %s\n", graph.c_str());
    }
    self->Unload();
  }
  HIR_TRY(self->Meet());
  return rank == 0 && !arguments.json.empty() ? WriteJson(arguments, *self, rows) : Status();
}

// In a process of its own: a program that has called the driver cannot fork what will call it.
int64_t CountGpus() {
  const pid_t pid = fork();
  if (pid == 0) {
    const Result<int64_t> count = device::NumCudaDevices();
    if (!count.ok()) std::fprintf(stderr, "%s\n", count.status().ToString().c_str());
    _exit(count.ok() ? static_cast<int>(*count) : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t end = 0; end != std::string_view::npos; text.remove_prefix(end + 1)) {
    end = text.find(',');
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
  }
  return parts;
}

// False for what is not known.
bool Parse(int argc, char** argv, Arguments& arguments) {
  const std::string_view program = argv[0];
  arguments.command = program.substr(program.rfind('/') + 1);
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    base::Append(arguments.command, " ", word.substr(word.rfind('/') + 1));
  }
  bool known = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--ranks") {
      arguments.ranks = std::atoll(argv[i + 1]);
    } else if (name == "--pairs") {
      arguments.pairs = std::max(1, std::atoi(argv[i + 1]));
    } else if (name == "--json") {
      arguments.json = value;
    } else if (name == "--ways") {
      arguments.ways = Split(value);
      for (const std::string& way : arguments.ways) known = known && std::ranges::find(kWays, way) != kWays.end();
    } else if (name == "--paths") {
      arguments.paths = value;
      known = known && std::ranges::find(kPaths, value, &Paths::name) != kPaths.end();
    } else if (name == "--sizes") {
      arguments.sizes.clear();
      for (const std::string& size : Split(value)) {
        arguments.sizes.push_back(base::ParseInt(size).value_or(0));
        known = known && arguments.sizes.back() >= 1024;
      }
    } else if (name == "--types") {
      arguments.types.clear();
      for (const std::string& wanted : Split(value)) {
        const auto type = std::find_if(std::begin(comm::kAllCommTypes), std::end(comm::kAllCommTypes),
                                       [&](CommType one) { return comm::CommTypeName(one) == wanted; });
        known = known && type != std::end(comm::kAllCommTypes);
        if (known) arguments.types.push_back(*type);
      }
    } else {
      known = false;
    }
  }
  return known;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "collectives_gpu [--ranks N] [--pairs N] [--types gather,...] [--sizes BYTES,... "
                 "of 1024 or more] "
                 "[--ways post,run,graph,nccl_graph] [--paths chosen|nccl|pushes|copies] [--json FILE]\n");
    return 2;
  }
  const int64_t gpus = CountGpus();
  if (arguments.ranks == 0) arguments.ranks = gpus;
  if (arguments.ranks < 2 || arguments.ranks > gpus) {
    std::fprintf(stderr, "collectives_gpu: %lld ranks on %lld GPUs: at least 2, one GPU each\n",
                 static_cast<long long>(arguments.ranks), static_cast<long long>(gpus));
    return 1;
  }
  comm::ForkedRendezvous rendezvous;
  for (int64_t rank = 0; rank < arguments.ranks; ++rank) {
    if (fork() != 0) continue;
    const Status status = RunRank(arguments, rank, rendezvous);
    if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), status.ToString().c_str());
    std::fflush(nullptr);
    _exit(status.ok() ? 0 : 1);
  }
  int failed = 0;
  for (int64_t rank = 0; rank < arguments.ranks; ++rank) {
    int state = 0;
    wait(&state);
    failed += state != 0;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace hir

int main(int argc, char** argv) { return hir::Main(argc, argv); }
