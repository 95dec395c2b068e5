#include "tools/cli/connection.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "service/os/address.h"
#include "service/supervise/devices.h"

namespace hir::cli {
namespace {

using base::Cat;

constexpr std::string_view kOwnDevices = "cpu:4";
constexpr std::chrono::seconds kTimeout = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kTurn{500};                         // Of one of several addresses.
constexpr std::chrono::seconds kGpuTimeout = std::chrono::seconds(60);  // Opening GPUs takes a while.

std::string AddressInEnvironment() {
  const char* address = std::getenv("HOSTIR_ADDRESS");
  return address == nullptr ? "" : address;
}

// Whether a socket is there; somebody may have left it.
bool HasSocket(const std::string& address) {
  const Result<service::Address> parsed = service::ParseAddress(address);
  struct stat info = {};
  return parsed.ok() && parsed->is_unix && stat(parsed->target.c_str(), &info) == 0;
}

// The devices that a daemon is to be started on; empty: one runs.
std::string OwnDevices(const Options& options) {
  if (!options.devices.empty()) return options.devices;
  if (!options.address.empty() || !AddressInEnvironment().empty()) return "";
  return HasSocket(service::DefaultAddress()) ? "" : std::string(kOwnDevices);
}

// A client of the first that answers, of several with commas between: of a cluster one node alone heads.
Result<std::unique_ptr<service::Client>> ConnectToAny(const std::string& addresses, const service::TlsFiles& tls) {
  if (addresses.find(',') == std::string::npos) return service::Client::Connect(addresses, tls, kTimeout);
  const auto end = std::chrono::steady_clock::now() + kTimeout;
  for (size_t begin = 0;;) {
    const size_t comma = addresses.find(',', begin);
    Result<std::unique_ptr<service::Client>> connected =
        service::Client::Connect(addresses.substr(begin, comma - begin), tls, kTurn);
    const Code code = connected.status().code();
    const bool is_away = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    if (!is_away || std::chrono::steady_clock::now() > end) return connected;
    begin = comma == std::string::npos ? 0 : comma + 1;
  }
}

}  // namespace

std::string AddressOf(const Options& options) {
  if (!options.address.empty()) return options.address;
  const std::string named = AddressInEnvironment();
  return named.empty() ? service::DefaultAddress() : named;
}

Outcome ConnectTo(const std::string& address, const Options& options, std::unique_ptr<service::Client>* client) {
  const service::TlsFiles tls = service::Client::WithEnvironment({options.ca, options.cert, options.key});
  Result<std::unique_ptr<service::Client>> connected = ConnectToAny(address, tls);
  if (connected.ok()) {
    *client = *std::move(connected);
    return {};
  }
  const Code code = connected.status().code();
  const bool of_address = code == Code::kUnavailable || code == Code::kUnauthenticated;
  return {connected.status(), of_address ? service::kExitAddress : service::kExitUsage};
}

Outcome Connection::Open(const Options& options, Progress& progress, Connection* out) {
  const std::string devices = OwnDevices(options);
  const bool is_gpu = devices.starts_with("cuda");
  std::string address = AddressOf(options);
  if (!devices.empty()) {
    if (const Status status = service::ParseDevices(devices).status(); !status.ok())
      return Usage(status.WithContext("--devices"));
    const Progress::Stage stage(progress, Cat("starting a daemon on ", devices));
    int exit_code = -1;
    auto daemon = service::PrivateDaemon::Start(service::PrivateDaemon::FindProgram(), devices,
                                                is_gpu ? kGpuTimeout : kTimeout, &exit_code);
    if (!daemon.ok()) {
      const bool told = exit_code == service::kExitDevice || exit_code == service::kExitUsage;
      return {daemon.status(), told ? exit_code : service::kExitAddress};
    }
    out->daemon_ = *std::move(daemon);
    address = out->daemon_->address();
  }
  out->where_ = devices.empty() ? address : Cat("a daemon of its own on ", devices);
  if (Outcome outcome = ConnectTo(address, options, &out->client_); !outcome.ok()) return outcome;
  service::Client::Told told;
  if (progress.shown()) told = [&progress](const ::hostir::v1::PlanProgress& plan) { progress.Plan(plan); };
  const Status opened =
      out->client_->OpenSession(Cat("hostir ", options.command, " ", kVersion, ", pid ", getpid()), std::move(told));
  return opened.ok() ? Outcome() : out->Failed(opened, /*of_run=*/false);
}

Outcome Connection::Failed(const Status& status, bool of_run) const {
  if (client_->lost()) return {status, service::kExitAddress};
  const Code code = status.code();
  const bool no_device = code == Code::kFailedPrecondition && client_->session().num_devices() == 0;
  const bool of_device = code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kDataLoss ||
                         code == Code::kAborted;
  return {status, no_device || (of_run && of_device) ? service::kExitDevice : service::kExitFailed};
}

}  // namespace hir::cli
