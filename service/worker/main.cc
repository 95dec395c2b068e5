// hostir-worker: the process of one rank, the one that plans (--role=planner), or the one that looks which devices
// there are (--role=probe). Started by hostird.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "csrc/base/traceparent.h"
#include "host_ir/host_ops.h"
#include "host_ir/rank/cpu/cpu_backends.h"
#include "host_ir/rank/cuda/cuda_backends.h"
#include "service/log/log.h"
#include "service/os/affinity.h"
#include "service/os/memory_limit.h"
#include "service/os/oom_score.h"
#include "service/os/process.h"
#include "service/planner/planner.h"
#include "service/worker/link.h"
#include "service/worker/probe.h"
#include "service/worker/worker.h"

namespace hir::service {
namespace {

// For what failed here all workers may be replaced, as soon as the daemon hears of it.
constexpr base::Nanos kFlushTimeout = std::chrono::milliseconds(10);

// The run that `request` is about, if any: then its number is above 0.
const ::hostir::v1::Execute& RunOf(const Link::Request& request) {
  if (request.posted != nullptr) return *request.posted;
  const ::hostir::v1::ToWorker& message = request.message;
  for (const ::hostir::v1::ToWorker& part : message.batch().messages()) {
    if (part.has_execute()) return part.execute();
  }
  return message.execute();
}

[[noreturn]] void ServeRank(const Worker::Options& options, rank::Backends backends) {
  const int64_t rank = options.rank, generation = options.generation;
  Worker worker(options, std::move(backends));
  Link link(base::Fd(kInheritedFd), {rank, generation}, [&worker] { return worker.Dump(); });
  for (;;) {  // The link ends the process.
    Link::Request request = link.Next();
    const int64_t seq = request.message.seq();
    const bool is_posted = request.posted != nullptr;
    const int64_t run = RunOf(request).run();  // As the daemon's log calls it; 0: none.
    const std::string trace = RunOf(request).traceparent();
    ::hostir::v1::FromWorker answer = worker.Handle(std::move(request), link);
    if (answer.reply().error().code() != 0) {
      spdlog::warn("rank={} generation={} seq={}{} error={}", rank, generation, seq,
                   run == 0 ? "" : base::Cat(" run=", run, base::TraceField(trace)),
                   base::Quoted(answer.reply().error().message()));
      FlushLog(kFlushTimeout);
    }
    if (is_posted) {
      link.AnswerPosted(std::move(answer));
    } else {
      link.Answer(seq, std::move(answer));
    }
  }
}

// For tests: HOSTIR_TESTS_WRONG_PLAN=1.2 has rank 1 of generation 2 load other plans than it is sent.
bool DamagesPlans(int64_t rank, int64_t generation) {
  const char* const hit = std::getenv("HOSTIR_TESTS_WRONG_PLAN");
  return hit != nullptr && hit == base::Cat(rank, ".", generation);
}

void IgnoreSignals() {
  signal(SIGINT, SIG_IGN);  // A terminal's interrupt is for the daemon, which ends us.
  signal(SIGTERM, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // A file that `ulimit -f` forbids is an error.
}

int Main(int argc, char** argv) {
  CLI::App app("hostir-worker: owns one device, or plans programs. hostird starts it; it has no use alone.");
  std::string role = "worker";
  std::string device = "cpu:0";
  Worker::Options options;
  int64_t parent_pid = 0;
  std::string log_level = "info";
  app.add_option("--role", role, "worker, planner or probe")->check(CLI::IsMember({"worker", "planner", "probe"}));
  app.add_option("--device", device, "cpu:N or cuda:N; of a planner and a probe the kind counts");
  app.add_option("--device-bytes-max", options.device_bytes_max, "of its memory; 0: as it likes");
  app.add_flag("--own-memory", options.own_memory, "shards live in the device's memory");
  app.add_flag("--nvlink-multicast", options.nvlink_multicast, "NCCL may reduce in the NVLink switch");
  app.add_flag("!--no-peer-memory", options.peer_memory, "GPUs do not write into each other's memory");
  int64_t resharding_bytes_max = 0;
  app.add_option("--resharding-bytes-max", resharding_bytes_max,
                 "of a planner: bytes that one resharding may hold on a rank; 0: any");
  int loop_streams = 4;
  app.add_option("--loop-streams", loop_streams, "of a planner: streams over which stream loops rotate")
      ->check(CLI::Range(1, host::kLoopStreamsMax));
  std::string overlap = "chosen";
  app.add_option("--overlap", overlap, "of a planner: whether products run in parts beside their communications")
      ->check(CLI::IsMember({"chosen", "never", "always"}));
  int64_t planner_bytes_max = 0;
  app.add_option("--bytes-max", planner_bytes_max, "of a planner: bytes it may allocate to plan; 0: any");
  Cores cores;
  app.add_option("--cores", cores, "the cores it runs on: 0,1; none: any")->delimiter(',');
  std::string segments;
  app.add_option("--segments", segments, "a folder for UCX's segments of shared memory");
  app.add_option("--rank", options.rank, "the rank of this worker");
  app.add_option("--generation", options.generation, "the mesh it belongs to");
  app.add_option("--parent-pid", parent_pid, "hostird; descriptor 3 is the socket to it")->required();
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error, off");
  CLI11_PARSE(app, argc, argv);

  // The socket's end says the same, but only to a thread that reads.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent_pid) return 1;  // It was gone before prctl.
  RaiseOomScore(role == "planner" ? kOomScoreOfPlanners : kOomScoreOfWorkers);
  // Before any thread is made. Cores may have gone since the daemon looked, which is no reason not to work.
  const Status bound = cores.empty() ? Status() : BindThread(cores);
  StartLog(log_level);
  if (!bound.ok()) spdlog::warn("rank={} not bound: {}", options.rank, bound.message());
  if (!segments.empty()) setenv("UCX_POSIX_DIR", segments.c_str(), /*overwrite=*/0);
  IgnoreSignals();
  const size_t colon = device.find(':');
  const std::string kind = device.substr(0, colon);
  const std::optional<int64_t> ordinal =
      colon == std::string::npos ? std::nullopt : base::ParseInt(device.substr(colon + 1));
  if ((kind != "cpu" && kind != "cuda") || !ordinal.has_value()) {
    spdlog::critical("--device={}: want cpu:N or cuda:N", device);
    FlushLog();
    return 1;
  }
  options.ordinal = *ordinal;
  options.damages_plans = DamagesPlans(options.rank, options.generation);
  rank::Backends backends = kind == "cuda" ? rank::CudaBackends() : rank::CpuBackends();
  if (role == "probe") ServeProbe(base::Fd(kInheritedFd), backends);
  if (role == "planner") {
    // While the ranks open their devices. Without a compiler a program whose kernels are known runs all the same.
    if (backends.warm_compiler) std::thread([warm = backends.warm_compiler] { (void)warm().ok(); }).detach();
    if (planner_bytes_max > 0 && backends.on_out_of_memory) backends.on_out_of_memory(&EndOutOfMemory);
    ServePlanner(base::Fd(kInheritedFd), planner_bytes_max,
                 {.resharding_bytes_max = resharding_bytes_max,
                  .overlap = *std::ranges::find(host::kOverlapChoices, overlap, &host::OverlapChoiceName),
                  .loop_streams = loop_streams,
                  .backend = backends.kind,
                  .compile = backends.make_compiler()});
  }
  ServeRank(options, std::move(backends));
}

}  // namespace
}  // namespace hir::service

int main(int argc, char** argv) { return hir::service::Main(argc, argv); }
