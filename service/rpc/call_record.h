// CallRecord: what is known of a call, for who looks from outside: the log, the access log, the metrics.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/log/access_log.h"
#include "service/metrics/metrics.h"

namespace hir::service {

struct CallRecord {
  std::string_view method = {};  // A literal.
  int64_t id = -1;               // Its number; -1: it has none.
  base::Nanos start = {};
  std::string trace = {};  // The client's trace context; empty: it sent none, or none that is one.
  // For the access log alone: where there is none they are left as they are, which costs nothing.
  std::string principal = {}, session = {}, peer = {};
  int64_t bytes_in = -1, bytes_out = -1, run = -1;
};

// Told of every call that is over. Thread-safe.
class CallLog {
 public:
  // Both outlive it. `access` null: there is no access log.
  CallLog(Metrics& metrics, AccessLog* access) : metrics_(metrics), access_(access) {}

  // The record of a call that begins now, without its number. `principal` says who is at the other end of it, and
  // `peer` where that is, both for the access log alone. `trace`: what the client sent as its trace context.
  template <typename Principal>
  CallRecord Begin(std::string_view method, const grpc::ServerContextBase& call, const Principal& principal) const {
    return Begin(
        method, TraceOf(call), [&call] { return call.peer(); }, principal);
  }
  template <typename Peer, typename Principal>
  CallRecord Begin(std::string_view method, std::string_view trace, const Peer& peer,
                   const Principal& principal) const {
    CallRecord record = {.method = method, .start = base::Clock::Steady().Now(), .trace = CheckedTrace(trace)};
    if (access_ != nullptr) {
      record.peer = peer();
      record.principal = principal();
    }
    return record;
  }
  bool wants_access() const { return access_ != nullptr; }
  // The beginning of a session's id, which is what a handle is good for; empty for what is none.
  static std::string SessionName(std::string_view session);
  void Over(const CallRecord& record, const Status& status);

 private:
  static std::string_view TraceOf(const grpc::ServerContextBase& call);
  static std::string CheckedTrace(std::string_view sent);

  Metrics& metrics_;
  AccessLog* const access_;
};

}  // namespace hir::service
