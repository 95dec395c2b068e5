// The sessions that are open, and their streams. A stream deletes itself when gRPC is done with it.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "hostir/v1/service.pb.h"
#include "service/engine/engine.h"
#include "service/rpc/admission.h"
#include "service/rpc/call_record.h"
#include "service/rpc/request_keys.h"
#include "service/rpc/shared_transfers.h"
#include "service/rpc/unary_call.h"

namespace hir::service {

class SessionCall;

// The sessions that are open, and their transfers. Thread-safe.
class OpenSessions {
 public:
  // `close` ends a session, on any thread. One without a request for `idle` ends; 0: none does.
  OpenSessions(std::function<void(const std::string& session)> close, base::Nanos idle);
  ~OpenSessions();

  // `call` serves its session from now on, which is new, and has `lease`.
  void Add(SessionCall* call, const std::string& principal, base::Nanos lease);
  // A session of a daemon before, whose client comes back within `lease`, or never.
  void Inherit(const std::string& id, const std::string& principal, base::Nanos lease);
  // As Add for a session of `principal` that is there already; a call that serves it yet ends.
  // Errors: kNotFound: it has ended.
  Status Resume(const std::string& session, const std::string& principal, SessionCall* call, base::Nanos lease);
  // `call` is over. What it served is closed, now or when its lease ends, unless another call serves it.
  void Remove(SessionCall* call);
  // The session's call ends, and what it served is the caller's to close. Errors: kNotFound.
  Status Disconnect(const std::string& session);
  void EndAll(const Status& status);
  // Calls with Tell those whose session has this id, and that want to hear of it.
  void Tell(const std::string& session, const ::hostir::v1::PlanProgress& progress);

  // A request of `session` is under way as long as this lives. Null where no session is ever idle.
  std::shared_ptr<void> Enter(const std::string& session);
  // `call` moves a tensor of `session`, until RemoveTransfer.
  void AddTransfer(const std::string& session, grpc::CallbackServerContext& call);
  void RemoveTransfer(const std::string& session, grpc::CallbackServerContext& call);
  void CountDownload(int64_t more) { num_downloads_ += more; }
  int64_t num_downloads() const { return num_downloads_; }
  // A transfer that nobody goes on with would hold its tensor as long as its client is connected.
  void CancelTransfers(const std::string& session);

 private:
  // Requests of a session hold it.
  struct Use {
    void Touch() { latest = base::Clock::Steady().Now(); }
    std::atomic<int64_t> requests = 0;                              // Under way, but for transfers.
    std::atomic<base::Nanos> latest = base::Clock::Steady().Now();  // When one came, or was over.
  };
  struct Session {
    SessionCall* call = nullptr;  // Null: it waits for its client to come back.
    std::string principal;
    base::Nanos lease = {};
    int64_t absences = 0;  // Tells an alarm of an earlier one.
    std::unique_ptr<grpc::Alarm> alarm;
    std::shared_ptr<Use> use = std::make_shared<Use>();
    std::unique_ptr<grpc::Alarm> idle_alarm = {};
  };
  // Found by alarms that go off late, instead of one that is gone.
  struct Self {
    std::mutex mutex;
    OpenSessions* sessions = nullptr;  // Guarded by mutex.
  };
  void Expire(const std::string& session, int64_t absence);
  // Ends the session when its lease is over. REQUIRES: mutex_ is held.
  void ExpectBack(const std::string& id, Session& session);
  // Has LookIdle called in `time`. The alarm before, to be let go of without the lock. REQUIRES: mutex_ is held.
  std::unique_ptr<grpc::Alarm> LookIdleIn(base::Nanos time, const std::string& id, Session& session);
  // Ends the session if it is idle.
  void LookIdle(const std::string& id);

  const std::function<void(const std::string&)> close_;
  const base::Nanos idle_;
  const std::shared_ptr<Self> self_ = std::make_shared<Self>();
  std::atomic<int64_t> num_downloads_ = 0;
  std::mutex mutex_;
  bool ending_ = false;  // Guarded by mutex_, as all below.
  std::set<SessionCall*> calls_;
  std::map<std::string, Session> sessions_;
  std::map<std::string, std::set<grpc::CallbackServerContext*>> transfers_;
};

// What every call needs; outlives them all.
struct RpcContext {
  Engine& engine;
  base::WorkPool& pool;
  Admission& admission;
  InFlight& in_flight;
  OpenSessions& open;
  SharedTransfers& shared;
  RequestKeys& keys;
  CallLog& log;
};

class SessionCall final : public grpc::ServerWriteReactor<::hostir::v1::SessionEvent> {
 public:
  // `principal`: PrincipalOf's; where that is an error the call ends with it.
  SessionCall(RpcContext context, const ::hostir::v1::ConnectRequest& request, CallRecord record,
              const Result<std::string>& principal);
  // Once; later calls change nothing.
  void End(const Status& status);
  // Sends `progress` if the client asked for it; while an event is on its way only the latest is kept.
  void Tell(const ::hostir::v1::PlanProgress& progress);
  const std::string& session() const { return session_; }  // Empty: it serves none.

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  // The session, new or found.
  Status Open(const ::hostir::v1::ConnectRequest& request, const std::string& principal, base::Nanos lease);
  // The first event, once a new session is one that a later daemon would find; or the end, with `kept`.
  void Begin(const Status& kept);
  void WriteNext();  // REQUIRES: mutex_ is held, and next_ is there.

  // This, for who may be later than its end.
  struct Self {
    std::mutex mutex;
    SessionCall* call = nullptr;  // Guarded by mutex.
  };

  const RpcContext context_;
  const bool wants_progress_;
  CallRecord record_;
  std::string session_;
  const std::shared_ptr<Self> self_ = std::make_shared<Self>();
  std::mutex mutex_;
  ::hostir::v1::SessionEvent event_;  // Guarded by mutex_, as all below; gRPC's while writing_.
  bool writing_ = true;               // The first event is, or waits to be.
  std::optional<::hostir::v1::PlanProgress> next_;
  bool ended_ = false;
};

}  // namespace hir::service
