// The daemon's state, as Status and Events say it and, of the same messages, the page in the browser.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "service/convert/status.h"
#include "service/log/log.h"
#include "service/os/affinity.h"
#include "service/os/process_usage.h"
#include "service/rpc/counts.h"
#include "service/rpc/explain.h"
#include "service/rpc/runtime_service.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// A browser gets so much of a plan, or of the programs, and is told of the rest.
constexpr int kSegmentsShown = 1000;
constexpr int kOpsShown = 100;
constexpr size_t kProgramsShown = 256;

std::string Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  return status.ok() ? text : "{}";  // It prints whatever is no Any.
}

template <typename Records>
void Cut(int most, std::string_view what, Records* records, pb::Explanation* explanation) {
  const int beyond = records->size() - most;
  if (beyond <= 0) return;
  records->DeleteSubrange(most, beyond);
  explanation->add_notes(base::Cat(beyond, " more ", what, " are not shown here"));
}

std::string PlanJson(const Program& program) {
  pb::ExplainReply reply;
  // Nothing is asked of sizes, so nothing is wrong with them.
  (void)ExplainProgram(program, {}, nullptr, std::nullopt, &reply);
  pb::Explanation& explanation = *reply.mutable_explanation();
  explanation.clear_host_ir();
  explanation.clear_fusion();
  Cut(kSegmentsShown, "segments", explanation.mutable_segments(), &explanation);
  Cut(kSegmentsShown, "communications", explanation.mutable_communications(), &explanation);
  for (pb::SegmentRecord& segment : *explanation.mutable_segments()) {
    const int beyond = segment.ops_size() - kOpsShown;
    if (beyond <= 0) continue;
    segment.mutable_ops()->DeleteSubrange(kOpsShown, beyond);
    segment.add_ops(base::Cat("and ", beyond, " more"));
  }
  return Json(explanation);
}

std::string ProgramsJson(const std::vector<ProgramCache::Cached>& latest) {
  std::vector<std::string> rows;
  for (size_t i = 0; i < std::min(latest.size(), kProgramsShown); ++i) {
    const ProgramCache::Cached& cached = latest[i];
    rows.push_back(base::Cat("{\"id\":", cached.number, ",\"name\":", base::Quoted(cached.program->plan().name()),
                             ",\"requests\":", cached.requests, "}"));
  }
  return base::Cat("{\"total\":", latest.size(), ",\"programs\":[", base::Join(rows, ","), "]}");
}

}  // namespace

void RuntimeService::FillEvents(int64_t after, pb::EventsReply* reply) const {
  const auto us = [](base::Nanos time) { return time.count() / 1000; };
  const std::vector<FlightRecorder::Kept> latest = engine_.metrics().latest.Latest(after);
  const base::Nanos now = base::Clock::Steady().Now();
  for (const FlightRecorder::Kept& kept : latest) {
    pb::Event& event = *reply->add_events();
    event.set_kind(kept.kind);
    event.set_number(kept.number);
    event.set_name(kept.name);
    event.set_code(static_cast<int32_t>(kept.code));
    event.set_error(kept.error);
    event.set_age_us(us(now - kept.at));
    event.set_took_us(us(kept.took));
    event.set_waited_us(us(kept.waited));
  }
  reply->set_earlier(engine_.metrics().latest.total() - static_cast<int64_t>(latest.size()));
}

namespace {

void AddDevices(const EngineOptions& options, const Engine::Report& report, pb::StatusReply* reply) {
  const auto describe = [&](const LocalDevice& local, pb::Device& device) {
    device.set_kind(options.devices.kind);
    device.set_ordinal(local.ordinal);
    device.set_model(local.model);
    device.set_uuid(local.uuid);
    device.set_memory_bytes(local.memory_bytes);
    if (!local.failure.ok()) hir::service::ToProto(local.failure, device.mutable_error());
  };
  for (const LocalDevice& failed : options.devices.failed) describe(failed, *reply->add_failed_devices());
  if (options.devices.used.empty()) reply->set_last_failure(options.devices.failure.ToString());
  for (int64_t rank = 0; rank < options.num_devices(); ++rank) {
    pb::Device& device = *reply->add_devices();
    describe(options.devices.used[static_cast<size_t>(rank)], device);
    device.set_number(rank);
    device.set_rank(rank);
    device.set_num_threads(options.threads_per_rank);
    const size_t index = static_cast<size_t>(rank);
    device.set_pid(index < report.mesh.pids.size() ? report.mesh.pids[index] : 0);
    device.set_node(options.devices.used[index].node);
    if (index < report.mesh.absent.size() && !report.mesh.absent[index].empty())
      hir::service::ToProto(Unavailable(report.mesh.absent[index]), device.mutable_error());
    if (!options.devices.used[index].is_here && index < report.mesh.usage.size()) {
      const Ranks::Snapshot::Usage& usage = report.mesh.usage[index];
      device.set_resident_bytes(usage.resident_bytes);
      device.set_cpu_ms(usage.cpu_ms);
      if (usage.num_threads > 0) device.set_num_threads(usage.num_threads);
    }
    if (device.pid() == 0 || !options.devices.used[index].is_here) continue;
    const ProcessUsage usage = UsageOf(static_cast<pid_t>(device.pid()));
    // As the system says, not as was asked for: what forbids it costs a rank its place, and nothing else.
    if (!options.cores.empty()) {
      if (const Result<Cores> cores = CoresOfThread(static_cast<pid_t>(device.pid())); cores.ok())
        device.mutable_cores()->Add(cores->begin(), cores->end());
    }
    device.set_resident_bytes(usage.resident_bytes);
    device.set_cpu_ms(usage.cpu_ms);
  }
}

void AddNodes(const EngineOptions& options, const Engine::Report& report, pb::StatusReply* reply) {
  for (int64_t rank = 0; rank < options.num_devices(); ++rank) {
    const std::string& address = options.devices.used[static_cast<size_t>(rank)].node;
    const int at = reply->nodes_size();
    if (address.empty() || (at > 0 && reply->nodes(at - 1).address() == address)) continue;
    pb::NodeStatus& node = *reply->add_nodes();
    node.set_address(address);
    if (at >= report.mesh.links.of_node_size()) continue;
    node.set_message_us(report.mesh.links.of_node(at).message_us());
    node.set_bytes_per_us(report.mesh.links.of_node(at).bytes_per_us());
  }
}

void SetRunUnderWay(const Engine::Report& report, pb::StatusReply* reply) {
  if (!report.under_way) return;
  pb::RunUnderWay& run = *reply->mutable_run_under_way();
  run.set_what(report.under_way->what);
  run.set_run(report.under_way->run);
  run.set_request(report.under_way->request);
  run.set_ms(report.under_way->since_its_turn.count() / 1000000);
  if (const auto usual = report.under_way->usual)
    run.set_usual_ms(std::chrono::ceil<std::chrono::milliseconds>(*usual).count());
  run.set_slow(report.under_way->slow);
  run.set_where(report.under_way->where);
}

}  // namespace

void RuntimeService::FillStatus(pb::StatusReply* reply) const {
  const Engine::Report report = engine_.report();
  const EngineOptions& options = engine_.options();
  reply->set_version(std::string(kVersion));
  AddDevices(options, report, reply);
  AddNodes(options, report, reply);
  reply->set_planner_pid(report.planner_pids.front());
  for (const int64_t pid : report.planner_pids) {
    if (pid != 0) reply->add_planner_pids(pid);
  }
  reply->set_generation(report.mesh.generation);
  reply->set_serving(report.mesh.healthy && !report.draining);
  reply->set_draining(report.draining);
  if (!options.devices.used.empty()) reply->set_last_failure(report.mesh.failure);
  reply->mutable_lingering()->Add(report.mesh.lingering.begin(), report.mesh.lingering.end());
  SetRunUnderWay(report, reply);
  reply->set_tensor_bytes(report.tensor_bytes);
  reply->set_recycled_bytes(report.recycled_bytes);
  reply->set_tensors(report.tensors);
  reply->set_sessions(report.sessions);
  reply->set_programs(report.programs);
  reply->set_plans(report.plans);
  reply->set_runs(report.runs);
  reply->set_runs_over(report.runs_over);
  reply->set_log_lines_dropped(LogLinesDropped());
  reply->set_requests(in_flight_.total());
  reply->set_requests_under_way(in_flight_.under_way());
  reply->set_connections(listener_.connections());
  reply->set_uptime_ms((base::Clock::Steady().Now() - start_).count() / 1000000);
  reply->set_queued_plans(report.queued_plans);
  reply->set_queued_runs(report.queued_runs);
  for (const LimitInfo& info : kLimits) {
    pb::Limit& limit = *reply->add_limits();
    limit.set_name(std::string(info.name));
    limit.set_value(options.limits.*info.value);
  }
  AddCounts(engine_.metrics(), report, reply);
  reply->set_access_log_lines_dropped(access_ == nullptr ? 0 : access_->dropped());
}

PageTexts RuntimeService::page_texts() const {
  return {.state =
              [this] {
                pb::StatusReply reply;
                FillStatus(&reply);
                return Json(reply);
              },
          .events =
              [this](int64_t after) {
                pb::EventsReply reply;
                FillEvents(after, &reply);
                return Json(reply);
              },
          .programs = [this] { return ProgramsJson(engine_.programs()); },
          .plan = [this](int64_t number) -> std::optional<std::string> {
            for (const ProgramCache::Cached& cached : engine_.programs()) {
              if (cached.number == number) return PlanJson(*cached.program);
            }
            return std::nullopt;
          }};
}

}  // namespace hir::service
