// hostird: the daemon of one node. It parses, checks, keeps and orders; workers run, a planner plans.
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/text.h"
#include "service/engine/engine.h"
#include "service/os/fd.h"
#include "service/rpc/server.h"
#include "service/supervise/devices.h"

namespace hir::service {
namespace {

using base::Cat;

struct Flags {
  std::string devices = "cpu:1";
  ServerOptions server;
  std::string worker;
  std::string log_level = "info";
  int64_t threads_per_rank = 0;
  bool own_memory = false;
  int ready_fd = -1;
  int alive_fd = -1;
  std::string scratch;
  Limits limits;
};

std::string DefaultListen() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return Cat("unix:", runtime, "/hostir/socket");
  return Cat("unix:/tmp/hostir-", getuid(), "/socket");
}

void AddFlags(CLI::App& app, Flags& flags) {
  flags.server.listen = DefaultListen();
  flags.worker =
      (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hostir-worker").string();
  app.add_option(
         "--devices", flags.devices,
         "cpu:N: N devices, each a process with a share of the cores; cuda:all, or cuda:0,2: "
         "all GPUs, or those with these numbers")
      ->capture_default_str();
  app.add_option("--listen", flags.server.listen,
                 "unix:/path in a directory that is this user's alone, or tcp:host:port")
      ->capture_default_str();
  app.add_flag("--insecure-tcp", flags.server.insecure_tcp,
               "allow tcp: on loopback, where every user of this machine can connect");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error, off")
      ->capture_default_str();
  app.add_option("--threads-per-rank", flags.threads_per_rank,
                 "0: the cores divided by the devices")
      ->capture_default_str();
  app.add_flag("--own-memory", flags.own_memory,
               "keep tensors in the memory of CPU workers, as it is with GPUs: for tests");
  app.add_option("--worker", flags.worker, "the worker program")->capture_default_str();
  app.add_option("--ready-fd", flags.ready_fd,
                 "write the address and a newline there when ready, and close it");
  app.add_option("--alive-fd", flags.alive_fd,
                 "exit when this descriptor ends: a private daemon of its opener");
  app.add_option("--scratch", flags.scratch,
                 "a folder that is removed when --alive-fd has ended: its opener no longer can");
  for (const LimitInfo& info : kLimits) {
    std::string name = Cat("--", info.name);
    std::replace(name.begin(), name.end(), '_', '-');
    app.add_option(name, flags.limits.*info.value, std::string(info.what))
        ->capture_default_str()
        ->check(CLI::Range(info.least, info.most))
        ->group("Limits");
  }
}

void Log(const Devices& devices) {
  for (const LocalDevice& device : devices.used) {
    if (devices.kind == "cpu") break;  // They all are the same.
    spdlog::info("device={}:{} model=\"{}\" memory_bytes={} architecture={}", devices.kind,
                 device.ordinal, device.model, device.memory_bytes, device.target.architecture());
  }
  for (const LocalDevice& device : devices.failed) {
    spdlog::error("device={}:{} error=\"{}\"", devices.kind, device.ordinal,
                  device.failure.ToString());
  }
  if (!devices.failure.ok()) spdlog::error("no device error=\"{}\"", devices.failure.ToString());
}

// A descriptor per shard: as many as the machine allows.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocks until a signal asks for the end (true: drain), or the opener of --alive-fd is gone (false:
// nobody to drain for).
bool WaitForEnd(const Fd& signals, const Fd& alive) {
  for (;;) {
    pollfd fds[2] = {{signals.get(), POLLIN, 0}, {alive.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) return true;
    char byte = 0;
    if (fds[1].revents != 0 && read(alive.get(), &byte, 1) <= 0) return false;
  }
}

// Returns when asked to end. `abandoned`: the opener of --alive-fd has gone.
Status Serve(Flags& flags, const Fd& signals, bool& abandoned) {
  const Fd alive(flags.alive_fd);
  Fd ready(flags.ready_fd);
  HIR_ASSIGN(const DeviceRequest request, ParseDevices(flags.devices));
  std::vector<std::string> worker_args = {Cat("--log-level=", flags.log_level)};
  if (flags.own_memory) worker_args.push_back("--own-memory");
  if (flags.limits.device_bytes_max > 0)
    worker_args.push_back(Cat("--device-bytes-max=", flags.limits.device_bytes_max));
  Devices devices = FindDevices(request, {.worker_path = flags.worker, .worker_args = worker_args});
  if (flags.own_memory) devices.own_memory = true;
  Log(devices);
  const int64_t num_devices = devices.size();
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  int64_t memory_bytes = 0;
  for (const LocalDevice& device : devices.used) memory_bytes += device.memory_bytes;
  EngineOptions options = {.worker_path = flags.worker,
                           .worker_args = std::move(worker_args),
                           .devices = std::move(devices),
                           .threads_per_rank = flags.threads_per_rank,
                           .limits = Resolved(flags.limits, memory_bytes)};
  if (options.threads_per_rank == 0)
    options.threads_per_rank = std::max<int64_t>(1, cores / std::max<int64_t>(1, num_devices));
  Engine engine(options);
  HIR_TRY(engine.Start().WithContext(Cat("cannot start ", num_devices, " workers")));
  HIR_ASSIGN(const std::unique_ptr<Server> server, Server::Start(flags.server, engine));
  spdlog::info("ready address={} devices={} threads_per_rank={} pid={}", server->address(),
               flags.devices, options.threads_per_rank, getpid());
  if (ready.valid()) {
    const std::string line = server->address() + "\n";
    (void)!write(ready.get(), line.data(), line.size());
    ready.Close();
  }
  abandoned = !WaitForEnd(signals, alive);
  if (!abandoned) {
    spdlog::info("draining");
    const base::Nanos deadline =
        base::Clock::Steady().Now() + std::chrono::milliseconds(options.limits.drain_timeout_ms);
    engine.Drain(deadline);
    if (!server->Drain(deadline)) {
      spdlog::warn("drain_timeout_ms = {} is over: what is still under way is ended",
                   options.limits.drain_timeout_ms);
    }
  }
  engine.Stop();  // While the server can still say so to those who wait.
  spdlog::info("stopped");
  return {};
}

int Main(int argc, char** argv) {
  CLI::App app(
      "hostird: runs tensor programs on the devices of this machine, for clients over gRPC.");
  Flags flags;
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  spdlog::flush_on(spdlog::level::info);

  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigprocmask(SIG_BLOCK, &ending, nullptr);  // Before there are threads: they all block them.
  signal(SIGPIPE, SIG_IGN);
  const Fd signals(signalfd(-1, &ending, SFD_CLOEXEC));
  RaiseDescriptorLimit();
  bool abandoned = false;
  const Status status = Serve(flags, signals, abandoned);
  if (abandoned && !flags.scratch.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(flags.scratch, ignored);
  }
  if (status.ok()) return 0;
  spdlog::critical("error=\"{}\"", status.ToString());
  return 1;
}

}  // namespace
}  // namespace hir::service

int main(int argc, char** argv) { return hir::service::Main(argc, argv); }
