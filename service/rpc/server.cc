#include "service/rpc/server.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/rpc/runtime_service.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;

// What gRPC itself may take: buffers of messages that are under way.
constexpr size_t kTransportBytesMax = size_t{1} << 30;
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveTimeoutMs = 5000;
constexpr milliseconds kShutdownGrace = milliseconds(500);

// gRPC's own goes to stderr, and waits for who reads that.
void LogFromGrpc(gpr_log_func_args* said) {
  const bool error = said->severity == GPR_LOG_SEVERITY_ERROR;
  spdlog::log(error ? spdlog::level::err : spdlog::level::debug, "grpc error={}", base::Quoted(said->message));
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(Engine& engine) : engine_(engine), service_(engine) {}
  ~GrpcServer() override {
    engine_.OnHealth({});
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  }

  Status Listen(HeldAddress held, const Limits& limits) {
    const HeldAddress& kept = held_.emplace(std::move(held));
    const Address& address = kept.address();
    const std::string listen = address.is_unix ? address.ToString() : address.target;
    gpr_set_log_function(LogFromGrpc);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.message_bytes_max));
    builder.SetMaxSendMessageSize(-1);  // Answers are as large as what was asked for makes them.
    grpc::ResourceQuota quota("hostird");
    quota.Resize(kTransportBytesMax);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveMs / 2);
    const mode_t mask = umask(0177);
    server_ = builder.BuildAndStart();
    umask(mask);
    if (server_ == nullptr || port == 0) return Unavailable(base::Cat("cannot listen on ", address.ToString()));
    address_ = address.is_unix ? listen : base::Cat(listen.substr(0, listen.rfind(':')), ":", port);
    engine_.OnHealth([this](bool healthy) {
      const std::scoped_lock lock(health_mutex_);
      mesh_serves_ = healthy;
      TellHealth();
    });
    return {};
  }

  const std::string& address() const override { return address_; }

  bool Drain(base::Nanos deadline) override {
    {
      const std::scoped_lock lock(health_mutex_);
      draining_ = true;
      TellHealth();
    }
    return service_.Drain(deadline);
  }
  base::WorkPool& pool() override { return service_.pool(); }

 private:
  // Serving as Status says it.
  void TellHealth() { server_->GetHealthCheckService()->SetServingStatus(mesh_serves_ && !draining_); }

  Engine& engine_;
  RuntimeService service_;
  std::optional<HeldAddress> held_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::mutex health_mutex_;  // Guards the two below.
  bool mesh_serves_ = false;
  bool draining_ = false;
};

}  // namespace

void KeepTransport() { grpc_init(); }  // The reference that no grpc_shutdown gives back.

Result<std::unique_ptr<Server>> Server::Start(HeldAddress held, Engine& engine) {
  auto server = std::make_unique<GrpcServer>(engine);
  HIR_TRY(server->Listen(std::move(held), engine.options().limits));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace hir::service
