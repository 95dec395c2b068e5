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

Status Gone() { return Status(Code::kCancelled, "the client left, or its session ended"); }

}  // namespace

Status QueueFull(const Engine& engine) {
  return ResourceExhausted(base::Cat("queued_rpcs_max = ", engine.options().limits.queued_rpcs_max,
                                     ": as many requests wait for a thread; try again later"));
}

// --- uploads ---------------------------------------------------------------------------------------------------

UploadCall::UploadCall(RpcContext context, grpc::CallbackServerContext& call, CallRecord record,
                       grpc::ByteBuffer* answer)
    : context_(context), call_(call), answer_(answer), entry_(context.in_flight.Enter()), record_(std::move(record)) {
  record_.id = entry_.id;
  record_.bytes_in = 0;
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
    if (stored.ok()) status = Answer(*stored);
  }  // Before the client hears of it: then the handle alone holds the tensor.
  End(status);
}

Status UploadCall::Answer(const Upload::Stored& stored) {
  pb::UploadReply reply;
  ToProto(stored.handle, *stored.tensor, reply.mutable_tensor());
  if (!Write(reply, *answer_).ok()) return Internal("the reply cannot be written");
  if (key_.empty()) {
    stored_ = stored.handle;
    return {};
  }
  const auto undo = [engine = &context_.engine, session = session_, handle = stored.handle] {
    (void)engine->Free(session, std::span(&handle, 1));
  };
  HIR_ASSIGN(*answer_, context_.keys.Keep(session_, key_, digest_, entry_.id, *answer_, undo));
  return {};
}

void UploadCall::Take() {
  Status status;
  bool goes_on = true;
  {
    pb::UploadRequest request;
    Charge charge;
    status = context_.admission.Parse(bytes_, "UploadRequest", request, charge);
    if (status.ok() && request.has_header() && !request.header().request_key().empty()) digest_ = DigestOf(bytes_);
    bytes_.Clear();
    if (status.ok()) {
      const Result<bool> taken = TakeOne(request);
      status = taken.status();
      goes_on = taken.ok() && *taken;
    }
  }
  if (!status.ok() || !goes_on) return End(status);
  StartRead(&bytes_);
}

Result<bool> UploadCall::TakeOne(const pb::UploadRequest& request) {
  switch (request.part_case()) {
    case pb::UploadRequest::kHeader:
      if (upload_ != nullptr) return InvalidArgument("a second header in an upload");
      return Begin(request.header());
    case pb::UploadRequest::kChunk: {
      const int64_t bytes = static_cast<int64_t>(request.chunk().size());
      const int64_t bytes_max = context_.engine.options().limits.chunk_bytes_max;
      if (upload_ == nullptr) return InvalidArgument("a chunk before the header of an upload");
      if (bytes > bytes_max) {
        return ResourceExhausted(
            base::Cat("chunk_bytes_max = ", bytes_max, ": a chunk has ", bytes, " bytes; send smaller ones"));
      }
      record_.bytes_in += bytes;
      context_.engine.metrics().uploaded_bytes.Add(bytes);
      HIR_TRY(upload_->Add(request.chunk()));
      return true;
    }
    case pb::UploadRequest::PART_NOT_SET: break;
  }
  return InvalidArgument("an empty message in an upload");
}

Result<TensorSpec> SentSpec(const pb::UploadHeader& header) {
  const size_t axes = static_cast<size_t>(header.shape_size());
  TensorSpec spec;
  HIR_ASSIGN(spec.dtype, FromProto(header.dtype()));
  spec.shape.assign(header.shape().begin(), header.shape().end());
  spec.stored_once = FlagsFromProto(header.sent_once(), header.shape_size());
  spec.sharding = mesh::Sharding::OnDevice0(axes);
  if (header.has_sharding()) {
    HIR_ASSIGN(spec.sharding, FromProto(header.sharding(), axes));
  }
  return spec;
}

Result<std::unique_ptr<Upload>> BeginUpload(Engine& engine, const pb::UploadHeader& header) {
  HIR_ASSIGN(TensorSpec spec, SentSpec(header));
  const std::vector<bool> sent_once = spec.stored_once;
  return engine.BeginUpload(header.session_id(), std::move(spec), sent_once, header.input().program_id(),
                            header.input().index());
}

Result<std::unique_ptr<DeviceTransfer>> BeginDeviceUpload(Engine& engine, const pb::UploadHeader& header) {
  HIR_ASSIGN(TensorSpec spec, SentSpec(header));
  const std::vector<bool> sent_once = spec.stored_once;
  return engine.BeginDeviceUpload(header.session_id(), std::move(spec), sent_once, header.input().program_id(),
                                  header.input().index());
}

Result<bool> UploadCall::Begin(const pb::UploadHeader& header) {
  session_ = header.session_id();
  record_.session = CallLog::SessionName(session_);
  context_.open.AddTransfer(session_, call_);  // First: a session that ends from now on cancels it.
  key_ = header.request_key();
  if (!key_.empty()) {
    HIR_ASSIGN(std::optional<grpc::ByteBuffer> known, context_.keys.Find(session_, key_, digest_));
    if (known.has_value()) {
      *answer_ = *known;
      return false;
    }
  }
  HIR_ASSIGN(upload_, BeginUpload(context_.engine, header));
  return true;
}

void UploadCall::End(const Status& status) {
  upload_ = nullptr;  // Before the client hears of it: what it did not finish is freed.
  context_.log.Over(record_, status);
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

DownloadCall::DownloadCall(RpcContext context, grpc::CallbackServerContext& call, CallRecord record,
                           std::string session)
    : context_(context),
      call_(call),
      session_(std::move(session)),
      entry_(context.in_flight.Enter()),
      record_(std::move(record)) {
  record_.id = entry_.id;
  record_.session = CallLog::SessionName(session_);
  context_.open.CountDownload(1);
}

DownloadCall* DownloadCall::Make(RpcContext context, grpc::CallbackServerContext& server_context, CallRecord record,
                                 const pb::DownloadRequest& request) {
  const std::shared_ptr<DownloadCall> call(
      new DownloadCall(context, server_context, std::move(record), request.session_id()));
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
  const int64_t bytes = std::ssize(reply_.chunk());
  sent_bytes_ += bytes;
  context_.engine.metrics().downloaded_bytes.Add(bytes);
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
  record_.bytes_out = sent_bytes_;
  context_.log.Over(record_, status);
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

OpenSessions::OpenSessions(std::function<void(const std::string&)> close) : close_(std::move(close)) {
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
}

Status OpenSessions::Resume(const std::string& session, const std::string& principal, SessionCall* call,
                            base::Nanos lease) {
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (ending_ || found == sessions_.end() || found->second.principal != principal) {
    return Status(Code::kNotFound, "the session has ended: its lease was over, or the daemon is another one");
  }
  if (found->second.call != nullptr) {
    found->second.call->End(Status(Code::kAborted, "the session goes on over another connection"));
  }
  found->second.call = call;
  found->second.lease = lease;
  ++found->second.absences;
  found->second.alarm = nullptr;
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
      session.alarm = std::make_unique<grpc::Alarm>();
      session.alarm->Set(std::chrono::system_clock::now() + session.lease,
                         [self = self_, id = call->session(), absence = ++session.absences](bool expired) {
                           if (!expired) return;  // It came back, or the daemon ends.
                           const std::scoped_lock alive(self->mutex);
                           if (self->sessions != nullptr) self->sessions->Expire(id, absence);
                         });
      return;
    }
    sessions_.erase(found);
  }
  close_(call->session());
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
  std::unique_ptr<grpc::Alarm> alarm;  // It goes without the lock.
  const std::scoped_lock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return Status(Code::kNotFound, "no such session: it has ended");
  if (found->second.call != nullptr) found->second.call->End({});
  alarm = std::move(found->second.alarm);
  sessions_.erase(found);
  return {};
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
}

void OpenSessions::CancelTransfers(const std::string& session) {
  const std::scoped_lock lock(mutex_);  // Keeps each from being deleted meanwhile.
  const auto found = transfers_.find(session);
  if (found == transfers_.end()) return;
  for (grpc::CallbackServerContext* call : found->second) call->TryCancel();
}

namespace {

// For the log. Only a certificate's name can have what a line cannot.
std::string Shown(const std::string& principal) {
  return principal.starts_with("cert:") ? base::Quoted(principal) : principal;
}

}  // namespace

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
  const std::scoped_lock lock(mutex_);
  event_.set_session_id(session_);
  event_.set_chunk_bytes_max(options.limits.chunk_bytes_max);
  event_.set_message_bytes_max(options.limits.message_bytes_max);
  event_.set_request_handles_max(options.limits.request_handles_max);
  event_.set_num_devices(options.num_devices());
  event_.set_device_kind(options.devices.kind);
  event_.set_lease_ms(std::chrono::duration_cast<std::chrono::milliseconds>(lease).count());
  writing_ = true;
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
  HIR_ASSIGN(session_, context_.engine.OpenSession(principal));
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
  delete this;
}

}  // namespace hir::service
