#include "service/config/config.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/os/address.h"
#include "service/os/node_list.h"
#include "service/supervise/devices.h"
#include "service/tls/files.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr std::string_view kPrefix = "HOSTIR_";
constexpr int64_t kThreadsMax = 1024;
constexpr int64_t kNodesMost = kNodesMax - 1;

std::vector<Setting> SettingsOfClusters() {
  return {
      {"nodes",
       "several daemons as one: their addresses (tcp:10.0.0.1:7001,tcp:10.0.0.2:7001), or a file with one a line; "
       "clients talk to the first, which heads the others",
       &Config::nodes},
      {"node", "which of --nodes this one is, from 0 on; -1: as mpirun or srun numbers its processes", &Config::node,
       -1, kNodesMost},
      {"cluster",
       "several daemons as one that etcd knows (etcd:10.0.0.9:2379, or several members with commas between): one of "
       "them is elected to head the others, and clients talk to that one",
       &Config::cluster},
      {"cluster_name", "the name of the cluster: nodes obey a head of the same name", &Config::cluster_name},
      {"cluster_size", "how many nodes a --cluster has", &Config::cluster_size, 0, kNodesMost},
      {"node_address", "where the others of a --cluster reach this node, and what it is known by: tcp:10.0.0.1:7001",
       &Config::node_address},
      {"etcd_cert", "PEM file: the certificate that is shown to etcd", &Config::etcd_cert},
      {"etcd_key", "PEM file: the private key of etcd_cert, which others cannot read", &Config::etcd_key},
      {"etcd_ca", "PEM file: the authorities that sign etcd's certificates", &Config::etcd_ca},
  };
}

std::vector<Setting> SettingsOfNodes() {
  return {
      {"devices",
       "cpu:N: N devices, each a process with a share of the cores; cuda:all, or cuda:0,2: all "
       "GPUs, "
       "or those with these numbers",
       &Config::devices},
      {"listen", "unix:/path in a directory that is this user's alone, or tcp:host:port", &Config::listen},
      {"insecure_tcp", "allow tcp: on loopback, where every user of this machine can connect", &Config::insecure_tcp},
      {"tls_cert",
       "PEM file: the daemon's certificate, which clients by tcp: check; with the two below any address is "
       "served",
       &Config::tls_cert},
      {"tls_key", "PEM file: the private key of tls_cert, which others cannot read", &Config::tls_key},
      {"tls_client_ca", "PEM file: authorities; who connects by tcp: must show a certificate that one of them signed",
       &Config::tls_client_ca},
      {.key = "log_level",
       .what = "which lines the log has",
       .field = &Config::log_level,
       .words = {"trace", "debug", "info", "warn", "error", "off"}},
      {"metrics", "where Prometheus and browsers see the daemon: tcp:127.0.0.1:9464; whoever reaches it can",
       &Config::metrics},
      {"access_log", "a file that gets a line for each request that is over; \"-\": the log's own output",
       &Config::access_log},
      {.key = "access_log_format",
       .what = "how those lines are written",
       .field = &Config::access_log_format,
       .words = {"text", "json"}},
      {"threads_per_rank", "0: the cores divided by the devices", &Config::threads_per_rank, 0, kThreadsMax},
      {.key = "bind_ranks",
       .what = "whether each of several CPU devices keeps to its share of the cores: off where others "
               "keep cores busy beside it, as a second daemon with one busy device would",
       .field = &Config::bind_ranks,
       .words = {"on", "off"}},
      {.key = "busy_wait",
       .what = "whether threads look a moment for what is to come before they sleep: short runs are faster where "
               "nobody else works on the same cores; auto: while that pays",
       .field = &Config::busy_wait,
       .words = {"on", "off", "auto"}},
      {"own_memory", "keep tensors in the memory of CPU workers, as it is with GPUs: for tests", &Config::own_memory},
      {"nvlink_multicast", "let NCCL reduce in the NVLink switch, where every GPU of it is free",
       &Config::nvlink_multicast},
      {.key = "peer_memory",
       .what = "whether GPUs of this machine write into each other's memory, where they can: small "
               "communications are faster, and large ones leave the multiprocessors to the kernels beside them",
       .field = &Config::peer_memory,
       .words = {"on", "off"}},
      {.key = "overlap",
       .what = "whether products run in parts beside their communications: where it pays, as measured; never; or "
               "wherever it can be, to compare",
       .field = &Config::overlap,
       .words = {"chosen", "never", "always"}},
  };
}

std::vector<Setting> MakeSettings() {
  std::vector<Setting> settings = SettingsOfNodes();
  std::ranges::move(SettingsOfClusters(), std::back_inserter(settings));
  settings.push_back({"rates",
                      "the file that hostir-eval --calibrate wrote of these devices: explain says how long runs take",
                      &Config::rates});
  settings.push_back({"worker", "the worker program", &Config::worker});
  for (const LimitInfo& info : kLimits) {
    settings.push_back({std::string(info.name), std::string(info.what), info.value, info.least, info.most});
  }
  return settings;
}

std::vector<std::string_view> Keys() {
  std::vector<std::string_view> keys;
  for (const Setting& setting : Settings()) keys.push_back(setting.key);
  return keys;
}

const Setting* Find(std::string_view key) {
  const std::span<const Setting> all = Settings();
  const auto found = std::ranges::find_if(all, [&](const Setting& setting) { return setting.key == key; });
  return found == all.end() ? nullptr : &*found;
}

// Errors: what is wrong with an address that stands for one place only.
Status CheckNumericTcp(const std::string& text) {
  HIR_ASSIGN(const Address address, ParseAddress(text));
  return address.IsNumeric() ? Status()
                             : InvalidArgument("want tcp: and the number of an address, as in tcp:127.0.0.1:9464");
}

// What texts must be beyond their words. Errors: what is wrong with it.
Status CheckText(const Setting& setting, const std::string& text) {
  if (!setting.words.empty() && std::ranges::find(setting.words, text) == setting.words.end())
    return InvalidArgument(Cat("want ", base::Join(setting.words, ", ")));
  if (setting.key == "devices") {
    const Status status = ParseDevices(text).status();
    return status.ok() ? status : InvalidArgument(std::string(status.message().substr(text.size() + 2)));
  }
  if (setting.key == "listen") return ParseAddress(text).status();
  if (setting.key == "metrics" && !text.empty()) return CheckNumericTcp(text);
  return {};
}

Status Set(const Setting& setting, const Given& given, Config& config) {
  if (setting.IsText()) {
    if (given.kind != Given::Kind::kAny && given.kind != Given::Kind::kText)
      return InvalidArgument("want a text in quotes");
    HIR_TRY(CheckText(setting, given.text));
    config.*std::get<0>(setting.field) = given.text;
    return {};
  }
  if (setting.IsSwitch()) {
    const bool on = given.text == "true" || given.text == "1";
    const bool typed = given.kind == Given::Kind::kAny || given.kind == Given::Kind::kSwitch;
    if (!typed || (!on && given.text != "false" && given.text != "0")) return InvalidArgument("want true or false");
    config.*std::get<1>(setting.field) = on;
    return {};
  }
  const std::optional<int64_t> number = base::ParseInt(given.text);
  const bool typed = given.kind == Given::Kind::kAny || given.kind == Given::Kind::kNumber;
  if (!typed || !number.has_value())
    return InvalidArgument(Cat("want a whole number from ", setting.least, " to ", setting.most));
  if (*number < setting.least || *number > setting.most) {
    return InvalidArgument(
        Cat(*number, " is not in range: want ", setting.least, " to ", setting.most, " (", setting.what, ")"));
  }
  (setting.IsLimit() ? config.limits.*std::get<3>(setting.field) : config.*std::get<2>(setting.field)) = *number;
  return {};
}

// The values of a --cluster, each with what it wants of the others.
void CheckCluster(const Config& config,
                  const std::function<void(const char* key, const std::string& value, const Status&)>& check) {
  check("cluster", config.cluster, ParseEtcd(config.cluster).status());
  if (!config.nodes.empty())
    check("nodes", config.nodes, InvalidArgument("a cluster is known by a list or by etcd (--cluster), not by both"));
  if (config.cluster_size < 1)
    check("cluster_size", Cat(config.cluster_size), InvalidArgument("want how many nodes the --cluster has"));
  const auto is_fit = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
  };
  if (config.cluster_name.empty() || !std::ranges::all_of(config.cluster_name, is_fit))
    check("cluster_name", config.cluster_name, InvalidArgument("want letters, digits and _-. alone"));
  const Result<Address> address = ParseAddress(config.node_address);
  if (!address.ok()) {
    check("node_address", config.node_address, address.status());
  } else if (!address->is_unix && address->target.ends_with(":0")) {
    check("node_address", config.node_address, InvalidArgument("others have to know the port"));
  } else {
    check("node_address", config.node_address, CheckListen(*address, config.tls().all(), config.insecure_tcp));
  }
  const TlsFiles etcd = config.etcd_tls();
  if (etcd.any() && !etcd.all()) {
    check("etcd_ca", etcd.ca,
          InvalidArgument("TLS with etcd wants three files, all or none: --etcd-cert, "
                          "--etcd-key, --etcd-ca"));
  } else if (etcd.all()) {
    check("etcd_ca", etcd.ca, CheckCa(etcd.ca));
    const Status cert = CheckCertificate(etcd.cert, TlsSide::kClient);
    check("etcd_cert", etcd.cert, cert);
    if (cert.ok()) check("etcd_key", etcd.key, CheckKey(etcd.key, etcd.cert));
  }
}

// The number that a launcher gave is this node's where nobody gave one.
Status NumberByLauncher(const std::optional<LauncherRank>& launcher, Resolution& resolved) {
  if (!launcher.has_value()) {
    return InvalidArgument(Cat("which of --nodes this one is, from 0 on, nobody says, and no launcher: none of ",
                               base::Join(kLauncherRanks, ", "), " is set"));
  }
  const std::optional<int64_t> rank = base::ParseInt(launcher->text);
  if (!rank.has_value() || *rank < 0)
    return InvalidArgument(Cat("the launcher's ", launcher->variable, "=", base::Quoted(launcher->text),
                               " is not the number of a process"));
  resolved.config.node = *rank;
  resolved.origins["node"] = launcher->variable;
  return {};
}

// What holds of several values together; the fault names the one that can be changed.
void CheckTogether(const std::optional<LauncherRank>& launcher, Resolution& resolved) {
  const Config& config = resolved.config;
  const auto check = [&](const char* key, const std::string& value, const Status& status) {
    if (status.ok()) return;
    resolved.faults.push_back(Cat(Find(key)->Flag(), "=", value, " (", resolved.origins[key], "): ", status.message()));
  };
  const TlsFiles tls = config.tls();
  if (tls.all()) {
    check("tls_client_ca", tls.ca, CheckCa(tls.ca));
    const Status cert = CheckCertificate(tls.cert, config.is_of_several() ? TlsSide::kNode : TlsSide::kServer);
    check("tls_cert", tls.cert, cert);
    if (cert.ok()) check("tls_key", tls.key, CheckKey(tls.key, tls.cert));
  } else if (tls.any()) {
    resolved.faults.push_back(Cat("TLS wants three files, all or none:", tls.cert.empty() ? " --tls-cert" : "",
                                  tls.key.empty() ? " --tls-key" : "", tls.ca.empty() ? " --tls-client-ca" : "",
                                  " is missing (hostir certs makes all three for trying out)"));
    return;
  }
  if (!config.nodes.empty() && config.cluster.empty()) {
    const Result<std::vector<Address>> nodes = ParseNodes(config.nodes);
    check("nodes", config.nodes, nodes.status());
    if (!nodes.ok()) return;
    if (config.node < 0) check("node", Cat(config.node), NumberByLauncher(launcher, resolved));
    if (config.node < 0) return;
    if (config.node >= std::ssize(*nodes)) {
      check("node", Cat(config.node), InvalidArgument(Cat("--nodes has ", nodes->size(), ", from 0 on")));
      return;
    }
    check("nodes", config.nodes,
          CheckListen((*nodes)[static_cast<size_t>(config.node)], tls.all(), config.insecure_tcp));
  }
  if (!config.cluster.empty()) CheckCluster(config, check);
  const Result<Address> address = ParseAddress(config.listen);
  if (!address.ok()) return;  // Said already.
  check("listen", config.listen, CheckListen(*address, tls.all(), config.insecure_tcp));
}

}  // namespace

std::string Setting::Flag() const {
  std::string flag = Cat("--", key);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string Setting::Variable() const {
  std::string name(kPrefix);
  for (const char c : key) name += c == '_' ? '_' : static_cast<char>(c - 'a' + 'A');
  return name;
}

std::string Setting::ValueIn(const Config& config) const {
  switch (field.index()) {
    case 0: return base::Quoted(config.*std::get<0>(field));
    case 1: return Cat(config.*std::get<1>(field));
    case 2: return Cat(config.*std::get<2>(field));
    default: return Cat(config.limits.*std::get<3>(field));
  }
}

std::span<const Setting> Settings() {
  static const std::vector<Setting> settings = MakeSettings();
  return settings;
}

std::vector<Given> FromEnvironment(const char* const* environment, std::vector<std::string>& faults) {
  std::vector<Given> all;
  for (; *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (!entry.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string variable(entry.substr(0, equals));
    std::string key = variable.substr(kPrefix.size());
    for (char& c : key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (Find(key) != nullptr) {
      all.push_back({key, std::string(entry.substr(equals + 1)), std::string(entry), variable});
    } else if (const std::string_view near = base::Nearest(key, Keys()); !near.empty()) {
      faults.push_back(Cat(variable, ": no such setting; did you mean ", Find(near)->Variable(), "?"));
    }
  }
  return all;
}

Resolution Resolve(Config defaults, std::span<const std::vector<Given>> layers,
                   const std::optional<LauncherRank>& launcher) {
  Resolution resolved = {.config = std::move(defaults), .origins = {}, .faults = {}};
  for (const Setting& setting : Settings()) resolved.origins[setting.key] = "default";
  for (const std::vector<Given>& layer : layers) {
    for (const Given& given : layer) {
      const Setting* setting = Find(given.key);
      if (setting == nullptr) {
        const std::string_view near = base::Nearest(given.key, Keys());
        resolved.faults.push_back(Cat(given.name, ": no such key",
                                      near.empty() ? "" : Cat("; did you mean ", near, "?"),
                                      " (hostird --help lists them)"));
        continue;
      }
      if (const Status status = Set(*setting, given, resolved.config); !status.ok()) {
        resolved.faults.push_back(Cat(given.name, ": ", status.message()));
        continue;
      }
      resolved.origins[given.key] = given.origin;
    }
  }
  CheckTogether(launcher, resolved);
  return resolved;
}

std::string Resolution::ToString() const {
  std::vector<std::string> lines;
  size_t width = 0;
  for (const Setting& setting : Settings()) {
    lines.push_back(Cat(setting.key, " = ", setting.ValueIn(config)));
    width = std::max(width, lines.back().size());
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    lines[i].append(width - lines[i].size(), ' ');
    base::Append(out, lines[i], "  # ", origins.at(Settings()[i].key), "\n");
  }
  return out;
}

}  // namespace hir::service
