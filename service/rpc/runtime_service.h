// The gRPC face of the engine. Handlers convert, call and convert back: no decisions here.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/work_pool.h"
#include "hostir/v1/service.grpc.pb.h"
#include "service/engine/engine.h"
#include "service/rpc/admission.h"
#include "service/rpc/listener.h"
#include "service/rpc/transfer_calls.h"
#include "service/rpc/unary_call.h"

namespace hir::service {

// gRPC calls handlers on one of its few poller threads, so they must not block: the work moves to a bounded pool, and
// what has to wait longer (for a plan, for a run) leaves the pool and is finished by whoever ends the wait. Requests
// come as bytes, which become objects once they are admitted.
template <typename Service>
using RawUnary =
    ::hostir::v1::Runtime::WithRawCallbackMethod_Compile<::hostir::v1::Runtime::WithRawCallbackMethod_Explain<
        ::hostir::v1::Runtime::WithRawCallbackMethod_Run<::hostir::v1::Runtime::WithRawCallbackMethod_Shards<
            ::hostir::v1::Runtime::WithRawCallbackMethod_Wait<::hostir::v1::Runtime::WithRawCallbackMethod_Free<
                ::hostir::v1::Runtime::WithRawCallbackMethod_Status<Service>>>>>>>;
using Methods =
    RawUnary<::hostir::v1::Runtime::WithRawCallbackMethod_Upload<::hostir::v1::Runtime::WithCallbackMethod_Connect<
        ::hostir::v1::Runtime::WithCallbackMethod_Download<::hostir::v1::Runtime::Service>>>>;

class RuntimeService final : public Methods {
 public:
  // `engine` and `listener` outlive the service, and the service the server.
  RuntimeService(Engine& engine, const Listener& listener);

  // Drains the engine, waits until no call but sessions is under way, and ends the sessions. False: `deadline` came
  // before.
  bool Drain(base::Nanos deadline);
  base::WorkPool& pool() { return pool_; }

 private:
  enum class On { kPool, kGrpcs };  // Whose thread carries a request out.
  template <typename Request, typename Reply>
  grpc::ServerUnaryReactor* Start(std::string_view method, const grpc::ByteBuffer* request, grpc::ByteBuffer* answer,
                                  void (RuntimeService::*handle)(const Request&, Reply*,
                                                                 const std::shared_ptr<UnaryCall>&),
                                  On thread);
  using Call = const std::shared_ptr<UnaryCall>&;
  // Tells `session` how far its plans are.
  ProgramCache::Progress ProgressOf(const std::string& session);
  void DoCompile(const ::hostir::v1::CompileRequest& request, ::hostir::v1::CompileReply* reply, Call call);
  void DoExplain(const ::hostir::v1::ExplainRequest& request, ::hostir::v1::ExplainReply* reply, Call call);
  void DoRun(const ::hostir::v1::RunRequest& request, ::hostir::v1::RunReply* reply, Call call);
  // A run whose request to free has been met.
  void Accept(const ::hostir::v1::RunRequest& request, ::hostir::v1::RunReply* reply, Call call);
  // Frees, and calls `then` when the memory is free: on a thread of the pool where that may take long.
  // Errors: those of TensorStore::Free; `then` is not called.
  using Handles = google::protobuf::RepeatedPtrField<std::string>;
  hir::Status FreeThen(const std::string& session, const Handles& handles, bool those_there,
                       std::function<void()> then);
  void DoShards(const ::hostir::v1::ShardsRequest& request, ::hostir::v1::ShardsReply* reply, Call call);
  void DoWait(const ::hostir::v1::WaitRequest& request, ::hostir::v1::WaitReply* reply, Call call);
  void DoFree(const ::hostir::v1::FreeRequest& request, ::hostir::v1::FreeReply* reply, Call call);
  void DoStatus(const ::hostir::v1::StatusRequest& request, ::hostir::v1::StatusReply* reply, Call call);

  grpc::ServerWriteReactor<::hostir::v1::SessionEvent>* Connect(grpc::CallbackServerContext* context,
                                                                const ::hostir::v1::ConnectRequest* request) override;
  grpc::ServerReadReactor<grpc::ByteBuffer>* Upload(grpc::CallbackServerContext* context,
                                                    grpc::ByteBuffer* answer) override;
  grpc::ServerWriteReactor<::hostir::v1::DownloadReply>* Download(
      grpc::CallbackServerContext* context, const ::hostir::v1::DownloadRequest* request) override;
  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  grpc::ServerUnaryReactor* Compile(Context* context, const Bytes* request, Bytes* answer) override;
  grpc::ServerUnaryReactor* Explain(Context* context, const Bytes* request, Bytes* answer) override;
  grpc::ServerUnaryReactor* Run(Context* context, const Bytes* request, Bytes* answer) override;
  grpc::ServerUnaryReactor* Shards(Context* context, const Bytes* request, Bytes* answer) override;
  grpc::ServerUnaryReactor* Wait(Context* context, const Bytes* request, Bytes* answer) override;
  grpc::ServerUnaryReactor* Free(Context* context, const Bytes* request, Bytes* answer) override;
  grpc::ServerUnaryReactor* Status(Context* context, const Bytes* request, Bytes* answer) override;

  Engine& engine_;
  Admission admission_;
  const Listener& listener_;
  InFlight in_flight_;
  OpenSessions open_sessions_;
  const base::Nanos start_;
  base::WorkPool pool_;
};

}  // namespace hir::service
