#include "service/rpc/request_keys.h"

#include <algorithm>

#include "csrc/base/digest.h"
#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {
namespace {

Status CheckKey(const std::string& key) {
  if (key.size() <= RequestKeys::kKeyBytesMax) return {};
  return InvalidArgument(base::Cat("a request key of ", key.size(), " bytes; at most ", RequestKeys::kKeyBytesMax));
}

}  // namespace

bool KeyedCall::Claim() {
  const std::scoped_lock lock(mutex_);
  return !std::exchange(claimed_, true);
}

void KeyedCall::End(const Status& status) {
  grpc::ByteBuffer answer;
  Status told = status;
  if (status.ok() && !Write(*reply_, answer).ok()) told = Internal("the reply cannot be written");
  std::vector<std::shared_ptr<UnaryCall>> calls;
  bool undo = false;
  int64_t run = -1;
  {
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    status_ = told;
    answer_ = answer;
    calls.swap(calls_);
    undo = abandoned_;
    run = run_;
  }
  reply_ = nullptr;
  if (undo && undo_) undo_();
  if (then_) then_(static_cast<int64_t>(answer.Length()));
  for (const std::shared_ptr<UnaryCall>& call : calls) {
    call->LearnRun(run);
    if (call->Claim()) call->EndWith(told, answer);
  }
}

void KeyedCall::Answer(std::shared_ptr<UnaryCall> call) {
  {
    const std::scoped_lock lock(mutex_);
    if (!ended_) {
      calls_.push_back(std::move(call));
      return;
    }
    call->LearnRun(run_);
  }
  if (call->Claim()) call->EndWith(status_, answer_);
}

void KeyedCall::LearnRun(int64_t run) {
  const std::scoped_lock lock(mutex_);
  run_ = run;
}

std::shared_ptr<KeyedCall> KeyedCall::Over(int64_t id, const grpc::ByteBuffer& answer, std::function<void()> undo) {
  auto call = std::make_shared<KeyedCall>(id, nullptr);
  call->claimed_ = call->ended_ = true;
  call->answer_ = answer;
  call->undo_ = std::move(undo);
  return call;
}

std::optional<grpc::ByteBuffer> KeyedCall::answer() {
  const std::scoped_lock lock(mutex_);
  if (!ended_ || !status_.ok()) return std::nullopt;
  return answer_;
}

int64_t KeyedCall::Abandon() {
  int64_t run = -1;
  {
    const std::scoped_lock lock(mutex_);
    run = run_;
    if (std::exchange(abandoned_, true) || !ended_) return run;
  }
  if (undo_) undo_();
  return run;
}

Status RequestKeys::Check(const Entry& entry, const std::string& digest) {
  if (entry.call == nullptr) {
    return Status(Code::kAborted, "the request was given up, or its answer is kept no longer");
  }
  if (entry.digest == digest) return {};
  return InvalidArgument("the request's key is that of another request: each has a key of its own");
}

std::pair<RequestKeys::Entry*, bool> RequestKeys::Use(State& state, const Key& key) {
  const auto [at, is_new] = state.entries.try_emplace(key);
  Entry& entry = at->second;
  if (is_new) {
    state.by_use.push_front(key);
    entry.used = state.by_use.begin();
  } else {
    state.by_use.splice(state.by_use.begin(), state.by_use, entry.used);
  }
  return {&entry, is_new};
}

std::shared_ptr<KeyedCall> RequestKeys::Begin(const std::string& session, const std::string& key,
                                              const std::string& digest, const std::shared_ptr<UnaryCall>& call,
                                              std::unique_ptr<google::protobuf::Message> reply) {
  std::shared_ptr<KeyedCall> found;
  std::vector<std::shared_ptr<KeyedCall>> gone;
  Status status = CheckKey(key);
  if (status.ok()) {
    const std::scoped_lock lock(state_->mutex);
    const Key of = {session, key};
    const auto [entry, is_new] = Use(*state_, of);
    if (is_new) {
      entry->digest = digest;
      entry->call = found = std::make_shared<KeyedCall>(call->id(), std::move(reply), call->trace());
      found->OnEnd([state = state_, of](int64_t bytes) { Ended(*state, of, bytes); });
      found->Answer(call);
      Trim(*state_, gone);
      return found;
    }
    status = Check(*entry, digest);
    found = entry->call;
  }
  if (status.ok()) {
    found->Answer(call);
  } else {
    call->ClaimAndEnd(status);
  }
  return nullptr;
}

Result<std::optional<grpc::ByteBuffer>> RequestKeys::Find(const std::string& session, const std::string& key,
                                                          const std::string& digest) {
  HIR_TRY(CheckKey(key));
  const std::scoped_lock lock(state_->mutex);
  const auto found = state_->entries.find({session, key});
  if (found == state_->entries.end()) return std::optional<grpc::ByteBuffer>();
  HIR_TRY(Check(found->second, digest));
  return found->second.call->answer();
}

Result<grpc::ByteBuffer> RequestKeys::Keep(const std::string& session, const std::string& key,
                                           const std::string& digest, int64_t id, const grpc::ByteBuffer& answer,
                                           std::function<void()> undo) {
  std::vector<std::shared_ptr<KeyedCall>> gone;
  const auto other = [&]() -> Result<std::optional<grpc::ByteBuffer>> {
    const std::scoped_lock lock(state_->mutex);
    const auto [entry, is_new] = Use(*state_, {session, key});
    if (!is_new) {
      HIR_TRY(Check(*entry, digest));
      return entry->call->answer();
    }
    entry->digest = digest;
    entry->call = KeyedCall::Over(id, answer, std::exchange(undo, nullptr));
    entry->ended = true;
    entry->bytes = static_cast<int64_t>(answer.Length());
    state_->bytes += entry->bytes;
    Trim(*state_, gone);
    return std::optional(answer);
  }();
  if (undo) undo();
  HIR_TRY(other.status());
  if (other->has_value()) return **other;
  return Status(Code::kAborted, "another request of its key is under way; send it again");
}

void RequestKeys::Ended(State& state, const Key& key, int64_t bytes) {
  std::vector<std::shared_ptr<KeyedCall>> gone;
  const std::scoped_lock lock(state.mutex);
  const auto found = state.entries.find(key);
  if (found == state.entries.end() || found->second.call == nullptr)
    return;  // Its session has ended, or it is given up.
  found->second.ended = true;
  found->second.bytes = bytes;
  state.bytes += bytes;
  Trim(state, gone);
}

void RequestKeys::Trim(State& state, std::vector<std::shared_ptr<KeyedCall>>& gone) {
  // Answers first; then keys, too, but not of requests that are under way.
  for (auto at = state.by_use.rbegin(); state.bytes > state.most.answer_bytes && at != state.by_use.rend(); ++at) {
    Entry& entry = state.entries.find(*at)->second;
    if (!entry.ended || entry.call == nullptr) continue;
    state.bytes -= std::exchange(entry.bytes, 0);
    gone.push_back(std::exchange(entry.call, nullptr));
  }
  for (auto at = state.by_use.end(); state.entries.size() > state.most.keys && at != state.by_use.begin();) {
    --at;
    const auto found = state.entries.find(*at);
    if (!found->second.ended && found->second.call != nullptr) continue;
    state.bytes -= found->second.bytes;
    gone.push_back(std::move(found->second.call));
    state.entries.erase(found);
    at = state.by_use.erase(at);
  }
}

int64_t RequestKeys::Abandon(const std::string& session, const std::string& key) {
  if (!CheckKey(key).ok()) return -1;  // No request has it.
  std::shared_ptr<KeyedCall> call;
  std::vector<std::shared_ptr<KeyedCall>> gone;
  {
    const std::scoped_lock lock(state_->mutex);
    Entry& entry = *Use(*state_, {session, key}).first;
    entry.ended = true;
    state_->bytes -= std::exchange(entry.bytes, 0);
    call = std::exchange(entry.call, nullptr);
    Trim(*state_, gone);
  }
  return call == nullptr ? -1 : call->Abandon();
}

void RequestKeys::EndSession(const std::string& session) {
  std::vector<std::shared_ptr<KeyedCall>> gone;
  const std::scoped_lock lock(state_->mutex);
  auto at = state_->entries.lower_bound({session, ""});
  while (at != state_->entries.end() && at->first.first == session) {
    state_->bytes -= at->second.bytes;
    gone.push_back(std::move(at->second.call));
    state_->by_use.erase(at->second.used);
    at = state_->entries.erase(at);
  }
}

std::string DigestOf(const grpc::ByteBuffer& request) {
  grpc::Slice whole;
  if (!request.DumpToSingleSlice(&whole).ok()) return {};
  return base::Digest({reinterpret_cast<const char*>(whole.begin()), whole.size()});
}

}  // namespace hir::service
