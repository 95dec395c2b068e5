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
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "service/config/config.h"
#include "service/engine/engine.h"
#include "service/log/access_log.h"
#include "service/log/log.h"
#include "service/member/member.h"
#include "service/metrics/exposer.h"
#include "service/os/address.h"
#include "service/os/affinity.h"
#include "service/os/exit_code.h"
#include "service/os/first_process.h"
#include "service/os/listen.h"
#include "service/os/machine_memory.h"
#include "service/os/node_list.h"
#include "service/os/notify.h"
#include "service/os/shared_memory.h"
#include "service/rpc/server.h"
#include "service/supervise/devices.h"
#include "service/topology/topology.h"

namespace hir::service {
namespace {

using base::Cat;

// What belongs to one process, and is no setting.
struct Plumbing {
  std::string config;  // The file of --config.
  bool check_config = false;
  bool version = false;
  int ready_fd = -1;
  int alive_fd = -1;
  std::string scratch;
};

Config Defaults() {
  Config config;
  config.listen = DefaultAddress();
  config.worker = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hostir-worker").string();
  return config;
}

std::string RangeOf(const Setting& setting) {
  if (setting.IsText()) return setting.words.empty() ? "TEXT" : base::Join(setting.words, "|");
  return Cat(setting.least, " to ", setting.most);
}

// CLI11 throws something else where what a switch is set to is no number either.
std::string RefuseNoSwitch(const std::string& text) {
  for (const char* known : {"true", "false", "1", "0"}) {
    if (text == known) return {};
  }
  return text + ": want true or false";
}

// The flags of settings put what they are given into `given`, as text.
void AddFlags(CLI::App& app, std::vector<Given>& given, Plumbing& plumbing) {
  app.add_option("--config", plumbing.config, "a TOML file of settings: keys are the flags' names with underscores");
  app.add_flag("--check-config", plumbing.check_config,
               "print the configuration and the origin of each value, and exit: 0, or 2 when "
               "something is wrong with it");
  app.add_flag("--version", plumbing.version, "print the version");
  const Config defaults = Defaults();
  for (const Setting& setting : Settings()) {
    const auto give = [&given, &setting](const std::string& text) {
      const std::string flag = setting.Flag();
      given.push_back({setting.key, text, Cat(flag, "=", text), flag});
    };
    CLI::Option* option = nullptr;
    if (setting.IsSwitch()) {
      option = app.add_flag_function(
          setting.Flag(), [give](int64_t count) { give(count > 0 ? "true" : "false"); }, setting.what);
      option->check(RefuseNoSwitch);
    } else {
      option = app.add_option_function<std::string>(setting.Flag(), give, setting.what);
      option->type_name(RangeOf(setting))->default_str(setting.ValueIn(defaults));
    }
    if (setting.IsLimit()) option->group("Limits");
  }
  app.add_option("--ready-fd", plumbing.ready_fd, "write the address and a newline there when ready, and close it")
      ->group("Of one process");
  app.add_option("--alive-fd", plumbing.alive_fd, "exit when this descriptor ends: a private daemon of its opener")
      ->group("Of one process");
  app.add_option("--scratch", plumbing.scratch,
                 "a folder that is removed when --alive-fd has ended: its opener no longer can")
      ->group("Of one process");
  app.footer(
      "Values: flags, then the environment (HOSTIR_QUEUED_RUNS_MAX), then --config, then "
      "defaults.\n"
      "Exit codes: 0 ended as asked; 2 command line or configuration; 3 the devices' processes do "
      "not start;\n4 another daemon has the address; 1 anything else.\n\n"
      "  hostird --devices cpu:4\n"
      "  hostird --devices cuda:all --listen unix:/run/user/1000/hostir/socket\n"
      "  hostird --config /etc/hostir/hostird.toml --check-config");
}

// The flags that CLI11 did not know, each with the nearest that there is.
void RefuseUnknown(const CLI::App& app, std::vector<std::string>& faults) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  for (const std::string& argument : app.remaining()) {
    const std::string name = argument.substr(0, argument.find('='));
    const std::string_view near = name.starts_with("--") ? base::Nearest(name.substr(2), names) : std::string_view();
    faults.push_back(Cat(name, name.starts_with("-") ? ": no such flag" : ": no such argument",
                         near.empty() ? "" : Cat("; did you mean --", near, "?"), " (hostird --help lists them)"));
  }
}

void Log(const Devices& devices) {
  for (const LocalDevice& device : devices.used) {
    if (devices.kind == "cpu") break;  // They all are the same.
    spdlog::info("device={}:{} model=\"{}\" memory_bytes={} architecture={}", devices.kind, device.ordinal,
                 device.model, device.memory_bytes, device.target.architecture());
  }
  for (const LocalDevice& device : devices.failed) {
    spdlog::error("device={}:{} error={}", devices.kind, device.ordinal, base::Quoted(device.failure.ToString()));
  }
  if (!devices.failure.ok()) spdlog::error("no device error={}", base::Quoted(devices.failure.ToString()));
}

// A descriptor per shard: as many as the machine allows.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// kAsked: by a signal, to drain; kAbandoned: the opener of --alive-fd is gone, nobody to drain for; kChanged: whether
// this node heads its cluster.
enum class End : uint8_t { kAsked, kAbandoned, kChanged };

// Blocks until there is a reason to end. `member` may be null; `heads`: what it does as long as this waits. Meanwhile
// `probe` says whether the process does its work: as of Watchdog.
End WaitForEnd(const base::Fd& signals, const base::Fd& alive, Member* member, bool heads,
               std::function<void()> probe) {
  Watchdog watchdog(WatchdogTimeout(), std::move(probe));
  for (;;) {
    watchdog.Look();
    if (member != nullptr && member->heads() != heads)
      return End::kChanged;  // Before poll: it clears what that waits for.
    const int changed = member == nullptr ? -1 : member->changed_fd();
    pollfd fds[3] = {{signals.get(), POLLIN, 0}, {alive.get(), POLLIN, 0}, {changed, POLLIN, 0}};
    if (poll(fds, 3, watchdog.MsToWait()) <= 0) continue;
    if (fds[0].revents != 0) return End::kAsked;
    char byte = 0;
    if (fds[1].revents != 0 && read(alive.get(), &byte, 1) <= 0) return End::kAbandoned;
  }
}

// How it ended: a status, and the exit code of one that is not OK.
struct Ending {
  Status status = {};
  int code = kExitFailed;
  bool abandoned = false;  // The opener of --alive-fd has gone.
};

int CodeOfAddress(const Status& status) {
  if (status.code() == Code::kAlreadyExists || status.code() == Code::kUnavailable) return kExitAddress;
  const bool refused = status.code() == Code::kPermissionDenied || status.code() == Code::kInvalidArgument;
  return refused ? kExitUsage : kExitFailed;
}

// The cores of each rank; empty: the system moves them. Ranks wait for each other, so while the system has two on one
// core and another core idle, all are late.
std::vector<Cores> CoresOfRanks(const Config& config, const EngineOptions& options) {
  const int64_t num_ranks = options.num_devices();
  if (config.bind_ranks != "on" || options.devices.kind != "cpu" || num_ranks < 2) return {};
  const Result<Cores> cores = CoresInOrder();
  if (!cores.ok()) {
    spdlog::warn("ranks are not bound to cores: {}", cores.status().message());
    return {};
  }
  std::vector<Cores> shares = ShareCores(*cores, num_ranks);
  // Whoever asks for more threads than there are cores in a share wants them on others.
  for (const Cores& share : shares) {
    if (static_cast<int64_t>(share.size()) < options.threads_per_rank) return {};
  }
  return shares;
}

// What the engine runs on, with everything that depends on the machine settled.
EngineOptions FindOptions(const Config& config, const DeviceRequest& request) {
  std::vector<std::string> worker_args = {Cat("--log-level=", config.log_level)};
  if (config.own_memory) worker_args.push_back("--own-memory");
  if (config.nvlink_multicast) worker_args.push_back("--nvlink-multicast");
  if (config.peer_memory == "off") worker_args.push_back("--no-peer-memory");
  if (config.overlap != "chosen") worker_args.push_back(Cat("--overlap=", config.overlap));
  Devices devices = FindDevices(request, {.worker_path = config.worker, .worker_args = worker_args});
  if (config.own_memory) devices.own_memory = true;
  Log(devices);
  const int64_t num_devices = devices.size();
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  Machine machine = {.memory_bytes = MachineMemoryBytes(), .num_cpu_devices = devices.kind == "cpu" ? num_devices : 0};
  for (const LocalDevice& device : devices.used) machine.device_memory_bytes += device.memory_bytes;
  EngineOptions options = {.worker_path = config.worker,
                           .worker_args = std::move(worker_args),
                           .devices = std::move(devices),
                           .threads_per_rank = config.threads_per_rank,
                           .limits = Resolved(config.limits, machine)};
  if (const int64_t bytes_max = options.limits.device_bytes_max; bytes_max > 0)
    options.worker_args.push_back(Cat("--device-bytes-max=", bytes_max));
  options.busy_wait = config.busy_wait == "auto" ? base::BusyWait::Mode::kAuto
                      : config.busy_wait == "on" ? base::BusyWait::Mode::kOn
                                                 : base::BusyWait::Mode::kOff;
  if (options.threads_per_rank == 0)
    options.threads_per_rank = std::max<int64_t>(1, cores / std::max<int64_t>(1, num_devices));
  options.cores = CoresOfRanks(config, options);
  return options;
}

void SayReady(const std::string& address, base::Fd& ready) {
  NotifyManager(Cat("READY=1\nSTATUS=serving on ", address));
  if (!ready.valid()) return;
  const std::string line = address + "\n";
  (void)!write(ready.get(), line.data(), line.size());
  ready.Close();
}

void Drain(int64_t timeout_ms, Server& server) {
  SharedMemory::LeavePages();  // A client that trains has its parameters there.
  spdlog::info("draining");
  NotifyManager("STOPPING=1");
  const base::Nanos deadline = base::Clock::Steady().Now() + std::chrono::milliseconds(timeout_ms);
  if (!server.Drain(deadline)) {
    spdlog::warn("drain_timeout_ms={} is over: what is still under way is ended", timeout_ms);
  }
}

Result<std::optional<host::Rates>> ReadRates(const std::string& path) {
  if (path.empty()) return std::optional<host::Rates>();
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return Status(Code::kNotFound, Cat("--rates=", path, ": cannot be read"));
  Result<host::Rates> rates = host::ParseRates(text.str());
  if (!rates.ok()) return rates.status().WithContext(Cat("--rates=", path));
  return std::optional<host::Rates>(*std::move(rates));
}

// Null: none is wanted.
Result<std::unique_ptr<AccessLog>> OpenAccessLog(const Config& config) {
  if (config.access_log.empty()) return std::unique_ptr<AccessLog>();
  const bool json = config.access_log_format == "json";
  auto log = AccessLog::Open(config.access_log, json ? AccessLog::Format::kJson : AccessLog::Format::kText);
  if (!log.ok()) return log.status().WithContext(Cat("--access-log=", config.access_log));
  return log;
}

// Null: nobody is to read them.
Result<std::unique_ptr<Exposer>> ExposeMetrics(const Config& config, const Engine& engine, const Server& server) {
  if (config.metrics.empty()) return std::unique_ptr<Exposer>();
  HIR_ASSIGN(const Address address, ParseAddress(config.metrics));
  auto exposer = Exposer::Start(
      address, engine.metrics(), [&server] { return server.metrics_state(); }, server.page_texts());
  if (!exposer.ok()) return exposer.status().WithContext(Cat("--metrics=", config.metrics));
  spdlog::info("metrics address={}", (*exposer)->address());
  return exposer;
}

void SayWaiting(const std::string& who) { spdlog::warn("waiting for {}", who); }

// Null: this node is alone.
Result<std::unique_ptr<Member>> JoinCluster(const Config& config, const EngineOptions& here, int interrupt_fd) {
  if (!config.is_of_several()) return std::unique_ptr<Member>();
  MemberOptions options = {.cluster = config.cluster_name, .tls = config.tls(), .listen = config.listen};
  if (config.cluster.empty()) {
    options.node = config.node;
    HIR_ASSIGN(options.nodes, ParseNodes(config.nodes));
  } else {
    options.etcd_tls = config.etcd_tls();
    options.size = config.cluster_size;
    HIR_ASSIGN(options.etcd, ParseEtcd(config.cluster));
    HIR_ASSIGN(options.address, ParseAddress(config.node_address));
  }
  return Member::Make(std::move(options), here, interrupt_fd, SayWaiting);
}

// The process's own, whether it heads or obeys.
struct Ends {
  const base::Fd& signals;
  const base::Fd& alive;
  base::Fd& ready;
};

// A node that obeys.
End ServeNode(Member& member, const Ends& ends) {
  spdlog::info("ready node={}: its devices are the head's to order", member.address().ToString());
  SayReady(member.address().ToString(), ends.ready);
  const End end =
      WaitForEnd(ends.signals, ends.alive, &member, /*heads=*/false, [&member] { (void)member.kept_bytes(); });
  if (end == End::kChanged) return end;
  NotifyManager("STOPPING=1");
  spdlog::info("stopped");
  return end;
}

// Serves clients at `held`, with what `member`, unless it is null, heads. Returns when that is to end; kChanged: by
// itself.
Result<End> ServeClients(const Config& config, HeldAddress held, std::optional<Listening> given, EngineOptions options,
                         Member* member, const Ends& ends, int& code) {
  code = kExitDevice;
  if (member != nullptr) {
    Result<EngineOptions> all =
        member->AllNodes(options, config.limits, MachineMemoryBytes(), ends.signals.get(), SayWaiting);
    if (all.status().code() == Code::kAborted) return End::kChanged;
    if (all.status().code() == Code::kCancelled) return End::kAsked;
    if (!all.ok()) return all.status().WithContext("the cluster");
    options = *std::move(all);
  }
  Engine engine(options);
  if (const Status status = engine.Start(); !status.ok())
    return status.WithContext(Cat("cannot start ", options.num_devices(), " workers"));
  code = kExitUsage;
  HIR_ASSIGN(const std::unique_ptr<AccessLog> access, OpenAccessLog(config));
  Result<std::unique_ptr<Server>> server =
      Server::Start(std::move(held), config.tls(), engine, access.get(), std::move(given),
                    member == nullptr ? nullptr : member->ShardsHere());
  if (!server.ok()) code = CodeOfAddress(server.status());
  if (!server.ok()) return server.status();
  const Result<std::unique_ptr<Exposer>> exposer = ExposeMetrics(config, engine, **server);
  if (!exposer.ok()) code = CodeOfAddress(exposer.status());
  if (!exposer.ok()) return exposer.status();
  spdlog::info("ready address={} devices={} threads_per_rank={} pid={}", (*server)->address(), config.devices,
               options.threads_per_rank, getpid());
  SayReady((*server)->address(), ends.ready);
  const End end = WaitForEnd(ends.signals, ends.alive, member, /*heads=*/true, [&engine] { (void)engine.report(); });
  if (end == End::kAsked) Drain(options.limits.drain_timeout_ms, **server);
  // While the server can still say so to those who wait.
  engine.Stop(end == End::kChanged ? Unavailable("another node heads the cluster now: connect to that one") : Status());
  if (access != nullptr) (void)access->Flush(std::chrono::seconds(1));
  spdlog::info(end == End::kChanged ? "heads no longer" : "stopped");
  return end;
}

// The first of a list of nodes alone has clients. Nodes of one machine may then all be given the same --listen.
bool HasClients(const Config& config) { return config.nodes.empty() || config.node == 0; }

// Returns when asked to end.
Ending Serve(const Config& config, const Plumbing& plumbing, const base::Fd& signals) {
  const base::Fd alive(plumbing.alive_fd);
  base::Fd ready(plumbing.ready_fd);
  const Ends ends = {signals, alive, ready};
  // First, since it takes no time: what is in the way of the address is known before any worker starts.
  const Result<Address> address = ParseAddress(config.listen);
  if (!address.ok()) return {address.status(), kExitUsage};
  Result<std::optional<Listening>> taken = TakeListening(*address);
  if (!taken.ok()) return {taken.status(), kExitUsage};
  std::optional<Listening> given = *std::move(taken);
  if (given.has_value() && !config.cluster.empty()) {
    return {InvalidArgument("a socket of the manager's, and --cluster: each node listens when it heads, by itself"),
            kExitUsage};
  }
  Result<HeldAddress> held = !HasClients(config) ? HeldAddress()
                             : given.has_value() ? HeldAddress::TakeGiven(*address)
                                                 : HeldAddress::Take(*address);
  if (!held.ok()) return {held.status().WithContext(Cat("--listen=", config.listen)), CodeOfAddress(held.status())};
  const Result<DeviceRequest> request = ParseDevices(config.devices);
  if (!request.ok()) return {request.status().WithContext("--devices"), kExitUsage};
  Result<std::optional<host::Rates>> rates = ReadRates(config.rates);
  if (!rates.ok()) return {rates.status(), kExitUsage};
  EngineOptions options = FindOptions(config, *request);
  options.rates = *std::move(rates);
  KeepTransport();
  const Result<std::unique_ptr<Member>> joined = JoinCluster(config, options, signals.get());
  if (joined.status().code() == Code::kCancelled) return {};
  if (!joined.ok())
    return {joined.status().WithContext(config.nodes.empty() ? "--cluster" : "--nodes"),
            CodeOfAddress(joined.status())};
  Member* const member = joined->get();
  std::optional<HeldAddress> to_serve(*std::move(held));
  for (;;) {
    if (member != nullptr && !member->heads()) {
      const End end = ServeNode(*member, ends);
      if (end != End::kChanged) return {.abandoned = end == End::kAbandoned};
      continue;
    }
    if (!to_serve) {
      Result<HeldAddress> again = HeldAddress::Take(*address);
      if (!again.ok())
        return {again.status().WithContext(Cat("--listen=", config.listen)), CodeOfAddress(again.status())};
      to_serve.emplace(*std::move(again));
    }
    int code = kExitFailed;
    // A given socket is there once: whoever serves again is of a --cluster.
    const Result<End> end =
        ServeClients(config, *std::move(to_serve), std::exchange(given, std::nullopt), options, member, ends, code);
    to_serve.reset();
    if (!end.ok()) return {end.status(), code};
    if (*end != End::kChanged) return {.abandoned = *end == End::kAbandoned};
    member->StandAgain();
  }
}

// Flags, environment and file together.
Resolution Configure(CLI::App& app, const std::vector<Given>& flags, const Plumbing& plumbing) {
  std::vector<std::string> faults;
  RefuseUnknown(app, faults);
  std::vector<Given> file;
  if (app.count("--config") > 0) file = FromFile(plumbing.config, faults);
  const std::vector<std::vector<Given>> layers = {file, FromEnvironment(environ, faults), flags};
  Resolution resolved = Resolve(Defaults(), layers, RankOfLauncher(environ));
  resolved.faults.insert(resolved.faults.begin(), faults.begin(), faults.end());
  return resolved;
}

// Blocks the signals that ask for the end, before there are threads: they all block them. They arrive here.
base::Fd EndingSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // What is too large for `ulimit -f` fails, and the rest goes on.
  return base::Fd(signalfd(-1, &ending, SFD_CLOEXEC));
}

int Main(int argc, char** argv) {
  CLI::App app("hostird: runs tensor programs on the devices of this machine, for clients over gRPC.");
  std::vector<Given> flags;
  Plumbing plumbing;
  AddFlags(app, flags, plumbing);
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "hostird: %s (hostird --help lists them)\n", error.what());
    return kExitUsage;
  }
  if (plumbing.version) {
    std::fputs(Cat("hostird ", kVersion, "\n").c_str(), stdout);
    return kExitDone;
  }
  const Resolution resolved = Configure(app, flags, plumbing);
  for (const std::string& fault : resolved.faults) std::fprintf(stderr, "hostird: %s\n", fault.c_str());
  if (!resolved.faults.empty()) return kExitUsage;
  if (plumbing.check_config) {
    std::fputs(resolved.ToString().c_str(), stdout);
    return kExitDone;
  }
  // The workers and the planner inherit it: UCX would print a stack where they crash, for which it allocates memory,
  // and one that crashes while it allocates would hang instead of ending.
  setenv("UCX_HANDLE_ERRORS", "none", /*overwrite=*/0);
  StartLog(resolved.config.log_level);
  RaiseDescriptorLimit();
  const Ending ending = Serve(resolved.config, plumbing, EndingSignals());
  if (ending.abandoned && !plumbing.scratch.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(plumbing.scratch, ignored);
  }
  if (!ending.status.ok()) spdlog::critical("error={}", base::Quoted(ending.status.ToString()));
  FlushLog();
  return ending.status.ok() ? kExitDone : ending.code;
}

}  // namespace
}  // namespace hir::service

int main(int argc, char** argv) {
  hir::service::LeaveFirstProcess();
  return hir::service::Main(argc, argv);
}
