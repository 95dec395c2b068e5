// The streams that move tensors: uploads and downloads. Each deletes itself when gRPC is done with it. Work is done on
// the pool, one step at a time, never on gRPC's own threads.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "csrc/base/status.h"
#include "hostir/v1/service.pb.h"
#include "service/engine/engine.h"
#include "service/rpc/call_record.h"
#include "service/rpc/sessions.h"
#include "service/rpc/unary_call.h"

namespace hir::service {

// A full pool is an answer, not a queue without end.
Status QueueFull(const Engine& engine);

// Checks the size of a chunk, or of a tensor by value. Errors: kResourceExhausted naming chunk_bytes_max.
Status CheckChunk(const Engine& engine, int64_t bytes);

// The upload that `header` asks for.
Result<std::unique_ptr<Upload>> BeginUpload(Engine& engine, const ::hostir::v1::UploadHeader& header);
Result<std::unique_ptr<DeviceTransfer>> BeginDeviceUpload(Engine& engine, const ::hostir::v1::ReserveRequest& request);
void BeginNodeUpload(Engine& engine, const ::hostir::v1::UploadHeader& header, Engine::NodeTransferDone done);

class UploadCall final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  // `call` lives until OnDone, and `answer`, for the reply.
  UploadCall(RpcContext context, grpc::CallbackServerContext& call, CallRecord record, grpc::ByteBuffer* answer);

 private:
  void OnReadDone(bool ok) override;
  void OnDone() override;
  void Take();
  // False: the upload is answered already.
  Result<bool> TakeOne(const ::hostir::v1::UploadRequest& request);
  // A request that is one chunk, as nearly all are, without a copy of its bytes. Nothing: it is another one.
  std::optional<Status> TakeChunk();
  Status ExpectChunk(int64_t bytes);
  // True: the header has begun an upload; false: that is over already, and answered.
  Result<bool> Begin(const ::hostir::v1::UploadHeader& header);
  Status Answer(const Upload::Stored& stored);
  void End(const Status& status);

  const RpcContext context_;
  grpc::CallbackServerContext& call_;
  grpc::ByteBuffer* const answer_;
  const InFlight::Entry entry_;
  CallRecord record_;
  grpc::ByteBuffer bytes_;
  std::string session_;             // Of the header.
  std::unique_ptr<Upload> upload_;  // Null before the header.
  std::string key_;                 // Of the request, if it has one, and what tells it from others.
  std::string digest_;
  std::string stored_;  // The handle, once there is one.
};

class DownloadCall final : public grpc::ServerWriteReactor<::hostir::v1::DownloadReply> {
 public:
  // `call` lives until OnDone.
  static DownloadCall* Make(RpcContext context, grpc::CallbackServerContext& call, CallRecord record,
                            const ::hostir::v1::DownloadRequest& request);

 private:
  DownloadCall(RpcContext context, grpc::CallbackServerContext& call, CallRecord record, std::string session);
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
  CallRecord record_;
  std::atomic<int64_t> sent_bytes_ = 0;
  std::shared_ptr<DownloadCall> self_;  // Until OnDone.
  Subscriptions subscriptions_;         // To the tensor.
  ::hostir::v1::DownloadReply reply_;
  std::unique_ptr<Download> download_;  // Null until the tensor is ready.
  std::mutex mutex_;
  bool waiting_ = true;  // For the tensor. Guarded by mutex_: ended_ too.
  bool ended_ = false;
};

}  // namespace hir::service
