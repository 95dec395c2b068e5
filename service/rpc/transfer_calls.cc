#include "service/rpc/transfer_calls.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

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

// The number of bytes of a request that is one chunk and nothing else, before which `in` then stands. Nothing: it is
// another request, or none.
std::optional<int64_t> ChunkAhead(google::protobuf::io::CodedInputStream& in, int64_t message_bytes) {
  using google::protobuf::internal::WireFormatLite;
  constexpr uint32_t kTag = static_cast<uint32_t>(pb::UploadRequest::kChunkFieldNumber) << 3 |
                            static_cast<uint32_t>(WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  uint32_t bytes = 0;
  if (in.ReadTag() != kTag || !in.ReadVarint32(&bytes)) return std::nullopt;
  return in.CurrentPosition() + int64_t{bytes} == message_bytes ? std::optional<int64_t>(bytes) : std::nullopt;
}

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
  if (const std::optional<Status> taken = TakeChunk()) {
    status = *taken;
    bytes_.Clear();
  } else {
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

std::optional<Status> UploadCall::TakeChunk() {
  grpc::ProtoBufferReader reader(&bytes_);
  if (!reader.status().ok()) return std::nullopt;
  google::protobuf::io::CodedInputStream in(&reader);
  const std::optional<int64_t> bytes = ChunkAhead(in, static_cast<int64_t>(bytes_.Length()));
  if (!bytes) return std::nullopt;
  if (Status expected = ExpectChunk(*bytes); !expected.ok()) return expected;
  const void* part = nullptr;
  int size = 0;
  while (in.GetDirectBufferPointer(&part, &size)) {
    upload_->Write({static_cast<const char*>(part), static_cast<size_t>(size)});
    in.Skip(size);
  }
  return Status();
}

Status CheckChunk(const Engine& engine, int64_t bytes) {
  const int64_t bytes_max = engine.options().limits.chunk_bytes_max;
  if (bytes <= bytes_max) return {};
  return ResourceExhausted(
      base::Cat("chunk_bytes_max = ", bytes_max, ": a chunk has ", bytes, " bytes; send smaller ones"));
}

Status UploadCall::ExpectChunk(int64_t bytes) {
  if (upload_ == nullptr) return InvalidArgument("a chunk before the header of an upload");
  HIR_TRY(CheckChunk(context_.engine, bytes));
  record_.bytes_in += bytes;
  context_.engine.metrics().uploaded_bytes.Add(bytes);
  return upload_->Expect(bytes);
}

Result<bool> UploadCall::TakeOne(const pb::UploadRequest& request) {
  switch (request.part_case()) {
    case pb::UploadRequest::kHeader:
      if (upload_ != nullptr) return InvalidArgument("a second header in an upload");
      return Begin(request.header());
    case pb::UploadRequest::kChunk:  // With fields that nobody knows beside it.
      HIR_TRY(ExpectChunk(static_cast<int64_t>(request.chunk().size())));
      upload_->Write(request.chunk());
      return true;
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
  spec.memory_order.assign(header.memory_order().begin(), header.memory_order().end());
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

Result<std::unique_ptr<DeviceTransfer>> BeginDeviceUpload(Engine& engine, const pb::ReserveRequest& request) {
  const pb::UploadHeader& header = request.header();
  HIR_ASSIGN(TensorSpec spec, SentSpec(header));
  const std::vector<bool> sent_once = spec.stored_once;
  return engine.BeginDeviceUpload(header.session_id(), std::move(spec), sent_once, header.input().program_id(),
                                  header.input().index(), request.lend());
}

void BeginNodeUpload(Engine& engine, const pb::UploadHeader& header, Engine::NodeTransferDone done) {
  Result<TensorSpec> spec = SentSpec(header);
  if (!spec.ok()) return done(spec.status());
  const std::vector<bool> sent_once = spec->stored_once;
  engine.BeginNodeUpload(header.session_id(), *std::move(spec), sent_once, header.input().program_id(),
                         header.input().index(), std::move(done));
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
  const TensorSpec& sent = download_->sent();
  header.set_dtype(ToProto(sent.dtype));
  for (const int64_t extent : sent.shape) header.add_shape(extent);
  for (const bool once : sent.stored_once) header.add_sent_once(once);
  header.mutable_memory_order()->Add(sent.memory_order.begin(), sent.memory_order.end());
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

}  // namespace hir::service
