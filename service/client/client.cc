#include "service/client/client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "csrc/base/text.h"
#include "hostir/v1/service.grpc.pb.h"
#include "service/os/address.h"
#include "service/tls/credentials.h"
#include "service/tls/handshake.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using base::Cat;

constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr std::chrono::seconds kExplainTimeout = std::chrono::seconds(2);
constexpr std::chrono::seconds kStatusTimeout = std::chrono::seconds(10);

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return {};
  return {static_cast<Code>(status.error_code()), status.error_message()};
}

// Whether a client may use `address` with `tls`.
Status CheckFiles(const Address& address, const TlsFiles& tls) {
  if (address.is_unix) return {};  // The system says who is who.
  if (tls.all()) return CheckTls(tls, TlsSide::kClient);
  if (tls.any() || !IsLoopback(address)) {
    return InvalidArgument(
        Cat(address.ToString(), " wants TLS, with three files:", tls.ca.empty() ? " ca (--ca, HOSTIR_CA)" : "",
            tls.cert.empty() ? " cert (--cert, HOSTIR_CERT)" : "", tls.key.empty() ? " key (--key, HOSTIR_KEY)" : "",
            " is missing; without TLS only this machine's daemons are talked to"));
  }
  return {};
}

class GrpcClient final : public Client {
 public:
  GrpcClient(const Address& address, const TlsFiles& tls)
      : address_(address.ToString()), target_(address.is_unix ? "" : address.target), tls_(tls) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    channel_ =
        grpc::CreateCustomChannel(address.is_unix ? address_ : address.target, ChannelCredentialsOf(tls), arguments);
  }
  ~GrpcClient() override {
    if (events_ == nullptr) return;
    session_context_.TryCancel();
    if (listener_.joinable()) listener_.join();
    events_->Finish();
  }

  Status WaitConnected(base::Nanos timeout) {
    const auto deadline =
        std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout);
    grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    while (state != GRPC_CHANNEL_READY) {
      const bool refused = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
      if (refused || !channel_->WaitForStateChange(state, deadline)) {
        // gRPC knows the reason, and does not say it.
        const std::string why = target_.empty() ? "" : WhyNotConnected(target_, tls_, kExplainTimeout);
        if (!why.empty()) return {Code::kUnauthenticated, Cat("the daemon at ", address_, " ", why)};
        return Unavailable(Cat("no daemon answers at ", address_, "; start one (hostird --listen ", address_,
                               "), or name another (--address, HOSTIR_ADDRESS)"));
      }
      state = channel_->GetState(true);
    }
    stub_ = pb::Runtime::NewStub(channel_);
    return {};
  }

  const std::string& address() const override { return address_; }
  const pb::SessionEvent& session() const override { return session_; }

  Status OpenSession(const std::string& name, Told told) override {
    pb::ConnectRequest request;
    request.set_client(name);
    request.set_progress(told != nullptr);
    events_ = stub_->Connect(&session_context_, request);
    if (events_->Read(&session_)) {
      if (told) listener_ = std::thread([this, told = std::move(told)] { Listen(told); });
      return {};
    }
    const Status status = Checked(events_->Finish());
    events_ = nullptr;
    return status.ok() ? Unavailable("the daemon ended the session at once") : status;
  }

  Result<pb::StatusReply> GetStatus() override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
    pb::StatusReply reply;
    HIR_TRY(Checked(stub_->Status(&context, {}, &reply)));
    return reply;
  }

  Result<std::string> DrainNode(const std::string& node, bool back) override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
    pb::DrainNodeRequest request;
    request.set_node(node);
    request.set_back(back);
    pb::DrainNodeReply reply;
    HIR_TRY(Checked(stub_->DrainNode(&context, request, &reply)));
    return reply.node();
  }

  Result<pb::EventsReply> GetEvents() override {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kStatusTimeout);
    pb::EventsReply reply;
    HIR_TRY(Checked(stub_->Events(&context, {}, &reply)));
    return reply;
  }

  Result<pb::CompileReply> Compile(const pb::ProgramSource& program) override {
    pb::CompileRequest request;
    request.set_session_id(session_.session_id());
    *request.mutable_program() = program;
    HIR_TRY(CheckBytes(static_cast<int64_t>(request.ByteSizeLong())));
    grpc::ClientContext context;
    pb::CompileReply reply;
    HIR_TRY(Checked(stub_->Compile(&context, request, &reply)));
    return reply;
  }

  Result<pb::ExplainReply> Explain(const pb::ProgramSource& program, const Sizes& sizes) override {
    pb::ExplainRequest request;
    request.set_session_id(session_.session_id());
    *request.mutable_program() = program;
    request.mutable_sizes()->insert(sizes.begin(), sizes.end());
    HIR_TRY(CheckBytes(static_cast<int64_t>(request.ByteSizeLong())));
    grpc::ClientContext context;
    pb::ExplainReply reply;
    HIR_TRY(Checked(stub_->Explain(&context, request, &reply)));
    return reply;
  }

  Result<pb::RunReply> Run(pb::RunRequest request) override {
    request.set_session_id(session_.session_id());
    grpc::ClientContext context;
    pb::RunReply reply;
    HIR_TRY(Checked(stub_->Run(&context, request, &reply)));
    return reply;
  }

  Result<pb::Tensor> Upload(pb::UploadHeader header, std::span<const std::byte> bytes, const Sent& sent) override {
    header.set_session_id(session_.session_id());
    grpc::ClientContext context;
    pb::UploadReply reply;
    const auto writer = stub_->Upload(&context, &reply);
    pb::UploadRequest request;
    *request.mutable_header() = std::move(header);
    bool open = writer->Write(request);
    const auto chunk_bytes = static_cast<size_t>(std::clamp<int64_t>(session_.chunk_bytes_max(), 1, kChunkBytes));
    for (size_t at = 0; open && at < bytes.size(); at += chunk_bytes) {
      const std::span<const std::byte> chunk = bytes.subspan(at, std::min(chunk_bytes, bytes.size() - at));
      request.set_chunk(chunk.data(), chunk.size());
      open = writer->Write(request);
      if (sent) sent(static_cast<int64_t>(at + chunk.size()));
    }
    writer->WritesDone();
    HIR_TRY(Checked(writer->Finish()));
    return std::move(*reply.mutable_tensor());
  }

  Status Download(const std::string& handle, const Begin& begin, const Chunk& chunk) override {
    pb::DownloadRequest request;
    request.set_session_id(session_.session_id());
    request.set_handle(handle);
    grpc::ClientContext context;
    const auto reader = stub_->Download(&context, request);
    pb::DownloadReply reply;
    Status ours;
    int64_t missing = 0;
    while (ours.ok() && reader->Read(&reply)) {
      missing += reply.header().total_bytes() - static_cast<int64_t>(reply.chunk().size());
      ours = reply.has_header() ? begin(reply.header()) : chunk(std::as_bytes(std::span(reply.chunk())));
    }
    if (!ours.ok()) context.TryCancel();
    const Status theirs = Checked(reader->Finish());
    HIR_TRY(ours);
    HIR_TRY(theirs);
    if (missing == 0) return {};
    return {Code::kDataLoss, Cat("the download ended ", missing, " bytes early")};
  }

  Status Free(std::span<const std::string> handles) override {
    const auto most = static_cast<size_t>(std::max<int64_t>(session_.request_handles_max(), 1));
    while (!handles.empty()) {
      const auto now = handles.first(std::min(most, handles.size()));
      handles = handles.subspan(now.size());
      pb::FreeRequest request;
      request.set_session_id(session_.session_id());
      for (const std::string& handle : now) request.add_handles(handle);
      grpc::ClientContext context;
      pb::FreeReply reply;
      HIR_TRY(Checked(stub_->Free(&context, request, &reply)));
    }
    return {};
  }

  bool lost() const override { return lost_; }

 private:
  void Listen(const Told& told) {
    pb::SessionEvent event;
    while (events_->Read(&event)) {
      if (event.has_plan_progress()) told(event.plan_progress());
    }
  }

  // Notes when it was the connection that failed.
  Status Checked(const grpc::Status& status) {
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return FromGrpc(status);
    lost_ = channel_->GetState(false) != GRPC_CHANNEL_READY;
    return lost_ ? Unavailable(Cat("the daemon at ", address_, " has gone: ", status.error_message()))
                 : FromGrpc(status);
  }

  // What the transport would refuse, by the limit's name.
  Status CheckBytes(int64_t bytes) const {
    if (bytes <= session_.message_bytes_max()) return {};
    return ResourceExhausted(Cat("message_bytes_max = ", session_.message_bytes_max(), ": the request has ", bytes,
                                 " bytes; start the daemon with a higher limit"));
  }

  const std::string address_;
  const std::string target_;  // "host:port"; empty: no TCP.
  const TlsFiles tls_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Runtime::Stub> stub_;
  grpc::ClientContext session_context_;
  std::unique_ptr<grpc::ClientReader<pb::SessionEvent>> events_;
  pb::SessionEvent session_;
  std::thread listener_;  // Reads events_; ends with it.
  bool lost_ = false;
};

}  // namespace

TlsFiles Client::WithEnvironment(TlsFiles given) {
  const auto fill = [](std::string& file, const char* name) {
    const char* value = std::getenv(name);
    if (file.empty() && value != nullptr) file = value;
  };
  fill(given.ca, "HOSTIR_CA");
  fill(given.cert, "HOSTIR_CERT");
  fill(given.key, "HOSTIR_KEY");
  return given;
}

Result<std::unique_ptr<Client>> Client::Connect(const std::string& address, const TlsFiles& tls, base::Nanos timeout) {
  const Result<Address> parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status().WithContext(address);
  HIR_TRY(CheckFiles(*parsed, tls));
  auto client = std::make_unique<GrpcClient>(*parsed, tls);
  HIR_TRY(client->WaitConnected(timeout));
  return std::unique_ptr<Client>(std::move(client));
}

}  // namespace hir::service
