// All-reduce of f32 sums through comm/ucx between processes of this machine, posted on a host stream as the evaluator
// does. Prints one line: the microseconds of one all-reduce, the mean of REPEATS in a row: one rank's time of one says
// little, as whoever comes last finds everything there.
// Ranks keep to their shares of the cores, as the daemon's do.
// `allreduce_ucx BYTES REPEATS RANKS [SHARED_BYTES_MAX]`: the last as in UcxOptions; 0 is by messages alone.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <vector>

#include "benchmarks/bind_rank.h"
#include "benchmarks/payload.h"
#include "csrc/device/host/host_device.h"
#include "multidevice/comm/ucx/ucx.h"
#include "multidevice/rendezvous/forked.h"

namespace hir {
namespace {

double Micros(std::chrono::steady_clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

Status RunRank(const bench::AllreduceArgs& args, int64_t rank, int64_t ranks, int64_t shared_bytes_max,
               comm::Rendezvous& rendezvous) {
  HIR_ASSIGN(auto communicator,
             comm::CreateUcx({.rank = rank, .size = ranks, .shared_bytes_max = shared_bytes_max}, rendezvous));
  HIR_ASSIGN(auto device, device::CreateHostDevice({.num_threads = 1}));
  HIR_ASSIGN(auto stream, device->CreateStream());
  std::vector<int64_t> everyone;
  for (int64_t i = 0; i < ranks; ++i) everyone.push_back(i);
  HIR_ASSIGN(const comm::TeamId team, communicator->Team(everyone, 0));
  std::vector<float> source = bench::RandomFloats(args.count, static_cast<uint64_t>(rank));
  std::vector<float> sum(source.size());
  float token[1] = {0};
  const auto bytes = [](std::vector<float>& v) {
    return device::Buffer{reinterpret_cast<std::byte*>(v.data()), static_cast<int64_t>(v.size() * sizeof(float))};
  };
  comm::CommDesc barrier{.type = comm::CommType::kAllreduce, .team = team, .count = 1};
  barrier.src = barrier.dst = device::Buffer{reinterpret_cast<std::byte*>(token), sizeof token};
  comm::CommDesc desc{
      .type = comm::CommType::kAllreduce, .team = team, .count = args.count, .src = bytes(source), .dst = bytes(sum)};
  const auto warm_up_started = std::chrono::steady_clock::now();
  do {
    const double micros = Micros(std::chrono::steady_clock::now() - warm_up_started);
    token[0] = rank == 0 && micros < bench::kWarmUpSeconds * 1e6 ? 1 : 0;  // Not over yet.
    HIR_TRY(communicator->Post(barrier, *stream));
    HIR_TRY(stream->Synchronize(std::chrono::seconds(60)));
  } while (token[0] > 0);
  std::chrono::steady_clock::time_point started;
  for (int i = 0; i < args.repeats + 1; ++i) {
    HIR_TRY(communicator->Post(desc, *stream));
    HIR_TRY(stream->Synchronize(std::chrono::seconds(60)));
    if (i == 0) started = std::chrono::steady_clock::now();
  }
  const double micros = Micros(std::chrono::steady_clock::now() - started) / args.repeats;
  if (!bench::IsSumOfRandomFloats(sum, static_cast<int>(ranks))) return Internal("the sum is wrong");
  if (rank == 0) std::printf("%.3f\n", micros);
  HIR_TRY(communicator->Post(barrier, *stream));  // Nobody leaves while another still waits.
  return stream->Synchronize(std::chrono::seconds(60));
}

}  // namespace
}  // namespace hir

int main(int argc, char** argv) {
  const hir::bench::AllreduceArgs args = hir::bench::ParseAllreduceArgs(argc, argv);
  const int64_t ranks = argc > 3 ? std::atoll(argv[3]) : 4;
  const int64_t shared_bytes_max = argc > 4 ? std::atoll(argv[4]) : hir::comm::kSharedBytesMax;
  hir::comm::ForkedRendezvous rendezvous;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    hir::Status status = hir::bench::BindRank(rank, ranks);
    if (status.ok()) status = hir::RunRank(args, rank, ranks, shared_bytes_max, rendezvous);
    if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", static_cast<int>(rank), status.ToString().c_str());
    std::fflush(stdout);
    _exit(status.ok() ? 0 : 1);
  }
  int failed = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int state = 0;
    wait(&state);
    failed += state != 0;
  }
  return failed == 0 ? 0 : 1;
}
