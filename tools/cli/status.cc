// hostir status, health and top.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "csrc/base/text.h"
#include "service/client/client.h"
#include "service/os/affinity.h"
#include "tools/cli/commands.h"
#include "tools/cli/connection.h"
#include "tools/cli/ending.h"
#include "tools/cli/json.h"
#include "tools/cli/latency.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"

namespace hir::cli {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

constexpr const char* kHomeAndErase = "\x1b[H\x1b[J";

Outcome Ask(service::Client& client, pb::StatusReply* reply) {
  Result<pb::StatusReply> asked = client.GetStatus();
  if (!asked.ok()) return {asked.status(), client.lost() ? service::kExitAddress : service::kExitFailed};
  *reply = *std::move(asked);
  return {};
}

// "2 d 3 h", "4 min 5 s"
std::string Duration(int64_t ms) {
  const int64_t s = ms / 1000;
  if (s >= 86400) return Cat(s / 86400, " d ", s % 86400 / 3600, " h");
  if (s >= 3600) return Cat(s / 3600, " h ", s % 3600 / 60, " min");
  if (s >= 60) return Cat(s / 60, " min ", s % 60, " s");
  return Cat(s, " s");
}

int64_t LimitOf(const pb::StatusReply& status, const std::string& name) {
  for (const pb::Limit& limit : status.limits()) {
    if (limit.name() == name) return limit.value();
  }
  return 0;
}

// "3 of 1024"
std::string Of(int64_t value, int64_t limit) { return Cat(value, " of ", limit); }

std::string Head(const std::string& address, const pb::StatusReply& status) {
  return Cat("hostird ", status.version(), " at ", address, ": ",
             status.serving()           ? "serving"
             : status.draining()        ? "draining"
             : status.devices().empty() ? "no device"
                                        : "restarting its workers",
             ", up ", Duration(status.uptime_ms()), ", generation ", status.generation(), "\n");
}

// How much changed per second since `before`; empty when there is none.
std::string Rate(int64_t now, std::optional<int64_t> before, double seconds) {
  if (!before.has_value() || seconds <= 0) return "";
  return Cat(" (", Fixed(static_cast<double>(now - *before) / seconds, 1), "/s)");
}

// `before`: the state `seconds` ago; null at first.
std::string Amounts(const pb::StatusReply& now, const pb::StatusReply* before, double seconds) {
  const auto was = [&](int64_t value) { return before == nullptr ? std::optional<int64_t>() : std::optional(value); };
  const pb::StatusReply& then = before == nullptr ? now : *before;
  return Cat("tensors   ", Of(now.tensors(), LimitOf(now, "tensors_max")), ", ", Bytes(now.tensor_bytes()), " of ",
             Bytes(LimitOf(now, "tensor_bytes_max")),
             now.recycled_bytes() > 0 ? Cat("; ", Bytes(now.recycled_bytes()), " kept for the next outputs") : "",
             "\nrequests  ", now.requests(), Rate(now.requests(), was(then.requests()), seconds), ", ",
             now.requests_under_way(), " under way; ", Of(now.sessions(), LimitOf(now, "sessions_max")), " sessions, ",
             Of(now.connections(), LimitOf(now, "connections_max")), " connections", "\nruns      ", now.runs_over(),
             " over", Rate(now.runs_over(), was(then.runs_over()), seconds), ", ", now.queued_runs(), " queued",
             "\nplans     ", now.plans(), Rate(now.plans(), was(then.plans()), seconds), ", ", now.queued_plans(),
             " queued; ", Of(now.programs(), LimitOf(now, "programs_max")), " programs\n");
}

std::string Ranks(const pb::StatusReply& now, const pb::StatusReply* before, double seconds) {
  std::vector<std::vector<std::string>> rows = {{"rank", "device", "model", "memory", "threads", "cores", "pid",
                                                 "resident", before == nullptr ? "cpu s" : "cpu %"}};
  const bool several =
      std::ranges::any_of(now.devices(), [](const pb::Device& device) { return !device.node().empty(); });
  if (several) rows[0].insert(rows[0].begin() + 1, "node");
  for (int i = 0; i < now.devices_size(); ++i) {
    const pb::Device& device = now.devices(i);
    const bool same = before != nullptr && i < before->devices_size() && before->devices(i).pid() == device.pid();
    const int64_t since = same ? before->devices(i).cpu_ms() : 0;
    const double cpu_s = static_cast<double>(device.cpu_ms() - since) / 1e3;
    rows.push_back(
        {Cat(device.rank()), Cat(device.kind(), ":", device.ordinal()), device.model().empty() ? "-" : device.model(),
         device.memory_bytes() == 0 ? "shared" : Bytes(device.memory_bytes()), Cat(device.num_threads()),
         device.cores().empty() ? "any"
                                : service::CoresText(service::Cores(device.cores().begin(), device.cores().end())),
         device.pid() == 0 ? "-" : Cat(device.pid()),
         device.resident_bytes() == 0 ? "-" : Bytes(device.resident_bytes()),
         device.resident_bytes() == 0 ? "-"
         : before == nullptr          ? Fixed(cpu_s, 1)
         : same                       ? Fixed(100 * cpu_s / seconds, 0)
                                      : "-"});
    if (several) rows.back().insert(rows.back().begin() + 1, device.node());
  }
  std::string out = Table(rows);
  for (const pb::NodeStatus& node : now.nodes()) {
    if (node.bytes_per_us() > 0)
      base::Append(out, "link of ", node.address(), ": ", Fixed(node.bytes_per_us() * 8e-3, 3), " Gbit/s, ",
                   Fixed(node.message_us(), 0), " us a message\n");
  }
  std::string said;
  for (const pb::Device& device : now.devices()) {
    if (device.has_error() && device.error().message() != std::exchange(said, device.error().message()))
      base::Append(out, said, "; what needs its devices is refused\n");
  }
  for (const pb::Device& device : now.failed_devices())
    base::Append(out, "cannot be used: ", device.kind(), ":", device.ordinal(), ": ", device.error().message(), "\n");
  if (const pb::RunUnderWay& run = now.run_under_way(); now.has_run_under_way()) {
    base::Append(out, run.slow() ? "slow: " : "under way: ", run.what(), ", for ", Duration(run.ms()),
                 run.usual_ms() > 0 ? Cat(", the one before took ", run.usual_ms(), " ms") : "", ": ", run.where(),
                 "\n");
  }
  if (!now.last_failure().empty()) base::Append(out, "last failure: ", now.last_failure(), "\n");
  for (const std::string& lingering : now.lingering())
    base::Append(out, "killed, and does not end: ", lingering, ": is it frozen, in a driver, or in a debugger?\n");
  return out;
}

std::string Principals(const pb::StatusReply& now, const pb::StatusReply* before) {
  const std::string table = PrincipalTable(now, before);
  return table.empty() ? "" : table + "\n";
}

std::string LimitTable(const pb::StatusReply& status) {
  std::vector<std::vector<std::string>> rows = {{"limit", "value"}};
  for (const pb::Limit& limit : status.limits()) rows.push_back({limit.name(), Cat(limit.value())});
  return Table(rows);
}

}  // namespace

Outcome ShowStatus(const Options& options) {
  std::unique_ptr<service::Client> client;
  if (Outcome outcome = ConnectTo(AddressOf(options), options, &client); !outcome.ok()) return outcome;
  pb::StatusReply status;
  if (Outcome outcome = Ask(*client, &status); !outcome.ok()) return outcome;
  const std::string text =
      options.json ? ToJson(status) + "\n"
                   : Cat(Head(client->address(), status), Amounts(status, nullptr, 0), "planner   pid ",
                         status.planner_pids().empty() ? "none" : base::Join(status.planner_pids(), ", "), "\n",
                         status.log_lines_dropped() == 0
                             ? ""
                             : Cat("log       ", status.log_lines_dropped(),
                                   " lines dropped: nobody takes them from the daemon's standard output\n"),
                         "\n", Ranks(status, nullptr, 0), "\n", LimitTable(status));
  return WriteOutput(text);
}

Outcome CheckHealth(const Options& options) {
  std::unique_ptr<service::Client> client;
  if (Outcome outcome = ConnectTo(AddressOf(options), options, &client); !outcome.ok()) return outcome;
  const Result<bool> serves = client->GetHealth();
  if (!serves.ok()) return {serves.status(), client->lost() ? service::kExitAddress : service::kExitFailed};
  if (*serves) return WriteOutput("serving\n");
  return {Unavailable(Cat(client->address(), " does not serve: its mesh is down, or it drains")), service::kExitFailed};
}

Outcome ShowTop(const Options& options) {
  std::optional<Ending> ending;
  if (!options.once) ending.emplace();  // Before gRPC has threads.
  std::unique_ptr<service::Client> client;
  if (Outcome outcome = ConnectTo(AddressOf(options), options, &client); !outcome.ok()) return outcome;
  std::optional<pb::StatusReply> before;
  const bool screen = isatty(STDOUT_FILENO) == 1 && !options.once;
  for (;;) {
    pb::StatusReply now;
    if (Outcome outcome = Ask(*client, &now); !outcome.ok()) return outcome;
    const pb::StatusReply* then = before.has_value() ? &*before : nullptr;
    const double seconds =
        then == nullptr ? 0 : static_cast<double>(std::max<int64_t>(1, now.uptime_ms() - then->uptime_ms())) / 1e3;
    const std::string text =
        Cat(Head(client->address(), now), Amounts(now, then, seconds), "\n", LatencyTable(now, then, seconds), "\n",
            Principals(now, then), Ranks(now, then, seconds), screen || options.once ? "" : "\n");
    const std::string shown = screen ? Cat(kHomeAndErase, Fitted(text, SizeOfTerminal(STDOUT_FILENO))) : text;
    if (Outcome outcome = WriteOutput(shown); !outcome.ok()) return outcome;
    if (options.once || ending->Within(options.interval_s)) return {};
    before = std::move(now);
  }
}

}  // namespace hir::cli
