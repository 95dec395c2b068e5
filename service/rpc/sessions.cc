#include "service/rpc/sessions.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// For the log. Only a certificate's name can have what a line cannot.
std::string Shown(const std::string& principal) {
  return principal.starts_with("cert:") ? base::Quoted(principal) : principal;
}

}  // namespace

OpenSessions::OpenSessions(std::function<void(const std::string&)> close, base::Nanos idle)
    : close_(std::move(close)), idle_(idle) {
  self_->sessions = this;
}

OpenSessions::~OpenSessions() {
  const std::scoped_lock lock(self_->mutex);
  self_->sessions = nullptr;
}

void OpenSessions::Add(SessionCall* call, const std::string& principal, base::Nanos lease) {
  const std::scoped_lock lock(mutex_);
  calls_.insert(call);
  if (call->session().empty()) return;
  Session& session = sessions_[call->session()];
  session.call = call;
  session.principal = principal;
  session.lease = lease;
  if (idle_ > base::Nanos()) (void)LookIdleIn(idle_, call->session(), session);
}

Status OpenSessions::Resume(const std::string& session, const std::string& principal, SessionCall* call,
                            base::Nanos lease) {
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (ending_ || found == sessions_.end() || found->second.principal != principal) {
    return Status(Code::kNotFound,
                  "the session has ended: its lease was over, it was idle, or the daemon is another one");
  }
  if (found->second.call != nullptr) {
    found->second.call->End(Status(Code::kAborted, "the session goes on over another connection"));
  }
  found->second.call = call;
  found->second.lease = lease;
  ++found->second.absences;
  found->second.alarm = nullptr;
  found->second.use->Touch();
  calls_.insert(call);
  return {};
}

void OpenSessions::Remove(SessionCall* call) {
  {
    const std::scoped_lock lock(mutex_);
    calls_.erase(call);
    const auto found = sessions_.find(call->session());
    if (found == sessions_.end() || found->second.call != call) return;  // It has another one, or none.
    Session& session = found->second;
    if (session.lease > base::Nanos() && !ending_) {
      session.call = nullptr;
      ExpectBack(call->session(), session);
      return;
    }
    sessions_.erase(found);
  }
  close_(call->session());
}

void OpenSessions::ExpectBack(const std::string& id, Session& session) {
  session.alarm = std::make_unique<grpc::Alarm>();
  session.alarm->Set(std::chrono::system_clock::now() + session.lease,
                     [self = self_, id, absence = ++session.absences](bool expired) {
                       if (!expired) return;  // It came back, or the daemon ends.
                       const std::scoped_lock alive(self->mutex);
                       if (self->sessions != nullptr) self->sessions->Expire(id, absence);
                     });
}

void OpenSessions::Inherit(const std::string& id, const std::string& principal, base::Nanos lease) {
  const std::scoped_lock lock(mutex_);
  Session& session = sessions_[id];
  session.principal = principal;
  session.lease = lease;
  ExpectBack(id, session);
  if (idle_ > base::Nanos()) (void)LookIdleIn(idle_, id, session);
}

void OpenSessions::Expire(const std::string& session, int64_t absence) {
  std::unique_ptr<grpc::Alarm> alarm;  // Its own: it goes without the lock.
  {
    const std::scoped_lock lock(mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.absences != absence) return;
    alarm = std::move(found->second.alarm);
    sessions_.erase(found);
  }
  close_(session);
}

Status OpenSessions::Disconnect(const std::string& session) {
  std::unique_ptr<grpc::Alarm> alarm, idle_alarm;  // They go without the lock.
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return Status(Code::kNotFound, "no such session: it has ended");
  if (found->second.call != nullptr) found->second.call->End({});
  alarm = std::move(found->second.alarm);
  idle_alarm = std::move(found->second.idle_alarm);
  sessions_.erase(found);
  return {};
}

std::unique_ptr<grpc::Alarm> OpenSessions::LookIdleIn(base::Nanos time, const std::string& id, Session& session) {
  std::unique_ptr<grpc::Alarm> before = std::exchange(session.idle_alarm, std::make_unique<grpc::Alarm>());
  session.idle_alarm->Set(std::chrono::system_clock::now() + time, [self = self_, id](bool expired) {
    if (!expired) return;  // The session has ended, or the daemon ends.
    const std::scoped_lock alive(self->mutex);
    if (self->sessions != nullptr) self->sessions->LookIdle(id);
  });
  return before;
}

void OpenSessions::LookIdle(const std::string& id) {
  std::unique_ptr<grpc::Alarm> own, alarm;  // They go without the lock.
  {
    const std::scoped_lock lock(mutex_);
    const auto found = sessions_.find(id);
    if (ending_ || found == sessions_.end()) return;
    Session& session = found->second;
    const base::Nanos idle = base::Clock::Steady().Now() - session.use->latest.load();
    const bool is_used = session.use->requests > 0 || transfers_.contains(id);
    if (is_used || idle < idle_) {
      own = LookIdleIn(is_used ? idle_ : idle_ - idle, id, session);
      return;
    }
    if (session.call != nullptr) {
      const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(idle_).count();
      session.call->End(Status(Code::kDeadlineExceeded,
                               base::Cat("session_idle_ms = ", ms, ": the session had no request for as long")));
    }
    own = std::move(session.idle_alarm);
    alarm = std::move(session.alarm);
    sessions_.erase(found);
  }
  spdlog::info("session={} idle", id.substr(0, 8));
  close_(id);
}

std::shared_ptr<void> OpenSessions::Enter(const std::string& session) {
  if (idle_ <= base::Nanos()) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  ++found->second.use->requests;
  return {nullptr, [use = found->second.use](void*) {
            use->Touch();
            --use->requests;
          }};
}

void OpenSessions::EndAll(const Status& status) {
  const std::scoped_lock lock(mutex_);  // Keeps each from being deleted meanwhile.
  ending_ = true;
  for (SessionCall* call : calls_) call->End(status);
}

void OpenSessions::Tell(const std::string& session, const pb::PlanProgress& progress) {
  const std::scoped_lock lock(mutex_);
  for (SessionCall* call : calls_) {
    if (call->session() == session) call->Tell(progress);
  }
}

void OpenSessions::AddTransfer(const std::string& session, grpc::CallbackServerContext& call) {
  const std::scoped_lock lock(mutex_);
  transfers_[session].insert(&call);
}

void OpenSessions::RemoveTransfer(const std::string& session, grpc::CallbackServerContext& call) {
  const std::scoped_lock lock(mutex_);
  const auto found = transfers_.find(session);
  if (found == transfers_.end()) return;  // An upload without a header.
  found->second.erase(&call);
  if (found->second.empty()) transfers_.erase(found);
  if (const auto at = sessions_.find(session); at != sessions_.end()) at->second.use->Touch();
}

void OpenSessions::CancelTransfers(const std::string& session) {
  const std::scoped_lock lock(mutex_);  // Keeps each from being deleted meanwhile.
  const auto found = transfers_.find(session);
  if (found == transfers_.end()) return;
  for (grpc::CallbackServerContext* call : found->second) call->TryCancel();
}

SessionCall::SessionCall(RpcContext context, const pb::ConnectRequest& request, CallRecord record,
                         const Result<std::string>& principal)
    : context_(context), wants_progress_(request.progress()), record_(std::move(record)) {
  const EngineOptions& options = context_.engine.options();
  const base::Nanos lease =
      std::chrono::milliseconds(std::clamp<int64_t>(request.lease_ms(), 0, options.limits.session_lease_ms_max));
  if (const Status status = principal.ok() ? Open(request, *principal, lease) : principal.status(); !status.ok()) {
    End(status);
    return;
  }
  // The id is what a handle is good for: only its beginning is for the log.
  spdlog::info("session={} {} principal={} client={}", session_.substr(0, 8),
               request.session_id().empty() ? "opened" : "resumed", Shown(*principal),
               base::Quoted(request.client().substr(0, 128)));
  event_.set_session_id(session_);
  event_.set_chunk_bytes_max(options.limits.chunk_bytes_max);
  event_.set_value_bytes_max(options.limits.chunk_bytes_max);
  event_.set_message_bytes_max(options.limits.message_bytes_max);
  event_.set_request_handles_max(options.limits.request_handles_max);
  event_.set_daemon(context_.engine.id());
  event_.set_num_devices(options.num_devices());
  event_.set_device_kind(options.devices.kind);
  event_.set_at_nodes(context_.engine.at_nodes());
  event_.set_framed_calls(true);
  event_.set_lease_ms(std::chrono::duration_cast<std::chrono::milliseconds>(lease).count());
  self_->call = this;
  if (!request.session_id().empty() || lease == base::Nanos()) {
    Begin({});
    return;
  }
  context_.engine.WhenKept([self = self_](const Status& kept) {
    const std::scoped_lock lock(self->mutex);
    if (self->call != nullptr) self->call->Begin(kept);
  });
}

void SessionCall::Begin(const Status& kept) {
  if (!kept.ok()) return End(kept);
  const std::scoped_lock lock(mutex_);
  if (!ended_) StartWrite(&event_);
}

Status SessionCall::Open(const pb::ConnectRequest& request, const std::string& principal, base::Nanos lease) {
  if (!request.session_id().empty()) {
    session_ = request.session_id();
    record_.session = CallLog::SessionName(session_);  // Before others may end it.
    Status status = context_.open.Resume(session_, principal, this, lease);
    if (!status.ok()) session_.clear();
    return status;
  }
  const int64_t lease_ms = std::chrono::duration_cast<std::chrono::milliseconds>(lease).count();
  HIR_ASSIGN(session_, context_.engine.OpenSession(principal, lease_ms));
  record_.session = CallLog::SessionName(session_);
  context_.open.Add(this, principal, lease);
  return {};
}

void SessionCall::End(const Status& status) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  context_.log.Over(record_, status);
  Finish(ToGrpc(status));
}

void SessionCall::Tell(const pb::PlanProgress& progress) {
  if (!wants_progress_) return;
  const std::scoped_lock lock(mutex_);
  if (ended_) return;
  next_ = progress;
  if (!writing_) WriteNext();
}

void SessionCall::WriteNext() {
  event_.Clear();
  *event_.mutable_plan_progress() = *std::exchange(next_, std::nullopt);
  writing_ = true;
  StartWrite(&event_);
}

void SessionCall::OnWriteDone(bool ok) {
  if (!ok) return End(Status(Code::kCancelled, "the client left"));
  const std::scoped_lock lock(mutex_);
  writing_ = false;
  if (!ended_ && next_.has_value()) WriteNext();
}

void SessionCall::OnCancel() { End(Status(Code::kCancelled, "the client left")); }

void SessionCall::OnDone() {
  context_.open.Remove(this);
  {
    const std::scoped_lock lock(self_->mutex);
    self_->call = nullptr;
  }
  delete this;
}

}  // namespace hir::service
