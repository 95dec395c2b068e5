// hostir-worker: the process of one rank, or the one that plans (--role=planner). Started by hostird.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <string>

#include "host_ir/rank/cpu/cpu_backends.h"
#include "service/os/process.h"
#include "service/planner/planner.h"
#include "service/worker/link.h"
#include "service/worker/worker.h"

namespace hir::service {
namespace {

[[noreturn]] void ServeRank(int64_t rank, int64_t generation) {
  Worker worker({rank, generation}, rank::CpuBackends());
  Link link(Fd(kInheritedFd), {rank, generation}, [&worker] { return worker.Dump(); });
  for (;;) {  // The link ends the process.
    Link::Request request = link.Next();
    const int64_t seq = request.message.seq();
    ::hostir::v1::FromWorker answer = worker.Handle(std::move(request), link);
    if (answer.reply().error().code() != 0) {
      spdlog::warn("rank={} generation={} seq={} error=\"{}\"", rank, generation, seq,
                   answer.reply().error().message());
    }
    link.Answer(seq, std::move(answer));
  }
}

int Main(int argc, char** argv) {
  CLI::App app(
      "hostir-worker: owns one device, or plans programs. hostird starts it; it has no use alone.");
  std::string role = "worker";
  int64_t rank = 0;
  int64_t generation = 0;
  int64_t parent_pid = 0;
  std::string log_level = "info";
  app.add_option("--role", role, "worker or planner")->check(CLI::IsMember({"worker", "planner"}));
  app.add_option("--rank", rank, "the rank of this worker");
  app.add_option("--generation", generation, "the mesh it belongs to");
  app.add_option("--parent-pid", parent_pid, "hostird; descriptor 3 is the socket to it")
      ->required();
  app.add_option("--log-level", log_level, "trace, debug, info, warn, error, off");
  CLI11_PARSE(app, argc, argv);

  spdlog::set_level(spdlog::level::from_str(log_level));
  // The socket's end says the same, but only to a thread that reads.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent_pid) return 1;  // It was gone before prctl.
  signal(SIGINT, SIG_IGN);  // A terminal's interrupt is for the daemon, which ends us.
  signal(SIGTERM, SIG_IGN);
  if (role == "planner") {
    const rank::Backends backends = rank::CpuBackends();
    ServePlanner(Fd(kInheritedFd), {.backend = backends.kind, .compile = backends.make_compiler()});
  }
  ServeRank(rank, generation);
}

}  // namespace
}  // namespace hir::service

int main(int argc, char** argv) { return hir::service::Main(argc, argv); }
