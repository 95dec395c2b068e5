#include "service/rpc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "csrc/base/quoted.h"
#include "service/rpc/frame_watch.h"
#include "service/rpc/framed_calls.h"
#include "service/rpc/listener.h"
#include "service/rpc/principal.h"
#include "service/rpc/runtime_service.h"
#include "service/tls/credentials.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;

constexpr int kKeepaliveMs = 10000;
constexpr int kPingsMinMs = 1000;  // Between those of a client that would go on with another daemon.
constexpr int kKeepaliveTimeoutMs = 5000;
// Bytes of the names and values of one request's headers. A header that does not end is not bounded by it: that is
// frame_watch.h's.
constexpr int kHeaderBytesMax = 8192;
// Calls of one connection at a time; a client's next one waits, at the client, for one of them to end.
constexpr int kCallsOfAConnectionMax = 1024;
// From a connection's beginning to the settings of its HTTP/2, where TLS comes first.
constexpr int kHandshakeTimeoutMs = 5000;
constexpr milliseconds kShutdownGrace = milliseconds(500);

// gRPC's own goes to stderr, and waits for who reads that.
void LogFromGrpc(gpr_log_func_args* said) {
  const bool error = said->severity == GPR_LOG_SEVERITY_ERROR;
  spdlog::log(error ? spdlog::level::err : spdlog::level::debug, "grpc error={}", base::Quoted(said->message));
}

// protobuf's, too: a client can have it say something by bytes that are no message.
void LogFromProtobuf(google::protobuf::LogLevel level, const char*, int, const std::string& said) {
  if (level == google::protobuf::LOGLEVEL_FATAL) return spdlog::critical("protobuf error={}", base::Quoted(said));
  spdlog::debug("protobuf error={}", base::Quoted(said));
}

class GrpcServer final : public Server {
 public:
  GrpcServer(HeldAddress held, std::unique_ptr<Listener> listener, Engine& engine, AccessLog* access,
             std::unique_ptr<grpc::Service> beside)
      : engine_(engine),
        held_(std::move(held)),
        listener_(std::move(listener)),
        service_(engine, *listener_, access),
        beside_(std::move(beside)) {}
  ~GrpcServer() override {
    engine_.OnHealth({});
    listener_->Stop();
    if (framed_ != nullptr) framed_->Stop();
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    service_.AwaitCalls();  // Those of frames; gRPC has waited for its own.
  }

  Status Serve(const TlsFiles& tls, const Limits& limits) {
    gpr_set_log_function(LogFromGrpc);
    google::protobuf::SetLogHandler(LogFromProtobuf);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    if (beside_ != nullptr) builder.RegisterService(beside_.get());
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.message_bytes_max));
    builder.SetMaxSendMessageSize(-1);  // Answers are as large as what was asked for makes them.
    grpc::ResourceQuota quota("hostird");
    quota.Resize(static_cast<size_t>(limits.transport_bytes_max));  // What gRPC itself may take.
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingsMinMs);
    // A session is a call that lasts as long as its client: what is idle serves none.
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, static_cast<int>(limits.connection_idle_ms));
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kHeaderBytesMax);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsOfAConnectionMax);
    const bool has_tls = tls.all() && !held_.address().is_unix;
    if (has_tls) {
      builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
      using FromFd = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
      acceptor_ = builder.experimental().AddExternalConnectionAcceptor(FromFd::FROM_FD, ServerCredentialsOf(tls));
    }
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return Unavailable("gRPC does not start");
    engine_.OnHealth([this](bool healthy) {
      const std::scoped_lock lock(health_mutex_);
      mesh_serves_ = healthy;
      TellHealth();
    });
    // The settings above hold for all connections, but for the timeout of handshakes, which is the acceptor's alone:
    // the listener has one, and keepalive ends who then says nothing more. The acceptor names all peers of a Unix
    // socket alike, and the listener could not say which of them makes a call.
    if (has_tls) {
      listener_->Start({.serve = [this](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        acceptor_->HandleNewConnection(&connection);
      }});
      return {};
    }
    framed_ =
        std::make_unique<FramedCalls>(FramedCalls::Options{.threads = static_cast<int>(limits.rpc_threads),
                                                           .message_bytes_max = limits.message_bytes_max,
                                                           .transport_bytes_max = limits.transport_bytes_max,
                                                           .idle = milliseconds(limits.transfer_idle_ms)},
                                      [this](FramedCalls::Request request) { service_.Carry(std::move(request)); });
    listener_->Start(
        {.serve =
             [this](int fd) {
               WatchFrames(fd);
               grpc::AddInsecureChannelFromFd(server_.get(), fd);
             },
         .exchange =
             [this](base::Fd socket, std::string_view token, std::vector<base::Fd> brought,
                    const Listener::Peer& peer) {
               service_.shared_transfers().Exchange(std::move(socket), token, std::move(brought), PrincipalOf(peer));
             },
         .frames = [this](base::Fd socket, const Listener::Peer& peer) { framed_->Add(std::move(socket), peer); }});
    return {};
  }

  const std::string& address() const override { return listener_->address(); }

  bool Drain(base::Nanos deadline) override {
    {
      const std::scoped_lock lock(health_mutex_);
      draining_ = true;
      TellHealth();
    }
    return service_.Drain(deadline);
  }
  base::WorkPool& pool() override { return service_.pool(); }
  base::WorkPool& bulk() override { return service_.bulk(); }
  MetricsState metrics_state() const override { return service_.metrics_state(); }
  PageTexts page_texts() const override { return service_.page_texts(); }

 private:
  // Serving as Status says it.
  void TellHealth() { server_->GetHealthCheckService()->SetServingStatus(mesh_serves_ && !draining_); }

  Engine& engine_;
  HeldAddress held_;
  std::unique_ptr<Listener> listener_;
  RuntimeService service_;
  const std::unique_ptr<grpc::Service> beside_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;  // Of TLS.
  std::unique_ptr<FramedCalls> framed_;                                       // Null with TLS.
  std::unique_ptr<grpc::Server> server_;
  std::mutex health_mutex_;  // Guards the two below.
  bool mesh_serves_ = false;
  bool draining_ = false;
};

}  // namespace

void KeepTransport() { grpc_init(); }  // The reference that no grpc_shutdown gives back.

Result<std::unique_ptr<Server>> Server::Start(HeldAddress held, const TlsFiles& tls, Engine& engine, AccessLog* access,
                                              std::optional<Listening> given, std::unique_ptr<grpc::Service> beside) {
  const Limits& limits = engine.options().limits;
  const bool has_tls = tls.all() && !held.address().is_unix;
  HIR_ASSIGN(
      std::unique_ptr<Listener> listener,
      Listener::Open(held.address(), {.connections_max = limits.connections_max, .tls = has_tls}, std::move(given)));
  auto server = std::make_unique<GrpcServer>(std::move(held), std::move(listener), engine, access, std::move(beside));
  HIR_TRY(server->Serve(tls, limits));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace hir::service
