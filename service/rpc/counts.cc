#include "service/rpc/counts.h"

#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "csrc/base/quoted.h"
#include "csrc/base/version.h"
#include "service/log/log.h"
#include "service/os/process_usage.h"
#include "service/rpc/runtime_service.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

void SetTimes(std::string_view name, const Histogram& histogram, pb::Times* times) {
  times->set_name(std::string(name));
  for (const int64_t count : histogram.counts()) times->add_counts(count);
  times->set_sum_us(histogram.sum().count() / 1000);
}

int64_t Errors(const Outcomes& outcomes) { return outcomes.total() - outcomes.of(Code::kOk); }

// Counts those that have a place of their own; the others' go to "other".
void AddPrincipals(const Metrics& metrics, const Engine::Report& report, pb::StatusReply* reply) {
  std::map<std::string, pb::Principal*, std::less<>> by_name;
  const auto of = [&](const std::string& name) {
    if (const auto found = by_name.find(name); found != by_name.end()) return found->second;
    const bool full = by_name.size() + 1 >= Metrics::kPrincipalsMax;
    pb::Principal*& principal = by_name[full ? "other" : name];
    if (principal == nullptr) (principal = reply->add_principals())->set_name(full ? "other" : base::Printable(name));
    return principal;
  };
  metrics.principals.ForEach([&](std::string_view name, const Metrics::Principal& known) {
    SetTimes("", known.queue_time, of(std::string(name))->mutable_queue());
  });
  for (const auto& [name, sessions] : report.sessions_of) of(name)->set_sessions(of(name)->sessions() + sessions);
  for (const auto& [name, queued] : report.queued_runs_of) of(name)->set_queued_runs(of(name)->queued_runs() + queued);
}

}  // namespace

void AddCounts(const Metrics& metrics, const Engine::Report& report, pb::StatusReply* reply) {
  for (const base::Nanos bound : Histogram::kBounds) reply->add_time_bounds_us(bound.count() / 1000);
  metrics.methods.ForEach([&](std::string_view name, const Metrics::Method& method) {
    pb::Times& times = *reply->add_requests_over();
    SetTimes(name, method.time, &times);
    times.set_errors(Errors(method.outcomes));
  });
  SetTimes("", metrics.run_time, reply->mutable_run_times());
  reply->mutable_run_times()->set_errors(Errors(metrics.runs));
  AddPrincipals(metrics, report, reply);
  reply->set_staging_bytes(report.staging_bytes);
  reply->set_heals(metrics.heals.value());
  reply->set_mesh_down_ms(metrics.mesh_down.total(base::Clock::Steady().Now()).count() / 1'000'000);
  reply->set_planner_deaths(metrics.planner_deaths.value());
}

MetricsState RuntimeService::metrics_state() const {
  const Engine::Report report = engine_.report();
  const ProcessUsage usage = UsageOf(getpid());
  MetricsState state = {.version = std::string(kVersion),
                        .requests_under_way = in_flight_.under_way(),
                        .connections = listener_.connections(),
                        .connections_refused = listener_.refused(),
                        .sessions = report.sessions_of,
                        .queued_runs = report.queued_runs_of,
                        .queued_plans = report.queued_plans,
                        .planners = std::ssize(report.planner_pids),
                        .tensors = report.tensors,
                        .tensor_bytes = report.tensor_bytes,
                        .recycled_bytes = report.recycled_bytes,
                        .staging_bytes = report.staging_bytes,
                        .programs = report.programs,
                        .plans = report.plans,
                        .generation = report.mesh.generation,
                        .lingering = std::ssize(report.mesh.lingering),
                        .mesh_healthy = report.mesh.healthy,
                        .draining = report.draining,
                        .log_lines_dropped = LogLinesDropped(),
                        .access_log_lines_dropped = access_ == nullptr ? 0 : access_->dropped(),
                        .resident_bytes = usage.resident_bytes,
                        .cpu_ms = usage.cpu_ms};
  for (const LimitInfo& info : kLimits)
    state.limits.emplace_back(std::string(info.name), engine_.options().limits.*info.value);
  state.start_time_s = std::chrono::duration<double>(started_at_.time_since_epoch()).count();
  return state;
}

}  // namespace hir::service
