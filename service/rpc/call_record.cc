#include "service/rpc/call_record.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "csrc/base/quoted.h"
#include "csrc/base/traceparent.h"

namespace hir::service {
namespace {

constexpr size_t kSessionDigits = 8;

void LogCall(const CallRecord& record, const Status& status, base::Nanos took) {
  const int64_t us = took.count() / 1000;
  const std::string trace = base::TraceField(record.trace);
  if (status.ok()) {
    spdlog::debug("request={} method={} us={}{}", record.id, record.method, us, trace);
  } else {
    spdlog::warn("request={} method={} us={}{} error={}", record.id, record.method, us, trace,
                 base::Quoted(status.ToString()));
  }
}

}  // namespace

std::string CallLog::SessionName(std::string_view session) {
  const std::string_view name = session.substr(0, kSessionDigits);
  return name.find_first_not_of("0123456789abcdef") == std::string_view::npos ? std::string(name) : std::string();
}

// Where several were sent gRPC keeps the last.
std::string_view CallLog::TraceOf(const grpc::ServerContextBase& call) {
  const auto& metadata = call.client_metadata();
  const auto found = metadata.find("traceparent");
  if (found == metadata.end()) return {};
  return {found->second.data(), found->second.size()};
}

std::string CallLog::CheckedTrace(std::string_view sent) {
  return base::IsTraceparent(sent) ? std::string(sent) : std::string();
}

void CallLog::Over(const CallRecord& record, const Status& status) {
  const base::Nanos took = base::Clock::Steady().Now() - record.start;
  if (record.id >= 0) LogCall(record, status, took);  // Sessions have lines of their own.
  Metrics::Method& method = metrics_.methods.Of(record.method);
  method.outcomes.Add(status.code());
  method.time.Add(took);
  if (!status.ok()) {  // Those that went well would leave no room: each run is one.
    metrics_.latest.Add({.kind = "request",
                         .number = record.id,
                         .name = record.method,
                         .code = status.code(),
                         .error = status.message(),
                         .took = took});
  }
  if (access_ == nullptr) return;
  access_->Add({.time = std::chrono::system_clock::now(),
                .request = record.id,
                .method = record.method,
                .principal = record.principal,
                .session = record.session,
                .peer = record.peer,
                .code = status.code(),
                .took = took,
                .bytes_in = record.bytes_in,
                .bytes_out = record.bytes_out,
                .run = record.run,
                .trace = base::TraceIdOf(record.trace)});
}

}  // namespace hir::service
