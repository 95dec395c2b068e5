#include "service/rpc/server.h"

#include <fcntl.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <utility>

#include "csrc/base/text.h"
#include "service/os/error.h"
#include "service/os/fd.h"
#include "service/rpc/runtime_service.h"

namespace hir::service {
namespace {

using std::chrono::milliseconds;

// What gRPC itself may take: buffers of messages that are under way.
constexpr size_t kTransportBytesMax = size_t{1} << 30;
constexpr int kKeepaliveMs = 10000;
constexpr int kKeepaliveTimeoutMs = 5000;
constexpr milliseconds kShutdownGrace = milliseconds(500);

// The socket's path, held against other daemons as long as `lock` is open.
struct UnixPath {
  std::string path;
  Fd lock;
};

Result<UnixPath> TakePath(std::string path) {
  if (path.empty() || path.front() != '/') {
    return InvalidArgument(base::Cat("--listen=unix:", path, ": the path must be absolute"));
  }
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return InvalidArgument(base::Cat("--listen=unix:", path, ": a socket's path has at most ",
                                     sizeof(sockaddr_un::sun_path) - 1, " bytes"));
  }
  const std::string directory = path.substr(0, std::max<size_t>(1, path.rfind('/')));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(directory);
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return ErrnoStatus(directory);
  if (info.st_uid != getuid() || (info.st_mode & 077) != 0) {
    return Status(Code::kPermissionDenied,
                  base::Cat(directory,
                            " must be this user's alone (chmod 700): whoever can "
                            "reach the socket can run programs"));
  }
  Fd lock(open(base::Cat(path, ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock.valid()) return ErrnoStatus(base::Cat(path, ".lock"));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(Code::kAlreadyExists, base::Cat("another daemon listens on unix:", path));
  }
  unlink(path.c_str());  // Of one that was killed.
  return UnixPath{std::move(path), std::move(lock)};
}

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.0.0.1:") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

class GrpcServer final : public Server {
 public:
  explicit GrpcServer(Engine& engine) : service_(engine) {}
  ~GrpcServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    if (!path_.path.empty()) unlink(path_.path.c_str());
  }

  Status Listen(const ServerOptions& options, const Limits& limits) {
    constexpr std::string_view kUnix = "unix:";
    constexpr std::string_view kTcp = "tcp:";
    std::string listen = options.listen;
    if (listen.starts_with(kUnix)) {
      HIR_ASSIGN(path_, TakePath(listen.substr(kUnix.size())));
    } else if (listen.starts_with(kTcp)) {
      listen = listen.substr(kTcp.size());
      if (!options.insecure_tcp) {
        return InvalidArgument(
            "TCP has neither encryption nor authentication: --insecure-tcp allows it on loopback");
      }
      if (!IsLoopback(listen)) {
        return {Code::kPermissionDenied, base::Cat("tcp:", listen,
                                                   ": without encryption only loopback is served "
                                                   "(127.0.0.1, localhost, [::1])")};
      }
    } else {
      return InvalidArgument(base::Cat("--listen=", listen, ": want unix:/path or tcp:host:port"));
    }
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(limits.message_bytes_max));
    builder.SetMaxSendMessageSize(static_cast<int>(limits.message_bytes_max));
    grpc::ResourceQuota quota("hostird");
    quota.Resize(kTransportBytesMax);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kKeepaliveMs / 2);
    const mode_t mask = umask(0177);
    server_ = builder.BuildAndStart();
    umask(mask);
    if (server_ == nullptr || port == 0)
      return Unavailable(base::Cat("cannot listen on ", options.listen));
    address_ =
        path_.path.empty() ? base::Cat(listen.substr(0, listen.rfind(':')), ":", port) : listen;
    server_->GetHealthCheckService()->SetServingStatus(true);
    return {};
  }

  const std::string& address() const override { return address_; }

  bool Drain(base::Nanos deadline) override {
    server_->GetHealthCheckService()->SetServingStatus(false);
    return service_.Drain(deadline);
  }
  base::WorkPool& pool() override { return service_.pool(); }

 private:
  RuntimeService service_;
  UnixPath path_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Engine& engine) {
  auto server = std::make_unique<GrpcServer>(engine);
  HIR_TRY(server->Listen(options, engine.options().limits));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace hir::service
