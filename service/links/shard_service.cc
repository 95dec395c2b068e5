#include "service/links/shard_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/base/work_pool.h"
#include "hostir/v1/shards.grpc.pb.h"
#include "service/convert/status.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

constexpr size_t kPieceBytes = size_t{128} << 10;  // So much, and as much of gRPC's, waits for one who stops reading.
constexpr int64_t kStreamsMax = 256;
constexpr int kThreads = 4;  // That copy.
constexpr char kTicket[] = "hostir-ticket";

std::string TicketOf(const grpc::CallbackServerContext& call) {
  const auto found = call.client_metadata().find(kTicket);
  return found == call.client_metadata().end() ? "" : std::string(found->second.data(), found->second.size());
}

// Those under way here. Thread-safe.
class Streams {
 public:
  explicit Streams(Tickets& tickets) : tickets_(tickets) {}

  // `call` lives until OnDone, which ends the use.
  // Errors: kResourceExhausted: there are as many as may be; Tickets::Begin's.
  Result<Tickets::Use> Begin(grpc::CallbackServerContext& call, bool writes) {
    Result<Tickets::Use> use = [&]() -> Result<Tickets::Use> {
      if (++num_ > kStreamsMax)
        return ResourceExhausted(base::Cat("this node moves shards of as many as it may, ", kStreamsMax,
                                           ": go by the head, or try again later"));
      return tickets_.Begin(TicketOf(call), writes, [&call] { call.TryCancel(); });
    }();
    if (!use.ok()) --num_;
    return use;
  }
  Result<std::string> Written(const Tickets::Use& use) { return tickets_.Written(use); }
  void End(const Result<Tickets::Use>& use) {
    if (!use.ok()) return;
    tickets_.End(*use);
    --num_;
  }

 private:
  Tickets& tickets_;
  std::atomic<int64_t> num_ = 0;
};

Status Busy() { return ResourceExhausted("this node copies for as many clients as it can; try again later"); }
Status Over() { return {Code::kAborted, "the client left, or the ticket was revoked"}; }

class WriteCall final : public grpc::ServerReadReactor<pb::ShardChunk> {
 public:
  WriteCall(Streams& streams, base::WorkPool& pool, grpc::CallbackServerContext& call, pb::WriteReply* reply)
      : streams_(streams), pool_(pool), call_(call), reply_(reply), use_(streams.Begin(call, /*writes=*/true)) {
    if (use_.ok()) {
      StartRead(&chunk_);
    } else {
      Finish(ToGrpc(use_.status()));
    }
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(ToGrpc(call_.IsCancelled() ? Over() : End()));
    if (!pool_.Post([this] { Take(); })) Finish(ToGrpc(Busy()));
  }
  void Take() {
    const std::string& data = chunk_.data();
    if (std::ssize(data) > use_->bytes - written_) {
      return Finish(ToGrpc(InvalidArgument(
          base::Cat("the ticket is for ", use_->bytes, " bytes, and ", written_ + std::ssize(data), " have come"))));
    }
    if (!data.empty()) {
      for (const KeptShards::Memory& memory : use_->memory)
        std::memcpy(memory->data() + written_, data.data(), data.size());
    }
    written_ += std::ssize(data);
    StartRead(&chunk_);
  }
  Status End() {
    if (written_ != use_->bytes)
      return InvalidArgument(base::Cat("the ticket is for ", use_->bytes, " bytes, of which ", written_, " came"));
    HIR_ASSIGN(*reply_->mutable_receipt(), streams_.Written(*use_));
    return {};
  }
  void OnDone() override {
    streams_.End(use_);
    delete this;
  }

  Streams& streams_;
  base::WorkPool& pool_;
  grpc::CallbackServerContext& call_;
  pb::WriteReply* const reply_;
  const Result<Tickets::Use> use_;
  pb::ShardChunk chunk_;
  int64_t written_ = 0;
};

class ReadCall final : public grpc::ServerWriteReactor<pb::ShardChunk> {
 public:
  ReadCall(Streams& streams, base::WorkPool& pool, grpc::CallbackServerContext& call)
      : streams_(streams), pool_(pool), use_(streams.Begin(call, /*writes=*/false)) {
    if (use_.ok()) {
      Post();
    } else {
      Finish(ToGrpc(use_.status()));
    }
  }

 private:
  void Post() {
    if (!pool_.Post([this] { Send(); })) Finish(ToGrpc(Busy()));
  }
  void Send() {
    const size_t bytes = std::min(kPieceBytes, static_cast<size_t>(use_->bytes - sent_));
    if (bytes == 0) return Finish(grpc::Status());
    chunk_.set_data(use_->memory.front()->data() + sent_, bytes);
    sent_ += static_cast<int64_t>(bytes);
    StartWrite(&chunk_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(ToGrpc(Over()));
    Post();
  }
  void OnDone() override {
    streams_.End(use_);
    delete this;
  }

  Streams& streams_;
  base::WorkPool& pool_;
  const Result<Tickets::Use> use_;
  pb::ShardChunk chunk_;
  int64_t sent_ = 0;
};

class ShardService final : public pb::Shards::CallbackService {
 public:
  explicit ShardService(Tickets& tickets) : streams_(tickets) {}

  grpc::ServerReadReactor<pb::ShardChunk>* Write(grpc::CallbackServerContext* call, pb::WriteReply* reply) override {
    return new WriteCall(streams_, pool_, *call, reply);
  }
  grpc::ServerWriteReactor<pb::ShardChunk>* Read(grpc::CallbackServerContext* call, const pb::ReadRequest*) override {
    return new ReadCall(streams_, pool_, *call);
  }

 private:
  Streams streams_;
  base::WorkPool pool_{{.num_threads = kThreads}};  // No work on gRPC's threads.
};

}  // namespace

std::unique_ptr<grpc::Service> MakeShardService(Tickets& tickets) { return std::make_unique<ShardService>(tickets); }

}  // namespace hir::service
