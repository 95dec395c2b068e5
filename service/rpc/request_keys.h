// RequestKeys: requests that a client may send again, since it does not know whether they were heard. The first with a
// key is carried out, whoever leaves meanwhile; the others get its answer.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "service/rpc/call.h"
#include "service/rpc/unary_call.h"

namespace hir::service {

// A request with a key, on behalf of all calls that bring it. Thread-safe.
class KeyedCall final : public Call {
 public:
  // `trace` of the request that came first.
  KeyedCall(int64_t id, std::unique_ptr<google::protobuf::Message> reply, std::string trace = {})
      : id_(id), trace_(std::move(trace)), reply_(std::move(reply)) {}

  bool Claim() override;
  void End(const Status& status) override;
  void IfUnheard(std::function<void()> undo) override { undo_ = std::move(undo); }
  int64_t id() const override { return id_; }
  const std::string& trace() const override { return trace_; }
  void LearnRun(int64_t run) override;
  Subscriptions& subscriptions() override { return subscriptions_; }

  google::protobuf::Message* reply() { return reply_.get(); }
  // One that is over.
  static std::shared_ptr<KeyedCall> Over(int64_t id, const grpc::ByteBuffer& answer, std::function<void()> undo);
  // `call` is answered when this is, or at once.
  void Answer(std::shared_ptr<UnaryCall> call);
  // The answer that went well, once there is one.
  std::optional<grpc::ByteBuffer> answer();
  // Nobody brings it again: what it has made, or will have, is undone. The run that it asked for; -1: none yet.
  int64_t Abandon();
  // `then` gets the bytes of the answer once there is one.
  void OnEnd(std::function<void(int64_t bytes)> then) { then_ = std::move(then); }

 private:
  const int64_t id_;
  const std::string trace_;
  std::unique_ptr<google::protobuf::Message> reply_;
  std::function<void()> undo_;  // Of who claims it, then of who abandons it.
  std::function<void(int64_t)> then_;
  Subscriptions subscriptions_;
  std::mutex mutex_;
  bool claimed_ = false;  // Guarded by mutex_, as all below.
  bool ended_ = false;
  bool abandoned_ = false;
  int64_t run_ = -1;  // That it asked for.
  Status status_;
  grpc::ByteBuffer answer_;
  std::vector<std::shared_ptr<UnaryCall>> calls_;
};

// Thread-safe.
class RequestKeys {
 public:
  static constexpr size_t kKeyBytesMax = 64;
  // For all sessions. Those not used for longest go: a request that comes again after that is refused, or, if even its
  // key is forgotten, carried out again.
  struct Most {
    int64_t answer_bytes = int64_t{32} << 20;
    size_t keys = 65536;
  };
  RequestKeys() : RequestKeys(Most{}) {}
  explicit RequestKeys(Most most) : state_(std::make_shared<State>(most)) {}

  // The call to carry the request out by; null where another does, and answers `call`, or where it was refused.
  // `digest` tells requests apart that have one key by mistake.
  std::shared_ptr<KeyedCall> Begin(const std::string& session, const std::string& key, const std::string& digest,
                                   const std::shared_ptr<UnaryCall>& call,
                                   std::unique_ptr<google::protobuf::Message> reply);
  // For requests that are known by their end alone: the answer of one that has gone well; nothing: carry it out.
  // Errors: as of Begin.
  Result<std::optional<grpc::ByteBuffer>> Find(const std::string& session, const std::string& key,
                                               const std::string& digest);
  // Keeps `answer` of one that went well, and returns it. Where another has meanwhile, or it was given up, `undo` is
  // called, and the other's answer, or kAborted, returned.
  Result<grpc::ByteBuffer> Keep(const std::string& session, const std::string& key, const std::string& digest,
                                int64_t id, const grpc::ByteBuffer& answer, std::function<void()> undo);
  // Undoes all that the request of `key` has made, or will have, also when it is yet to come. The number
  // of the run that it asked for; -1: none.
  int64_t Abandon(const std::string& session, const std::string& key);
  void EndSession(const std::string& session);

 private:
  using Key = std::pair<std::string, std::string>;  // Session and key.
  struct Entry {
    std::shared_ptr<KeyedCall> call;  // Null: abandoned, or its answer is gone.
    std::string digest;
    int64_t bytes = 0;  // Of its answer; 0 before there is one.
    bool ended = false;
    std::list<Key>::iterator used;
  };
  struct State {
    explicit State(const Most& limits) : most(limits) {}
    const Most most;
    std::mutex mutex;
    std::map<Key, Entry> entries;  // Guarded by mutex, as all below.
    std::list<Key> by_use;         // The latest used first.
    int64_t bytes = 0;
  };
  static Status Check(const Entry& entry, const std::string& digest);
  // The entry of `key`, as the latest used, and whether it is new. REQUIRES: state.mutex.
  static std::pair<Entry*, bool> Use(State& state, const Key& key);
  static void Ended(State& state, const Key& key, int64_t bytes);
  // Calls that go, to be let go of without the lock. REQUIRES: state.mutex.
  static void Trim(State& state, std::vector<std::shared_ptr<KeyedCall>>& gone);

  const std::shared_ptr<State> state_;  // Requests that end late hold it.
};

// Tells requests apart.
std::string DigestOf(const grpc::ByteBuffer& request);

}  // namespace hir::service
