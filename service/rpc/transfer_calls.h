// The streams: uploads, downloads, and sessions. Each deletes itself when gRPC is done with it. Work is done on the
// pool, one step at a time, never on gRPC's own threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "hostir/v1/service.pb.h"
#include "service/engine/engine.h"
#include "service/rpc/admission.h"
#include "service/rpc/unary_call.h"

namespace hir::service {

class SessionCall;

// The sessions that are open, and their transfers. Thread-safe.
class OpenSessions {
 public:
  void Add(SessionCall* call);
  void Remove(SessionCall* call);
  void EndAll(const Status& status);
  // Calls with Tell those whose session has this id, and that want to hear of it.
  void Tell(const std::string& session, const ::hostir::v1::PlanProgress& progress);

  // `call` moves a tensor of `session`, until RemoveTransfer.
  void AddTransfer(const std::string& session, grpc::CallbackServerContext& call);
  void RemoveTransfer(const std::string& session, grpc::CallbackServerContext& call);
  void CountDownload(int64_t more) { num_downloads_ += more; }
  int64_t num_downloads() const { return num_downloads_; }
  // A transfer that nobody goes on with would hold its tensor as long as its client is connected.
  void CancelTransfers(const std::string& session);

 private:
  std::atomic<int64_t> num_downloads_ = 0;
  std::mutex mutex_;
  std::set<SessionCall*> calls_;  // Guarded by mutex_: transfers_ too.
  std::map<std::string, std::set<grpc::CallbackServerContext*>> transfers_;
};

// What every call needs; outlives them all.
struct RpcContext {
  Engine& engine;
  base::WorkPool& pool;
  Admission& admission;
  InFlight& in_flight;
  OpenSessions& open;
};

// A full pool is an answer, not a queue without end.
Status QueueFull(const Engine& engine);

class UploadCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // `call` lives until OnDone, and `answer`, for the reply.
  UploadCall(RpcContext context, grpc::CallbackServerContext& call, grpc::ByteBuffer* answer);

 private:
  void OnReadDone(bool ok) override;
  void OnDone() override;
  void Take();
  Status TakeOne(const ::hostir::v1::UploadRequest& request);
  Status Begin(const ::hostir::v1::UploadHeader& header);
  void End(const Status& status);

  const RpcContext context_;
  grpc::CallbackServerContext& call_;
  grpc::ByteBuffer* const answer_;
  const InFlight::Entry entry_;
  const base::Nanos start_;
  grpc::ByteBuffer bytes_;
  std::string session_;             // Of the header.
  std::unique_ptr<Upload> upload_;  // Null before the header.
  std::string stored_;              // The handle, once there is one.
};

class DownloadCall final : public grpc::ServerWriteReactor<::hostir::v1::DownloadReply> {
 public:
  // `call` lives until OnDone.
  static DownloadCall* Make(RpcContext context, grpc::CallbackServerContext& call,
                            const ::hostir::v1::DownloadRequest& request);

 private:
  DownloadCall(RpcContext context, grpc::CallbackServerContext& call, std::string session);
  void Begin(Result<std::unique_ptr<Download>> download);
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void Send();
  void End(const Status& status);

  const RpcContext context_;
  grpc::CallbackServerContext& call_;
  const std::string session_;
  const InFlight::Entry entry_;
  const base::Nanos start_;
  std::shared_ptr<DownloadCall> self_;  // Until OnDone.
  Subscriptions subscriptions_;         // To the tensor.
  ::hostir::v1::DownloadReply reply_;
  std::unique_ptr<Download> download_;  // Null until the tensor is ready.
  std::mutex mutex_;
  bool waiting_ = true;  // For the tensor. Guarded by mutex_: ended_ too.
  bool ended_ = false;
};

class SessionCall final : public grpc::ServerWriteReactor<::hostir::v1::SessionEvent> {
 public:
  SessionCall(RpcContext context, const ::hostir::v1::ConnectRequest& request, const std::string& principal);
  // Once; later calls change nothing.
  void End(const Status& status);
  // Sends `progress` if the client asked for it; while an event is on its way only the latest is kept.
  void Tell(const ::hostir::v1::PlanProgress& progress);
  const std::string& session() const { return session_; }  // Empty: none was opened.

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void WriteNext();  // REQUIRES: mutex_ is held, and next_ is there.

  const RpcContext context_;
  const bool wants_progress_;
  std::string session_;
  std::mutex mutex_;
  ::hostir::v1::SessionEvent event_;  // Guarded by mutex_, as all below; gRPC's while writing_.
  bool writing_ = false;
  std::optional<::hostir::v1::PlanProgress> next_;
  bool ended_ = false;
};

}  // namespace hir::service
