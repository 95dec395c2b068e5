// Exposer: over HTTP, the metrics as a page that Prometheus reads, and the daemon's state as one for a browser.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "service/metrics/metrics.h"
#include "service/os/address.h"

namespace hir::service {

// The state at the moment, and counts that others keep.
struct MetricsState {
  std::string version = {};
  int64_t requests_under_way = 0;
  int64_t connections = 0, connections_refused = 0;
  std::map<std::string, int64_t> sessions = {};     // By principal.
  std::map<std::string, int64_t> queued_runs = {};  // By principal: those that have some.
  int64_t queued_plans = 0, planners = 0;
  int64_t tensors = 0, tensor_bytes = 0, recycled_bytes = 0, staging_bytes = 0;
  int64_t programs = 0, plans = 0;
  int64_t generation = 0, lingering = 0;
  bool mesh_healthy = false, draining = false;
  int64_t log_lines_dropped = 0, access_log_lines_dropped = 0;
  std::vector<std::pair<std::string, int64_t>> limits = {};
  double start_time_s = 0;  // Since 1970.
  int64_t resident_bytes = 0, cpu_ms = 0;
};

// The contents of the page in the browser, as JSON. Called on threads of the exposer's, one at a time; none may take
// a lock that is held for long.
struct PageTexts {
  std::function<std::string()> state;                          // As Status says it.
  std::function<std::string(int64_t after)> events;            // As Events does, without the `after` first.
  std::function<std::string()> programs;                       // Those whose plans are kept.
  std::function<std::optional<std::string>(int64_t id)> plan;  // Of one of them; none: it is kept no longer.
};

// Serves until its destruction, as HttpServer. Immutable.
class Exposer {
 public:
  // GET /metrics at `address`, / and what that page asks for, and nothing elsewhere. `state` is called on threads of
  // the exposer's, one at a time, and must take no lock that is held for long. `metrics` outlives the exposer.
  // Errors: kInvalidArgument: it is not Address::IsNumeric; kUnavailable: it cannot be listened on;
  //         kUnimplemented: this daemon is built without it.
  static Result<std::unique_ptr<Exposer>> Start(const Address& address, const Metrics& metrics,
                                                std::function<MetricsState()> state, PageTexts texts);
  virtual ~Exposer() = default;

  virtual const std::string& address() const = 0;  // "127.0.0.1:9464": what is listened on.
};

}  // namespace hir::service
