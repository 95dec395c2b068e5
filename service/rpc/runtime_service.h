// The gRPC face of the engine. Handlers convert, call and convert back: no decisions here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "csrc/base/work_pool.h"
#include "hostir/v1/service.grpc.pb.h"
#include "service/engine/engine.h"
#include "service/log/access_log.h"
#include "service/metrics/exposer.h"
#include "service/rpc/admission.h"
#include "service/rpc/call_record.h"
#include "service/rpc/framed_calls.h"
#include "service/rpc/listener.h"
#include "service/rpc/request_keys.h"
#include "service/rpc/shared_transfers.h"
#include "service/rpc/transfer_calls.h"
#include "service/rpc/unary_call.h"

namespace hir::service {

// Handlers are called on one of the few threads that poll, gRPC's or those of frames, so they must not block: the work
// moves to a bounded pool, and what has to wait longer (for a plan, for a run) leaves the pool and is finished by
// whoever ends the wait. Requests
// come as bytes, which become objects once they are admitted.
template <typename Service, template <typename> typename... Methods>
struct With {
  using Type = Service;
};
template <typename Service, template <typename> typename First, template <typename> typename... Rest>
struct With<Service, First, Rest...> {
  using Type = First<typename With<Service, Rest...>::Type>;
};
using Rpc = ::hostir::v1::Runtime;
#define HIR_UNARY(Method, Request, Reply, thread) Rpc::WithRawCallbackMethod_##Method,
using Methods =
    With<Rpc::Service,
#include "service/rpc/unary_methods.def"
         Rpc::WithRawCallbackMethod_Upload, Rpc::WithCallbackMethod_Connect, Rpc::WithCallbackMethod_Download>::Type;
#undef HIR_UNARY

class RuntimeService final : public Methods {
 public:
  // `engine`, `listener` and `access`, which may be null, outlive the service, and the service the server.
  RuntimeService(Engine& engine, const Listener& listener, AccessLog* access);

  // Drains the engine, waits until no call but sessions is under way, and ends the sessions. False: `deadline` came
  // before.
  bool Drain(base::Nanos deadline);
  // Returns when no call but sessions is under way. REQUIRES: none begins any more.
  void AwaitCalls();
  // Carries out a request that came in a frame.
  void Carry(FramedCalls::Request request);
  base::WorkPool& pool() { return pool_; }
  base::WorkPool& bulk() { return bulk_; }
  SharedTransfers& shared_transfers() { return shared_transfers_; }
  // For the page of metrics. From any thread; takes no lock that is held for long.
  MetricsState metrics_state() const;
  // For the page in the browser; the service outlives them.
  PageTexts page_texts() const;

 private:
  enum class On { kPool, kTransport };  // Whose thread carries a request out: transport's, the one that read it.
  using Call = const std::shared_ptr<hir::service::Call>&;
  template <typename Request, typename Reply>
  using Handle = void (RuntimeService::*)(const Request&, Reply*, Call);
  template <typename Request, typename Reply>
  grpc::ServerUnaryReactor* Start(std::string_view method, const grpc::CallbackServerContext& context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* answer,
                                  Handle<Request, Reply> handle, On thread);
  template <typename Request, typename Reply>
  void Start(std::string_view method, FramedCalls::Request request, Handle<Request, Reply> handle, On thread);
  // Has `bytes` carried out as the request of `call`, whose reply is `reply`.
  template <typename Request, typename Reply>
  void Carry(const std::shared_ptr<UnaryCall>& call, grpc::ByteBuffer bytes, Reply* reply,
             Handle<Request, Reply> handle, On thread);
  CallRecord Begin(std::string_view method, const grpc::CallbackServerContext& context) const;
  void FillStatus(::hostir::v1::StatusReply* reply) const;
  void FillEvents(int64_t after, ::hostir::v1::EventsReply* reply) const;  // As FlightRecorder::Latest.
  void Close(const std::string& session);
  // Tells `session` how far its plans are.
  ProgramCache::Progress ProgressOf(const std::string& session);
  // Ends a call whose effect outlives this daemon, once a later one would find it.
  void EndWhenKept(const hir::Status& status, const Call& call);
#define HIR_UNARY(Method, Request, Reply, thread)                                                         \
  void Do##Method(const ::hostir::v1::Request& request, ::hostir::v1::Reply* reply, Call call);           \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request, \
                                   grpc::ByteBuffer* answer) override;
#include "service/rpc/unary_methods.def"
#undef HIR_UNARY
  // A run whose request to free has been met.
  void Accept(const ::hostir::v1::RunRequest& request, ::hostir::v1::RunReply* reply, Call call);
  // Errors: those of TensorStore::Free; kInvalidArgument: too many.
  using Handles = google::protobuf::RepeatedPtrField<std::string>;
  hir::Result<TensorStore::Freed> Free(const std::string& session, const Handles& handles, bool those_there);
  // Calls `then` when their memory is free: on a thread of the pool where that may take long.
  void LetGo(TensorStore::Freed freed, std::function<void()> then);
  // Fills `reply`, which `call`'s claimant has.
  template <typename Transfer>
  hir::Status AddShared(const std::string& session, std::unique_ptr<Transfer> transfer,
                        ::hostir::v1::SharedMemoryReply* reply, Call call);

  // The function that answers `call`, which somebody has claimed, with the tickets.
  Engine::NodeTransferDone ShareAtNodes(const std::string& session, ::hostir::v1::SharedMemoryReply* reply, Call call);
  hir::Status Commit(const ::hostir::v1::CommitRequest& request, std::unique_ptr<NodeTransfer> transfer,
                     ::hostir::v1::UploadReply* reply, Call call);
  // The rest of a Commit that ranks carry out. `call`'s claimant has it, and the one below.
  void Copy(const std::string& session, DeviceTransfer& transfer, ::hostir::v1::UploadReply* reply, Call call);
  // Tells of a tensor that was made, and goes before the client hears of it: what it frees then is free.
  void Answer(Engine::Named made, const std::string& session, ::hostir::v1::Tensor* tensor, Call call);

  grpc::ServerWriteReactor<::hostir::v1::SessionEvent>* Connect(grpc::CallbackServerContext* context,
                                                                const ::hostir::v1::ConnectRequest* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* answer) override;
  grpc::ServerWriteReactor<::hostir::v1::DownloadReply>* Download(
      grpc::CallbackServerContext* context, const ::hostir::v1::DownloadRequest* request) override;

  Engine& engine_;
  Admission admission_;
  const Listener& listener_;
  AccessLog* const access_;
  CallLog log_;
  InFlight in_flight_;
  RequestKeys keys_;
  const base::Nanos start_;
  const std::chrono::system_clock::time_point started_at_ = std::chrono::system_clock::now();
  base::WorkPool pool_;
  base::WorkPool bulk_;  // For what takes as long as its bytes: no other request waits behind that.
  SharedTransfers shared_transfers_;
  OpenSessions open_sessions_;  // Last: sessions that end late find the others.
};

}  // namespace hir::service
