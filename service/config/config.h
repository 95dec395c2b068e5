// Config: what hostird is told, by flags, environment, file and defaults, and where each value came from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "csrc/base/status.h"
#include "service/engine/limits.h"
#include "service/os/node_list.h"
#include "service/tls/files.h"

namespace hir::service {

struct Config {
  std::string devices = "cpu:1";
  std::string listen = {};  // DefaultAddress().
  bool insecure_tcp = false;
  std::string tls_cert = {};  // Files; all three or none.
  std::string tls_key = {};
  std::string tls_client_ca = {};
  std::string log_level = "info";
  std::string metrics = {};     // An address; empty: nobody reads them by HTTP.
  std::string access_log = {};  // A file, or "-"; empty: there is none.
  std::string access_log_format = "text";
  int64_t threads_per_rank = 0;
  std::string bind_ranks = "on";
  std::string busy_wait = "auto";
  bool own_memory = false;
  bool nvlink_multicast = false;
  std::string peer_memory = "on";
  std::string overlap = "chosen";
  // A node of several: by a list of addresses, or a file,
  std::string nodes = {};
  int64_t node = -1;  // of which this is one; -1: as the launcher numbers it,
  // or by etcd: "etcd:HOST:PORT,...". Both empty: this node is alone.
  std::string cluster = {};
  std::string cluster_name = "hostir";
  int64_t cluster_size = 0;
  std::string node_address = {};
  std::string etcd_cert = {};  // Files; all three or none, as those of TLS.
  std::string etcd_key = {};
  std::string etcd_ca = {};
  std::string rates = {};   // A file; empty: none.
  std::string worker = {};  // hostir-worker beside the daemon.
  Limits limits = {};

  TlsFiles tls() const { return {tls_client_ca, tls_cert, tls_key}; }
  TlsFiles etcd_tls() const { return {etcd_ca, etcd_cert, etcd_key}; }
  bool is_of_several() const { return !nodes.empty() || !cluster.empty(); }
};

// A value that may be set. Its flag is --key with dashes, its variable HOSTIR_KEY, its key in a file `key`.
struct Setting {
  std::string key;   // "queued_runs_max"
  std::string what;  // For people.
  std::variant<std::string Config::*, bool Config::*, int64_t Config::*, int64_t Limits::*> field;
  int64_t least = 0;                         // Of numbers: values from here
  int64_t most = 0;                          // to here are taken.
  std::vector<std::string_view> words = {};  // Of texts: these alone; empty: see CheckText.

  std::string Flag() const;      // "--queued-runs-max"
  std::string Variable() const;  // "HOSTIR_QUEUED_RUNS_MAX"
  bool IsText() const { return field.index() == 0; }
  bool IsSwitch() const { return field.index() == 1; }
  bool IsLimit() const { return field.index() == 3; }
  // In the syntax of files: text in quotes.
  std::string ValueIn(const Config& config) const;
};

// All of them, in the order of --help.
std::span<const Setting> Settings();

// A value as somebody gave it.
struct Given {
  enum class Kind : uint8_t { kAny, kText, kNumber, kSwitch };  // kAny: of flags and environment.
  std::string key;
  std::string text;
  std::string name;    // What errors call it: "--queued-runs-max=0", "/etc/hostird.toml:3: queued_runs_max = 0"
  std::string origin;  // "--queued-runs-max", "HOSTIR_QUEUED_RUNS_MAX", "/etc/hostird.toml:3"
  Kind kind = Kind::kAny;
};

// What the environment says, of the strings "NAME=value". A variable that is no setting is nobody's business, unless it
// is nearly the name of one: that is a fault.
std::vector<Given> FromEnvironment(const char* const* environment, std::vector<std::string>& faults);
// What the TOML file at `path` says: keys of settings with their values, no tables. Faults name path and line.
std::vector<Given> FromFile(const std::string& path, std::vector<std::string>& faults);

struct Resolution {
  Config config;
  std::map<std::string, std::string> origins;  // By key; "default" where nobody gave a value.
  std::vector<std::string> faults;             // Empty: the configuration is good.

  // The configuration as a file that says the same, the origin of each value behind it.
  std::string ToString() const;
};

// `layers`: the weakest first: file, environment, flags. `defaults`: what nobody gave. Every value is checked, also one
// that a stronger layer replaces. `launcher`: what numbers this node where no layer does.
Resolution Resolve(Config defaults, std::span<const std::vector<Given>> layers,
                   const std::optional<LauncherRank>& launcher = {});

}  // namespace hir::service
