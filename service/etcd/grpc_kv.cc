#include "service/etcd/grpc_kv.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "csrc/base/text.h"
#include "etcd/etcd.grpc.pb.h"
#include "service/tls/credentials.h"

namespace hir::service {
namespace {

namespace pb = ::etcdserverpb;
using std::chrono::milliseconds;

constexpr milliseconds kRequestTimeout{1000};
constexpr milliseconds kRetryPause{250};
constexpr int kKeepaliveMs = 2000;
constexpr int kReconnectMs = 250;

std::string EndOf(std::string_view prefix) {
  std::string end(prefix);
  ++end.back();  // No prefix here ends with the last of all characters.
  return end;
}

// One member, as a client of gRPC reaches it.
struct Member {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;
};

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const TlsFiles& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, ChannelCredentialsOf(tls), arguments);
}

class EtcdKv final : public GrpcKv {
 public:
  EtcdKv(std::vector<std::string> members, const TlsFiles& tls) {
    for (std::string& address : members) {
      std::shared_ptr<grpc::Channel> channel = ChannelTo(address, tls);
      members_.push_back({std::move(address), std::move(channel)});
    }
  }
  ~EtcdKv() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      if (watching_ != nullptr) watching_->TryCancel();
    }
    stopped_.notify_all();
    if (watcher_.joinable()) watcher_.join();
  }

  Result<std::vector<Entry>> List(std::string_view prefix) override {
    pb::RangeRequest request;
    request.set_key(std::string(prefix));
    request.set_range_end(EndOf(prefix));
    pb::RangeResponse reply;
    HIR_TRY(Ask([&](const Member& member, grpc::ClientContext& context) {
      return pb::KV::NewStub(member.channel)->Range(&context, request, &reply);
    }));
    std::vector<Entry> entries;
    for (pb::KeyValue& kv : *reply.mutable_kvs())
      entries.push_back({std::move(*kv.mutable_key()), std::move(*kv.mutable_value()), kv.lease()});
    return entries;
  }

  Result<bool> Commit(const Transaction& transaction) override {
    pb::TxnRequest request;
    for (const Condition& when : transaction.when) {
      pb::Compare& compare = *request.add_compare();
      compare.set_key(when.key);
      if (when.value) {
        compare.set_target(pb::Compare::VALUE);
        compare.set_value(*when.value);
      } else if (when.lease) {
        compare.set_target(pb::Compare::LEASE);
        compare.set_lease(*when.lease);
      } else {
        compare.set_target(pb::Compare::CREATE);
        compare.set_create_revision(0);
      }
    }
    for (const Entry& entry : transaction.puts) {
      pb::PutRequest& put = *request.add_success()->mutable_request_put();
      put.set_key(entry.key);
      put.set_value(entry.value);
      put.set_lease(entry.lease);
    }
    for (const std::string& key : transaction.erased)
      request.add_success()->mutable_request_delete_range()->set_key(key);
    pb::TxnResponse reply;
    HIR_TRY(Ask([&](const Member& member, grpc::ClientContext& context) {
      return pb::KV::NewStub(member.channel)->Txn(&context, request, &reply);
    }));
    return reply.succeeded();
  }

  Result<int64_t> Grant(base::Nanos time) override {
    pb::LeaseGrantRequest request;
    request.set_ttl(std::chrono::ceil<std::chrono::seconds>(time).count());
    pb::LeaseGrantResponse reply;
    HIR_TRY(Ask([&](const Member& member, grpc::ClientContext& context) {
      return pb::Lease::NewStub(member.channel)->LeaseGrant(&context, request, &reply);
    }));
    return reply.id();
  }

  Result<bool> KeepAlive(int64_t lease) override {
    pb::LeaseKeepAliveRequest request;
    request.set_id(lease);
    pb::LeaseKeepAliveResponse reply;
    HIR_TRY(Ask([&](const Member& member, grpc::ClientContext& context) {
      const auto stream = pb::Lease::NewStub(member.channel)->LeaseKeepAlive(&context);
      const bool answered = stream->Write(request) && stream->Read(&reply);
      stream->WritesDone();
      const grpc::Status ended = answered ? grpc::Status() : stream->Finish();
      if (answered) context.TryCancel();
      if (answered || !ended.ok()) return ended;
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "it ended without an answer");
    }));
    return reply.ttl() > 0;
  }

  Status Revoke(int64_t lease) override {
    pb::LeaseRevokeRequest request;
    request.set_id(lease);
    pb::LeaseRevokeResponse reply;
    return Ask([&](const Member& member, grpc::ClientContext& context) {
      return pb::Lease::NewStub(member.channel)->LeaseRevoke(&context, request, &reply);
    });
  }

  void Watch(std::string prefix, std::function<void()> changed) override {
    watcher_ = std::thread([this, prefix = std::move(prefix), changed = std::move(changed)] {
      for (size_t next = 0; WatchOnce(members_[next % members_.size()], prefix, changed); ++next) {
      }
    });
  }

 private:
  // Each member is asked once, the one that answered last first. A request whose answer was lost may have been carried
  // out: conditions, and whoever asks again, see to that.
  template <typename Call>
  Status Ask(const Call& call) {
    std::string failures;
    Code code = Code::kUnavailable;
    for (size_t tried = 0; tried < members_.size(); ++tried) {
      const Member& member = members_[current_];
      grpc::ClientContext context;
      // Whoever waits gets it connected: gRPC alone would look every five seconds.
      const auto deadline = std::chrono::system_clock::now() + kRequestTimeout;
      context.set_deadline(deadline);
      context.AddMetadata("hasleader", "true");  // One that is cut off from the others says so.
      grpc::Status status(grpc::StatusCode::UNAVAILABLE, "nobody answers there");
      if (member.channel->WaitForConnected(deadline)) status = call(member, context);
      if (status.ok()) return {};
      code = static_cast<Code>(status.error_code());
      failures += base::Cat(failures.empty() ? "" : "; ", member.address, ": ", status.error_message());
      current_ = (current_ + 1) % members_.size();
    }
    return Status(code, base::Cat("etcd: ", failures));
  }

  // False: it is to end.
  bool WatchOnce(const Member& member, const std::string& prefix, const std::function<void()>& changed) {
    grpc::ClientContext context;
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return false;
      watching_ = &context;
    }
    if (member.channel->WaitForConnected(std::chrono::system_clock::now() + kRetryPause)) {
      const auto stream = pb::Watch::NewStub(member.channel)->Watch(&context);
      pb::WatchRequest request;
      request.mutable_create_request()->set_key(prefix);
      request.mutable_create_request()->set_range_end(EndOf(prefix));
      stream->Write(request);
      pb::WatchResponse said;
      while (stream->Read(&said) && !said.canceled()) changed();  // The first says that it watches: look once more.
      context.TryCancel();
      (void)stream->Finish();
    }
    std::unique_lock lock(mutex_);
    watching_ = nullptr;
    return !stopped_.wait_for(lock, kRetryPause, [this] { return stopping_; });
  }

  std::vector<Member> members_;
  size_t current_ = 0;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // Guarded by mutex_, as the next.
  grpc::ClientContext* watching_ = nullptr;
  std::thread watcher_;
};

}  // namespace

std::unique_ptr<GrpcKv> GrpcKv::Make(std::vector<std::string> members, const TlsFiles& tls) {
  return std::make_unique<EtcdKv>(std::move(members), tls);
}

}  // namespace hir::service
