// NCCL's collectives between the GPUs of this machine, a process each: posted through comm/nccl as
// the evaluator does, and called directly, in turn. What counts is our share of the bandwidth of
// large messages, and what we add to a small one, on the device and on the host.
// `collectives_gpu [--ranks N] [--pairs N] [--json FILE]`; --ranks: all GPUs.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/measurement.h"
#include "benchmarks/payload.h"
#include "csrc/device/cuda/cuda_device.h"
#include "multidevice/comm/check_desc.h"
#include "multidevice/comm/nccl/library.h"
#include "multidevice/comm/nccl/nccl.h"
#include "multidevice/comm/nccl/nccl_calls.h"
#include "multidevice/comm/nccl/nccl_comm.h"
#include "multidevice/comm/team.h"
#include "multidevice/rendezvous/forked.h"

namespace hir {
namespace {

using comm::CommType;

constexpr base::Nanos kLong = std::chrono::seconds(60);

struct Arguments {
  int64_t ranks = 0;
  int pairs = 11;
  std::string json = {};
};

// One kind of call at one size. `bytes`: of the larger of src and dst.
struct Case {
  CommType type = CommType::kAllreduce;
  int64_t bytes = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (CommType type : {CommType::kAllreduce, CommType::kAllgather, CommType::kReduceScatter,
                        CommType::kBroadcast, CommType::kAllToAll, CommType::kCollectivePermute}) {
    for (int64_t bytes :
         {int64_t{4} << 10, int64_t{1} << 20, int64_t{64} << 20, int64_t{256} << 20})
      cases.push_back({type, bytes});
  }
  return cases;
}

// One rank, ready to call either way.
class Rank {
 public:
  static Result<std::unique_ptr<Rank>> Make(int64_t rank, int64_t size,
                                            comm::Rendezvous& rendezvous) {
    auto made = std::unique_ptr<Rank>(new Rank(rank, size));
    HIR_TRY(made->Start(rendezvous));
    return made;
  }

  comm::CommDesc DescOf(const Case& c) const {
    const bool many = c.type == CommType::kAllgather || c.type == CommType::kReduceScatter ||
                      c.type == CommType::kAllToAll;
    comm::CommDesc desc = {.type = c.type,
                           .team = team_id_,
                           .root = comm::IsRooted(c.type) ? 0 : comm::kNoRank,
                           .count = c.bytes / 4 / (many ? size_ : 1),
                           .src = {src_->buffer().data, c.bytes},
                           .dst = {dst_->buffer().data, c.bytes}};
    if (comm::HasHalves(c.type)) {
      desc.to = (rank_ + 1) % size_;
      desc.from = (rank_ + size_ - 1) % size_;
    }
    return desc;
  }

  Status Ours(const comm::CommDesc& desc) { return communicator_->Post(desc, *stream_); }
  // The same calls, without what comm/nccl does around them.
  Status Theirs(const comm::CommDesc& desc) {
    const comm::NcclOp op = {
        .desc = desc, .team = &team_, .comm = raw_->handle(), .stream = stream_.get()};
    comm::QueueCopies(op, rank_);
    HIR_TRY(comm::NcclStatus(nccl_, nccl_.GroupStart(), "ncclGroupStart", nullptr));
    const auto stream = static_cast<cudaStream_t>(device::NativeStream(*stream_));
    HIR_TRY(comm::IssueCalls(nccl_, op, rank_, stream));
    const ncclResult_t ended = nccl_.GroupEnd();
    HIR_TRY(comm::NcclStatus(nccl_, ended, "ncclGroupEnd", nullptr));
    return ended == ncclInProgress ? Await() : Status();
  }
  Status Meet() {
    HIR_TRY(Ours({.team = team_id_, .count = 1, .src = src_->buffer(), .dst = dst_->buffer()}));
    return stream_->Synchronize(kLong);
  }

  // Both give the same bits: the first mebibyte is compared.
  Status Check(const comm::CommDesc& desc) {
    std::vector<std::byte> results[2];
    for (int way = 0; way < 2; ++way) {
      stream_->Fill(dst_->buffer(), 0xee, 1);
      HIR_TRY(way == 0 ? Ours(desc) : Theirs(desc));
      HIR_TRY(stream_->Synchronize(kLong));
      results[way].resize(static_cast<size_t>(std::min<int64_t>(desc.dst.bytes, 1 << 20)));
      HIR_TRY(device::CopyToHost(*device_, results[way],
                                 {desc.dst.data, static_cast<int64_t>(results[way].size())}));
    }
    const bool written = std::any_of(results[0].begin(), results[0].end(),
                                     [](std::byte b) { return b != std::byte{0xee}; });
    if (written && results[0] == results[1]) return {};
    return Internal(base::Cat(comm::CommName(desc), ": both ways differ"));
  }

  // Microseconds of one call on the device, and of the host in queueing it.
  struct Times {
    double device_us = 0;
    double host_us = 0;
  };
  template <typename Call>
  Result<Times> Time(int calls, const Call& call) {
    HIR_TRY(Meet());
    stream_->Record(*begin_);
    Status status;
    const double seconds = bench::Seconds([&] {
      for (int i = 0; i < calls && status.ok(); ++i) status = call();
    });
    HIR_TRY(status);
    stream_->Record(*end_);
    HIR_TRY(stream_->Synchronize(kLong));
    HIR_ASSIGN(const double ms, device::ElapsedMs(*begin_, *end_));
    return Times{.device_us = ms * 1e3 / calls, .host_us = seconds * 1e6 / calls};
  }

 private:
  Rank(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

  Status Start(comm::Rendezvous& rendezvous) {
    constexpr int64_t kBytesMax = int64_t{256} << 20;
    HIR_ASSIGN(device_, device::OpenCudaDevice({.ordinal = rank_}));
    HIR_ASSIGN(stream_, device_->CreateStream());
    HIR_ASSIGN(src_, device_->Allocate(kBytesMax));
    HIR_ASSIGN(dst_, device_->Allocate(kBytesMax));
    HIR_ASSIGN(begin_, device::CreateTimedEvent(*device_));
    HIR_ASSIGN(end_, device::CreateTimedEvent(*device_));
    const std::vector<float> random = bench::RandomFloats(1 << 20, static_cast<uint64_t>(rank_));
    for (int64_t at = 0; at < kBytesMax; at += 4 << 20) {
      HIR_TRY(device::CopyFromHost(*device_, src_->buffer().Slice(at, 4 << 20),
                                   std::as_bytes(std::span(random))));
    }
    HIR_ASSIGN(communicator_, comm::CreateNccl({.rank = rank_,
                                                .size = size_,
                                                .device = device_.get(),
                                                .native_stream = &device::NativeStream,
                                                .begin_work = &device::BeginWork},
                                               rendezvous));
    for (int64_t rank = 0; rank < size_; ++rank) team_.ranks.push_back(rank);
    team_.index = rank_;
    HIR_ASSIGN(team_id_, communicator_->Team(team_.ranks, 0));
    HIR_ASSIGN(nccl_, comm::LoadNccl("", false));
    return JoinRaw(rendezvous);
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
               comm::NcclComm::Join(
                   nccl_, id, {.size = static_cast<int>(size_), .rank = static_cast<int>(rank_)},
                   deadline, [] { return false; }));
    HIR_ASSIGN(raw_,
               raw_parent_->SplitAll(static_cast<int>(rank_), deadline, [] { return false; }));
    return {};
  }
  Status Await() const {
    return raw_->Await("ncclGroupEnd", base::Clock::Steady().Now() + kLong, [] { return false; });
  }

  const int64_t rank_;
  const int64_t size_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> begin_, end_;
  std::unique_ptr<device::Allocation> src_, dst_;
  comm::TeamInfo team_;
  comm::TeamId team_id_ = {};
  comm::NcclLibrary nccl_;
  std::unique_ptr<comm::NcclComm> raw_parent_, raw_;
  std::unique_ptr<comm::Communicator> communicator_;
};

// The bytes that a link must carry at least, over the bytes of the case: what makes bandwidths of
// different collectives comparable.
double BusFactor(CommType type, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  if (type == CommType::kAllreduce) return 2 * (n - 1) / n;
  if (type == CommType::kBroadcast || type == CommType::kCollectivePermute) return 1;
  return (n - 1) / n;
}

Status Measure(const Arguments& arguments, const Case& c, Rank& rank, bool prints,
               std::vector<bench::Measurement>& rows) {
  comm::CommDesc desc = rank.DescOf(c);
  const auto ours = [&] { return rank.Ours(desc); };
  const auto theirs = [&] { return rank.Theirs(desc); };
  HIR_TRY(rank.Check(desc));
  const int calls = c.bytes >= 64 << 20 ? 20 : 200;
  HIR_TRY(rank.Time(calls, ours).status());
  HIR_TRY(rank.Time(calls, theirs).status());
  const std::string name =
      base::Cat(comm::CommTypeName(c.type), "_", c.bytes >> 10, "k_", arguments.ranks, "_gpus");
  bench::Measurement on_device = {.name = name, .unit = "us", .peer = "NCCL called directly"};
  bench::Measurement on_host = {.name = name + "_host", .unit = "us", .peer = on_device.peer};
  for (int pair = 0; pair < arguments.pairs; ++pair) {
    HIR_ASSIGN(const Rank::Times our, rank.Time(calls, ours));
    HIR_ASSIGN(const Rank::Times their, rank.Time(calls, theirs));
    on_device.ours.push_back(our.device_us);
    on_device.theirs.push_back(their.device_us);
    on_host.ours.push_back(our.host_us);
    on_host.theirs.push_back(their.host_us);
  }
  if (!prints) return {};
  const double our = bench::Median(on_device.ours), their = bench::Median(on_device.theirs);
  const double factor = BusFactor(c.type, arguments.ranks) * static_cast<double>(c.bytes) * 1e-3;
  std::printf("%-20s %8lld KiB %10.2f %10.2f %8.1f %8.1f %7.3f %9.2f %9.2f\n",
              std::string(comm::CommTypeName(c.type)).c_str(),
              static_cast<long long>(c.bytes >> 10), our, their, factor / our, factor / their,
              their / our, our - their,
              bench::Median(on_host.ours) - bench::Median(on_host.theirs));
  std::fflush(stdout);
  rows.push_back(std::move(on_device));
  rows.push_back(std::move(on_host));
  return {};
}

Status WriteJson(const std::string& file, const std::vector<bench::Measurement>& rows) {
  std::FILE* const out = std::fopen(file.c_str(), "w");
  if (out == nullptr) return Status(Code::kNotFound, base::Cat(file, " cannot be written"));
  std::vector<std::string> texts;
  for (const bench::Measurement& row : rows) texts.push_back(bench::ToJson(row));
  std::fprintf(out, "[%s]\n", base::Join(texts, ",\n ").c_str());
  std::fclose(out);
  return {};
}

Status RunRank(const Arguments& arguments, int64_t rank, comm::Rendezvous& rendezvous) {
  HIR_ASSIGN(const std::unique_ptr<Rank> self, Rank::Make(rank, arguments.ranks, rendezvous));
  if (rank == 0) {
    std::printf(
        "%lld GPUs; medians of %d pairs; us a call on the device, bus bandwidth in GB/s; "
        "share: of NCCL's speed; added: us a call on the device, on the host\n",
        static_cast<long long>(arguments.ranks), arguments.pairs);
    std::printf("%-20s %12s %10s %10s %8s %8s %7s %9s %9s\n", "type", "bytes", "ours", "NCCL",
                "GB/s", "NCCL", "share", "added", "host");
  }
  std::vector<bench::Measurement> rows;
  for (const Case& c : Cases()) HIR_TRY(Measure(arguments, c, *self, rank == 0, rows));
  HIR_TRY(self->Meet());
  return rank == 0 && !arguments.json.empty() ? WriteJson(arguments.json, rows) : Status();
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

int Main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--ranks") arguments.ranks = std::atoll(argv[i + 1]);
    if (name == "--pairs") arguments.pairs = std::atoi(argv[i + 1]);
    if (name == "--json") arguments.json = argv[i + 1];
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
    if (!status.ok())
      std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), status.ToString().c_str());
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
