#include "service/links/node_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "hostir/v1/node.grpc.pb.h"
#include "service/convert/status.h"
#include "service/links/outbox.h"
#include "service/links/shard_service.h"
#include "service/links/silence.h"
#include "service/tls/credentials.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// Orders have plans, which take some megabytes. Clients send pieces of a megabyte, but a message is in memory before
// anybody sees that it is more than its ticket is for.
constexpr int kMessageBytesMax = 64 << 20;
constexpr size_t kTransportBytesMax = size_t{256} << 20;  // What gRPC itself may take.
// For what remains of connections that were cut: Silence has ended their streams.
constexpr int kKeepaliveMs = 20000;
constexpr std::chrono::milliseconds kShutdownGrace{200};

using Stream = grpc::ServerReaderWriter<pb::FromNode, pb::ToNode>;

// Things that the agent has of a call, for longer than that may last.
class ItsCall {
 public:
  explicit ItsCall(grpc::ServerContext* context) : context_(context) { outbox_.Open(); }
  Outbox<pb::FromNode>& outbox() { return outbox_; }
  // Has the call end: its head is none any more.
  void Cancel(const Status& why) {
    const std::scoped_lock lock(mutex_);
    why_ = why;
    if (context_ != nullptr) context_->TryCancel();
  }
  // The call is over. Why it was cancelled; OK: it was not.
  Status End() {
    outbox_.Close();
    const std::scoped_lock lock(mutex_);
    context_ = nullptr;
    return why_;
  }

 private:
  Outbox<pb::FromNode> outbox_;
  std::mutex mutex_;
  grpc::ServerContext* context_;  // Guarded by mutex_, as the next.
  Status why_;
};

bool ShowsNode(const grpc::AuthContext& peer) {
  const std::vector<grpc::string_ref> shown = peer.FindPropertyValues("x509_pem_cert");
  return !shown.empty() && IsNode({shown.front().data(), shown.front().size()});
}

class NodeService final : public pb::Node::Service {
 public:
  NodeService(std::string cluster, bool has_tls, Agent& agent)
      : cluster_(std::move(cluster)), has_tls_(has_tls), agent_(agent) {}

  grpc::Status Serve(grpc::ServerContext* context, Stream* stream) override {
    Silence silence([context] { context->TryCancel(); });
    pb::ToNode message;
    if (!stream->Read(&message) || !message.has_join())
      return ToGrpc(InvalidArgument("the first message of a head is its Join"));
    const pb::Join join = message.join();
    if (has_tls_ && !ShowsNode(*context->auth_context())) {
      return ToGrpc({Code::kPermissionDenied,
                     "heads of clusters show a certificate of a node (hostir certs --node), not a client's"});
    }
    if (join.cluster() != cluster_) {
      return ToGrpc({Code::kFailedPrecondition, base::Cat("this node is of the cluster ", base::Quoted(cluster_),
                                                          ", not of ", base::Quoted(join.cluster()))});
    }
    const auto call = std::make_shared<ItsCall>(context);
    const Result<int64_t> number = agent_.Join(
        join, [call](pb::FromNode said) { call->outbox().Push(std::move(said)); },
        [call](const hir::Status& why) { call->Cancel(why); });
    if (!number.ok()) return ToGrpc(number.status());
    spdlog::info("head of term={} joined from {}", join.term(), context->peer());
    std::thread writer([&] { call->outbox().Write(*stream); });
    while (stream->Read(&message)) {
      silence.Heard();
      if (!message.has_beat()) agent_.Take(*number, std::move(message));
    }
    agent_.Leave(*number);
    hir::Status why = call->End();
    writer.join();
    if (why.ok() && silence.was_noticed()) why = Unavailable("nothing came from it for 5 s");
    spdlog::warn("head of term={} has gone{}{}", join.term(), why.ok() ? "" : ": ", why.message());
    return ToGrpc(why);
  }

 private:
  const std::string cluster_;
  const bool has_tls_;
  Agent& agent_;
};

class GrpcNodeServer final : public NodeServer {
 public:
  GrpcNodeServer(const std::string& cluster, bool has_tls, Agent& agent)
      : service_(cluster, has_tls, agent), shards_(MakeShardService(agent.tickets())) {}
  ~GrpcNodeServer() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
  }

  Status Listen(const Address& address, const TlsFiles& tls) {
    grpc::EnableDefaultHealthCheckService(true);  // For probes: this node serves, whatever the mesh does.
    grpc::ServerBuilder builder;
    int port = 0;
    const std::string target = address.is_unix ? address.ToString() : address.target;
    builder.AddListeningPort(target, ServerCredentialsOf(address.is_unix ? TlsFiles() : tls), &port);
    builder.RegisterService(&service_);
    builder.RegisterService(shards_.get());
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.SetMaxSendMessageSize(-1);
    grpc::ResourceQuota quota("hostir-node");
    quota.Resize(kTransportBytesMax);
    builder.SetResourceQuota(quota);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || (!address.is_unix && port == 0))
      return Unavailable(
          base::Cat("nobody can listen on ", address.ToString(), ": it is taken, or no address of ours"));
    address_ = address.is_unix ? address.ToString()
                               : base::Cat("tcp:", address.target.substr(0, address.target.rfind(':') + 1), port);
    return {};
  }
  const std::string& address() const override { return address_; }

 private:
  NodeService service_;
  const std::unique_ptr<grpc::Service> shards_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

}  // namespace

Result<std::unique_ptr<NodeServer>> NodeServer::Start(const Address& address, const TlsFiles& tls,
                                                      const std::string& cluster, Agent& agent) {
  auto server = std::make_unique<GrpcNodeServer>(cluster, tls.all() && !address.is_unix, agent);
  HIR_TRY(server->Listen(address, tls));
  return std::unique_ptr<NodeServer>(std::move(server));
}

}  // namespace hir::service
