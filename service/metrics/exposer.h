// Exposer: the metrics as a page that Prometheus reads, over HTTP.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/metrics/metrics.h"
#include "service/os/address.h"

namespace hir::service {

// What is so at the moment, and counts that others keep.
struct MetricsState {
  std::string version = {};
  int64_t requests_under_way = 0;
  int64_t connections = 0, connections_refused = 0;
  std::map<std::string, int64_t> sessions = {};     // By principal.
  std::map<std::string, int64_t> queued_runs = {};  // By principal: those that have some.
  int64_t queued_plans = 0;
  int64_t tensors = 0, tensor_bytes = 0, recycled_bytes = 0, staging_bytes = 0;
  int64_t programs = 0, plans = 0;
  int64_t generation = 0, lingering = 0;
  bool mesh_healthy = false, draining = false;
  int64_t log_lines_dropped = 0, access_log_lines_dropped = 0;
  std::vector<std::pair<std::string, int64_t>> limits = {};
  double start_time_s = 0;  // Since 1970.
  int64_t resident_bytes = 0, cpu_ms = 0;
};

// There is a page once in this time: who asks sooner waits.
inline constexpr base::Nanos kBetweenPages = std::chrono::milliseconds(50);

// Serves until its destruction, by a few threads of its own with less of the cores than others: who reads slowly, or
// all the time, holds up nobody but others who read the page. Immutable.
class Exposer {
 public:
  // GET /metrics at `address`, and nothing elsewhere. `state` is called on threads of the exposer's, one at a time, and
  // must take no lock that is held for long. `metrics` outlives the exposer.
  // Errors: kInvalidArgument: it is not Address::IsNumeric; kUnavailable: it cannot be listened on;
  //         kUnimplemented: this daemon is built without it.
  static Result<std::unique_ptr<Exposer>> Start(const Address& address, const Metrics& metrics,
                                                std::function<MetricsState()> state);
  virtual ~Exposer() = default;

  virtual const std::string& address() const = 0;  // "127.0.0.1:9464": what is listened on.
};

}  // namespace hir::service
