#include "service/metrics/metrics_page.h"

#include <limits>
#include <string>
#include <utility>

#include "csrc/base/quoted.h"

namespace hir::service {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

double Seconds(base::Nanos time) { return static_cast<double>(time.count()) / 1e9; }

ClientMetric Of(const Histogram& histogram) {
  ClientMetric metric;
  const auto counts = histogram.counts();
  uint64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    below += static_cast<uint64_t>(counts[i]);
    const double bound =
        i < Histogram::kBounds.size() ? Seconds(Histogram::kBounds[i]) : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({.cumulative_count = below, .upper_bound = bound});
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = Seconds(histogram.sum());
  return metric;
}

class Families {
 public:
  void Begin(MetricType type, std::string name, std::string help) {
    families_.push_back({.name = std::move(name), .help = std::move(help), .type = type, .metric = {}});
  }
  void Add(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (families_.back().type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    families_.back().metric.push_back(std::move(metric));
  }
  void Add(int64_t value, Labels labels = {}) { Add(static_cast<double>(value), std::move(labels)); }
  void Add(const Histogram& histogram, Labels labels = {}) {
    ClientMetric metric = Of(histogram);
    metric.label = std::move(labels);
    families_.back().metric.push_back(std::move(metric));
  }
  // Those that there were; `code` behind `labels`.
  void Add(const Outcomes& outcomes, const Labels& labels = {}) {
    for (size_t i = 0; i < Outcomes::kCodes; ++i) {
      const Code code = static_cast<Code>(i);
      if (outcomes.of(code) == 0) continue;
      Labels all = labels;
      all.push_back({"code", std::string(CodeName(code))});
      Add(outcomes.of(code), std::move(all));
    }
  }
  // By principal, the others beyond the bound together.
  void AddByPrincipal(const std::map<std::string, int64_t>& values) {
    int64_t others = 0;
    size_t told = 0;
    for (const auto& [principal, value] : values) {
      if (++told < Metrics::kPrincipalsMax) {
        Add(value, {{"principal", base::Printable(principal)}});
      } else {
        others += value;
      }
    }
    if (told >= Metrics::kPrincipalsMax) Add(others, {{"principal", "other"}});
  }

  void Gauge(std::string name, std::string help, int64_t value) {
    Begin(MetricType::Gauge, std::move(name), std::move(help));
    Add(value);
  }
  void Count(std::string name, std::string help, int64_t value) {
    Begin(MetricType::Counter, std::move(name), std::move(help));
    Add(value);
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

void AddRequests(const Metrics& metrics, const MetricsState& state, Families& page) {
  page.Begin(MetricType::Counter, "hostir_requests_total", "requests that are over");
  metrics.methods.ForEach([&](std::string_view method, const Metrics::Method& of) {
    page.Add(of.outcomes, {{"method", std::string(method)}});
  });
  page.Begin(MetricType::Histogram, "hostir_request_seconds", "from a request to its end");
  metrics.methods.ForEach([&](std::string_view method, const Metrics::Method& of) {
    page.Add(of.time, {{"method", std::string(method)}});
  });
  page.Gauge("hostir_requests_under_way", "requests that are not over, but sessions", state.requests_under_way);
  page.Gauge("hostir_connections", "connections that are open", state.connections);
  page.Count("hostir_connections_refused_total",
             "connections closed at once: at connections_max, or without descriptors", state.connections_refused);
  page.Begin(MetricType::Gauge, "hostir_sessions", "sessions that are open");
  page.AddByPrincipal(state.sessions);
  page.Count("hostir_uploaded_bytes_total", "bytes of tensors received", metrics.uploaded_bytes.value());
  page.Count("hostir_downloaded_bytes_total", "bytes of tensors sent", metrics.downloaded_bytes.value());
  page.Count("hostir_uploaded_past_head_bytes_total", "of these received, bytes that went to the nodes of a cluster",
             metrics.uploaded_past_head_bytes.value());
  page.Count("hostir_downloaded_past_head_bytes_total", "of these sent, bytes that came from the nodes of a cluster",
             metrics.downloaded_past_head_bytes.value());
  page.Count("hostir_unreached_nodes_total", "tensors that went by the head, since a client did not reach a node",
             metrics.unreached_nodes.value());
}

void AddRuns(const Metrics& metrics, const MetricsState& state, Families& page) {
  page.Begin(MetricType::Counter, "hostir_runs_total", "accepted runs that are over");
  page.Add(metrics.runs);
  page.Begin(MetricType::Histogram, "hostir_run_seconds", "of a run, from its turn to its end");
  page.Add(metrics.run_time);
  page.Begin(MetricType::Histogram, "hostir_queue_seconds", "of a run, from its acceptance to its turn");
  metrics.principals.ForEach([&](std::string_view principal, const Metrics::Principal& of) {
    page.Add(of.queue_time, {{"principal", base::Printable(principal)}});
  });
  page.Begin(MetricType::Gauge, "hostir_queued_runs", "runs that wait for their turn");
  page.AddByPrincipal(state.queued_runs);
  page.Begin(MetricType::Counter, "hostir_communication_bytes_total",
             "bytes that runs communicated: what a rank has of it, of all ranks");
  metrics.communications.ForEach([&](std::string_view type, const Metrics::Communication& of) {
    page.Add(of.bytes.value(), {{"type", std::string(type)}});
  });
  page.Begin(MetricType::Histogram, "hostir_communication_seconds",
             "of a communication on a rank, the wait for others too: of runs with a profile or a timeline");
  metrics.communications.ForEach([&](std::string_view type, const Metrics::Communication& of) {
    page.Add(of.time, {{"type", std::string(type)}});
  });
}

void AddPlans(const Metrics& metrics, const MetricsState& state, Families& page) {
  page.Count("hostir_plans_total", "plans made", state.plans);
  page.Begin(MetricType::Histogram, "hostir_plan_seconds", "of planning a program, whether or not it went well");
  page.Add(metrics.plan_time);
  page.Gauge("hostir_queued_plans", "programs that are planned, or wait for it", state.queued_plans);
  page.Gauge("hostir_planners", "planners that there are, busy or not", state.planners);
  page.Count("hostir_planner_deaths_total", "ends of a planner's process that nobody asked for",
             metrics.planner_deaths.value());
  page.Gauge("hostir_programs", "programs whose plans are kept", state.programs);
  page.Count("hostir_program_cache_hits_total", "plans asked for that were there", metrics.cache_hits.value());
  page.Count("hostir_program_cache_misses_total", "plans asked for that had to be made", metrics.cache_misses.value());
  page.Count("hostir_program_cache_evictions_total", "plans that were dropped for others",
             metrics.cache_evictions.value());
}

void AddMemory(const MetricsState& state, Families& page) {
  page.Gauge("hostir_tensors", "handles", state.tensors);
  page.Gauge("hostir_tensor_bytes", "bytes of tensors, every shard", state.tensor_bytes);
  page.Gauge("hostir_recycled_bytes", "bytes of freed outputs that are kept for the next", state.recycled_bytes);
  page.Gauge("hostir_staging_bytes", "bytes on their way to and from GPUs", state.staging_bytes);
  page.Begin(MetricType::Gauge, "hostir_limit", "a limit of the daemon, by its name");
  for (const auto& [name, value] : state.limits) page.Add(value, {{"limit", name}});
}

void AddMesh(const Metrics& metrics, const MetricsState& state, base::Nanos now, Families& page) {
  page.Gauge("hostir_mesh_healthy", "1 while the workers are connected and serve", state.mesh_healthy ? 1 : 0);
  page.Gauge("hostir_mesh_generation", "of workers and communicators; grows with every restart", state.generation);
  page.Count("hostir_mesh_heals_total", "restarts of the mesh that went well", metrics.heals.value());
  page.Begin(MetricType::Counter, "hostir_mesh_down_seconds_total", "from failures of the mesh to its restarts");
  page.Add(Seconds(metrics.mesh_down.total(now)));
  page.Gauge("hostir_lingering_workers", "killed workers that do not end", state.lingering);
}

void AddProcess(const MetricsState& state, Families& page) {
  page.Begin(MetricType::Gauge, "hostir_build_info", "1, with the version");
  page.Add(int64_t{1}, {{"version", state.version}});
  page.Gauge("hostir_draining", "1 since the daemon was asked to end", state.draining ? 1 : 0);
  page.Count("hostir_log_lines_dropped_total", "lines of the log that nobody took in time", state.log_lines_dropped);
  page.Count("hostir_access_log_lines_dropped_total", "lines of the access log that were not written in time",
             state.access_log_lines_dropped);
  page.Begin(MetricType::Gauge, "process_start_time_seconds", "when the daemon started, since 1970");
  page.Add(state.start_time_s);
  page.Gauge("process_resident_memory_bytes", "of the daemon, the tensors that it has touched too",
             state.resident_bytes);
  page.Begin(MetricType::Counter, "process_cpu_seconds_total", "of all threads of the daemon");
  page.Add(static_cast<double>(state.cpu_ms) / 1e3);
}

}  // namespace

std::vector<MetricFamily> Page(const Metrics& metrics, const MetricsState& state, base::Nanos now) {
  Families page;
  AddRequests(metrics, state, page);
  AddRuns(metrics, state, page);
  AddPlans(metrics, state, page);
  AddMemory(state, page);
  AddMesh(metrics, state, now, page);
  AddProcess(state, page);
  return page.Take();
}

}  // namespace hir::service
