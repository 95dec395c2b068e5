#include "service/rpc/transfer_calls.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/convert/status.h"
#include "service/convert/tensor.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// Of a download: what measured best (larger messages are copied more often than they save). A client that does not read
// has one waiting for it, twice, so many downloads at a time send less at once.
constexpr int64_t kSendBytes = int64_t{1} << 20;
constexpr int64_t kSendBytesOfAll = int64_t{16} << 20;
constexpr int64_t kSendBytesLeast = int64_t{1} << 14;

base::Nanos Now() { return base::Clock::Steady().Now(); }

Status Gone() { return Status(Code::kCancelled, "the client left, or its session ended"); }

}  // namespace

Status QueueFull(const Engine& engine) {
  return ResourceExhausted(base::Cat("queued_rpcs_max = ", engine.options().limits.queued_rpcs_max,
                                     ": as many requests wait for a thread; try again later"));
}

// --- uploads ---------------------------------------------------------------------------------------------------

UploadCall::UploadCall(RpcContext context, grpc::CallbackServerContext& call, grpc::ByteBuffer* answer)
    : context_(context), call_(call), answer_(answer), entry_(context.in_flight.Enter()), start_(Now()) {
  if (entry_.admission.ok()) {
    StartRead(&bytes_);
  } else {
    End(entry_.admission);
  }
}

void UploadCall::OnReadDone(bool ok) {
  if (ok) {
    if (!context_.pool.Post([this] { Take(); })) End(QueueFull(context_.engine));
    return;
  }
  // The client has sent all, or has gone.
  if (call_.IsCancelled()) return End(Gone());
  if (upload_ == nullptr) return End(InvalidArgument("an upload without a header"));
  Status status;
  {
    Result<Upload::Stored> stored = upload_->End();
    status = stored.status();
    if (stored.ok()) {
      pb::UploadReply reply;
      ToProto(stored->handle, *stored->tensor, reply.mutable_tensor());
      stored_ = stored->handle;
      if (!Write(reply, *answer_).ok()) status = Internal("the reply cannot be written");
    }
  }  // Before the client hears of it: then the handle alone holds the tensor.
  End(status);
}

void UploadCall::Take() {
  Status status;
  {
    pb::UploadRequest request;
    Charge charge;
    status = context_.admission.Parse(bytes_, "UploadRequest", request, charge);
    bytes_.Clear();
    if (status.ok()) status = TakeOne(request);
  }
  if (!status.ok()) return End(status);
  StartRead(&bytes_);
}

Status UploadCall::TakeOne(const pb::UploadRequest& request) {
  switch (request.part_case()) {
    case pb::UploadRequest::kHeader:
      return upload_ == nullptr ? Begin(request.header()) : InvalidArgument("a second header in an upload");
    case pb::UploadRequest::kChunk: {
      const int64_t bytes = static_cast<int64_t>(request.chunk().size());
      const int64_t bytes_max = context_.engine.options().limits.chunk_bytes_max;
      if (upload_ == nullptr) return InvalidArgument("a chunk before the header of an upload");
      if (bytes > bytes_max) {
        return ResourceExhausted(
            base::Cat("chunk_bytes_max = ", bytes_max, ": a chunk has ", bytes, " bytes; send smaller ones"));
      }
      return upload_->Add(request.chunk());
    }
    case pb::UploadRequest::PART_NOT_SET: break;
  }
  return InvalidArgument("an empty message in an upload");
}

Status UploadCall::Begin(const pb::UploadHeader& header) {
  session_ = header.session_id();
  context_.open.AddTransfer(session_, call_);  // First: a session that ends from now on cancels it.
  const size_t axes = static_cast<size_t>(header.shape_size());
  TensorSpec spec;
  HIR_ASSIGN(spec.dtype, FromProto(header.dtype()));
  spec.shape.assign(header.shape().begin(), header.shape().end());
  spec.stored_once = FlagsFromProto(header.sent_once(), header.shape_size());
  spec.sharding = mesh::Sharding::OnDevice0(axes);
  if (header.has_sharding()) {
    HIR_ASSIGN(spec.sharding, FromProto(header.sharding(), axes));
  }
  const std::vector<bool> sent_once = spec.stored_once;
  HIR_ASSIGN(upload_, context_.engine.BeginUpload(session_, std::move(spec), sent_once, header.input().program_id(),
                                                  header.input().index()));
  return {};
}

void UploadCall::End(const Status& status) {
  upload_ = nullptr;  // Before the client hears of it: what it did not finish is freed.
  LogCall("Upload", entry_.id, status, Now() - start_);
  Finish(ToGrpc(status));
}

void UploadCall::OnDone() {
  // It went before it heard of the handle: nobody can free what that names.
  if (!stored_.empty() && call_.IsCancelled()) (void)context_.engine.Free(session_, std::span(&stored_, 1));
  context_.open.RemoveTransfer(session_, call_);
  context_.in_flight.Leave();
  delete this;
}

// --- downloads -------------------------------------------------------------------------------------------------

DownloadCall::DownloadCall(RpcContext context, grpc::CallbackServerContext& call, std::string session)
    : context_(context), call_(call), session_(std::move(session)), entry_(context.in_flight.Enter()), start_(Now()) {
  context_.open.CountDownload(1);
}

DownloadCall* DownloadCall::Make(RpcContext context, grpc::CallbackServerContext& server_context,
                                 const pb::DownloadRequest& request) {
  const std::shared_ptr<DownloadCall> call(new DownloadCall(context, server_context, request.session_id()));
  call->self_ = call;
  context.open.AddTransfer(call->session_, server_context);
  if (!call->entry_.admission.ok()) {
    call->Begin(call->entry_.admission);
    return call.get();
  }
  // The request does not outlive the call, which may end at any time: what is needed of it is copied.
  const bool posted =
      context.pool.Post([call, handle = request.handle(),
                         device = request.has_device() ? std::optional(request.device()) : std::nullopt] {
        call->context_.engine.BeginDownload(
            call->session_, handle, device, call->subscriptions_,
            [call](Result<std::unique_ptr<Download>> download) { call->Begin(std::move(download)); });
      });
  if (!posted) call->Begin(QueueFull(context.engine));
  return call.get();
}

void DownloadCall::Begin(Result<std::unique_ptr<Download>> download) {
  {
    const std::scoped_lock lock(mutex_);
    if (ended_) return;  // The client left.
    waiting_ = false;
  }
  if (!download.ok()) return End(download.status());
  download_ = *std::move(download);
  pb::DownloadHeader& header = *reply_.mutable_header();
  header.set_dtype(ToProto(download_->dtype()));
  for (const int64_t extent : download_->shape()) header.add_shape(extent);
  for (const bool once : download_->sent_once()) header.add_sent_once(once);
  header.set_total_bytes(download_->total_bytes());
  StartWrite(&reply_);
}

void DownloadCall::OnWriteDone(bool ok) {
  if (!ok) return End(Gone());
  if (!context_.pool.Post([this] { Send(); })) End(QueueFull(context_.engine));
}

void DownloadCall::Send() {
  const int64_t share = std::clamp(kSendBytesOfAll / context_.open.num_downloads(), kSendBytesLeast, kSendBytes);
  *reply_.mutable_chunk() = download_->Next(std::min(share, context_.engine.options().limits.chunk_bytes_max));
  if (reply_.chunk().empty()) return End({});
  StartWrite(&reply_);
}

void DownloadCall::OnCancel() {
  {
    const std::scoped_lock lock(mutex_);
    if (!waiting_) return;  // The next write fails.
  }
  End(Gone());
}

void DownloadCall::End(const Status& status) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
  download_ = nullptr;
  LogCall("Download", entry_.id, status, Now() - start_);
  Finish(ToGrpc(status));
}

void DownloadCall::OnDone() {
  subscriptions_.End();  // They hold the call.
  context_.open.CountDownload(-1);
  context_.open.RemoveTransfer(session_, call_);
  context_.in_flight.Leave();
  const std::shared_ptr<DownloadCall> self = std::move(self_);
}

// --- sessions --------------------------------------------------------------------------------------------------

void OpenSessions::Add(SessionCall* call) {
  const std::scoped_lock lock(mutex_);
  calls_.insert(call);
}

void OpenSessions::Remove(SessionCall* call) {
  const std::scoped_lock lock(mutex_);
  calls_.erase(call);
}

void OpenSessions::EndAll(const Status& status) {
  const std::scoped_lock lock(mutex_);  // Keeps each from being deleted meanwhile.
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
}

void OpenSessions::CancelTransfers(const std::string& session) {
  const std::scoped_lock lock(mutex_);  // Keeps each from being deleted meanwhile.
  const auto found = transfers_.find(session);
  if (found == transfers_.end()) return;
  for (grpc::CallbackServerContext* call : found->second) call->TryCancel();
}

SessionCall::SessionCall(RpcContext context, const pb::ConnectRequest& request, const std::string& principal)
    : context_(context), wants_progress_(request.progress()) {
  Result<std::string> session = context_.engine.OpenSession(principal);
  if (session.ok()) session_ = *session;
  context_.open.Add(this);
  if (!session.ok()) {
    End(session.status());
    return;
  }
  const EngineOptions& options = context_.engine.options();
  // The id is what a handle is good for: only its beginning is for the log.
  spdlog::info("session={} opened principal={} client={}", session_.substr(0, 8), principal,
               base::Quoted(request.client().substr(0, 128)));
  const std::scoped_lock lock(mutex_);
  event_.set_session_id(session_);
  event_.set_chunk_bytes_max(options.limits.chunk_bytes_max);
  event_.set_message_bytes_max(options.limits.message_bytes_max);
  event_.set_request_handles_max(options.limits.request_handles_max);
  event_.set_num_devices(options.num_devices());
  event_.set_device_kind(options.devices.kind);
  writing_ = true;
  if (!ended_) StartWrite(&event_);
}

void SessionCall::End(const Status& status) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(ended_, true)) return;
  }
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
  if (!session_.empty()) {
    spdlog::info("session={} closed", session_.substr(0, 8));
    auto close = [context = context_, session = session_] {
      context.engine.CloseSession(session);
      context.open.CancelTransfers(session);
    };
    if (!context_.pool.Post(close)) close();  // Rather here than never.
  }
  delete this;
}

}  // namespace hir::service
