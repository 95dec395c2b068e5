#include "service/links/node_links.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "hostir/v1/node.grpc.pb.h"
#include "service/links/outbox.h"
#include "service/links/silence.h"
#include "service/os/wakeup.h"
#include "service/tls/credentials.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

constexpr milliseconds kRetryMin{100};
constexpr milliseconds kRetryMax{1000};
constexpr milliseconds kLookAtEnd{50};
constexpr base::Nanos kSayWaitingEvery = std::chrono::seconds(5);

std::shared_ptr<grpc::Channel> ChannelTo(const Address& address, const TlsFiles& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(kRetryMin.count()));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(kRetryMax.count()));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(kRetryMax.count()));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  const auto credentials = ChannelCredentialsOf(address.is_unix ? TlsFiles() : tls);
  return grpc::CreateCustomChannel(address.is_unix ? address.ToString() : address.target, credentials, arguments);
}

// Events of all links. Threads: any pushes, one takes.
class Inbox {
 public:
  void Push(NodeEvent event) {
    std::unique_lock lock(mutex_);
    const size_t bytes = event.message.ByteSizeLong();
    // Shards' bytes wait, and nothing else: whoever says it may have a lock, and there is little of it.
    if (event.message.has_bytes()) room_.wait(lock, [&] { return bytes_ <= kQueuedBytesMax || closed_; });
    bytes_ += bytes;
    events_.push_back(std::move(event));
    wakeup_.Signal();
  }
  std::optional<NodeEvent> Take() {
    const std::scoped_lock lock(mutex_);
    wakeup_.Clear();
    if (events_.empty()) return std::nullopt;
    NodeEvent event = std::move(events_.front());
    events_.pop_front();
    bytes_ -= event.message.ByteSizeLong();
    room_.notify_all();
    return event;
  }
  bool empty() const {
    const std::scoped_lock lock(mutex_);
    return events_.empty();
  }
  void Wake() { wakeup_.Signal(); }
  int fd() const { return wakeup_.fd(); }
  void Close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    room_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::deque<NodeEvent> events_;  // Guarded by mutex_, as the next.
  size_t bytes_ = 0;
  bool closed_ = false;
  Wakeup wakeup_;
};

class Link {
 public:
  virtual ~Link() = default;
  virtual void Send(pb::ToNode message) = 0;
};

class OwnLink final : public Link {
 public:
  OwnLink(int64_t node, pb::Join join, Agent& agent, const std::shared_ptr<Inbox>& inbox) : agent_(agent) {
    join.set_node(node);
    Result<int64_t> joined = agent.Join(
        join, [node, inbox](pb::FromNode message) { inbox->Push({.node = node, .message = std::move(message)}); },
        [node, inbox](const Status& why) { inbox->Push({.node = node, .lost = why}); });
    if (joined.ok()) {
      number_ = *joined;
    } else {
      inbox->Push({.node = node, .lost = joined.status()});
    }
  }
  ~OwnLink() override { agent_.Leave(number_); }
  void Send(pb::ToNode message) override { agent_.Take(number_, std::move(message)); }

 private:
  Agent& agent_;
  int64_t number_ = -1;
};

// One thread reads and connects again; what is sent is written by another, while there is a stream.
class GrpcLink final : public Link {
 public:
  GrpcLink(int64_t node, const Address& address, const TlsFiles& tls, pb::Join join, Inbox& inbox)
      : node_(node), address_(address), tls_(tls), join_(std::move(join)), inbox_(inbox) {
    join_.set_node(node);
    thread_ = std::thread([this] { Loop(); });
  }
  ~GrpcLink() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    outbox_.Close();
    thread_.join();
  }

  void Send(pb::ToNode message) override { outbox_.Push(std::move(message)); }

 private:
  void Loop() {
    milliseconds pause = kRetryMin;
    while (!is_stopping()) {
      if (channel_ == nullptr) channel_ = ChannelTo(address_, tls_);
      if (const Status ended = Serve(); told_ != ended.ToString()) {
        told_ = ended.ToString();
        inbox_.Push({.node = node_, .lost = ended});
      }
      if (std::exchange(was_up_, false)) pause = kRetryMin;
      if (channel_ == nullptr) continue;
      // gRPC connects only while somebody waits for it.
      const auto until = std::chrono::system_clock::now() + pause;
      while (!is_stopping() && std::chrono::system_clock::now() < until) {
        if (channel_->WaitForConnected(std::chrono::system_clock::now() + kLookAtEnd)) break;
      }
      pause = std::min(2 * pause, kRetryMax);
    }
  }
  bool is_stopping() {
    const std::scoped_lock lock(mutex_);
    return stopping_;
  }

  // One stream, to its end. Why it ended.
  Status Serve() {
    grpc::ClientContext context;
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return Unavailable("the head is shutting down");
      context_ = &context;
    }
    Silence silence([&context] { context.TryCancel(); });
    const auto stream = pb::Node::NewStub(channel_)->Serve(&context);
    pb::ToNode first;
    *first.mutable_join() = join_;
    NodeEvent event = {.node = node_};
    if (stream->Write(first) && stream->Read(&event.message)) {
      outbox_.Open();
      was_up_ = true;
      told_.clear();
      std::thread writer([&] { outbox_.Write(*stream); });
      do {
        silence.Heard();
        if (event.message.has_beat()) continue;
        inbox_.Push(std::move(event));
        event = {.node = node_};
      } while (stream->Read(&event.message));
      outbox_.Close();
      writer.join();
    }
    const grpc::Status status = stream->Finish();
    const std::scoped_lock lock(mutex_);
    context_ = nullptr;
    if (silence.was_noticed()) {
      channel_ = nullptr;  // Its connection may be a dead one, for minutes.
      return Unavailable("nothing came from it for 5 s");
    }
    if (status.ok()) return Unavailable("it ended the link");
    return {static_cast<Code>(status.error_code()), status.error_message()};
  }

  const int64_t node_;
  const Address address_;
  const TlsFiles tls_;
  pb::Join join_;
  Inbox& inbox_;
  std::shared_ptr<grpc::Channel> channel_;  // The thread's, as the next:
  bool was_up_ = false;
  std::string told_;  // Why there is no link, as it was said last.
  Outbox<pb::ToNode> outbox_;
  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  // Guarded by mutex_, as the next.
  bool stopping_ = false;
  std::thread thread_;
};

class Links final : public NodeLinks {
 public:
  Links(NodeLinksOptions options, Agent& agent) : options_(std::move(options)) {
    for (size_t i = 0; i < options_.addresses.size(); ++i) {
      const auto node = static_cast<int64_t>(i);
      if (node == options_.own) {
        links_.push_back(std::make_unique<OwnLink>(node, options_.join, agent, inbox_));
      } else {
        links_.push_back(std::make_unique<GrpcLink>(node, options_.addresses[i], options_.tls, options_.join, *inbox_));
      }
    }
  }
  ~Links() override { inbox_->Close(); }

  int64_t size() const override { return std::ssize(links_); }
  std::string NameOf(int64_t node) const override {
    return base::Cat("node ", node, " (", options_.addresses[static_cast<size_t>(node)].ToString(), ")");
  }
  const base::Clock& clock() const override { return base::Clock::Steady(); }
  void Send(int64_t node, pb::ToNode message) override { links_[static_cast<size_t>(node)]->Send(std::move(message)); }
  std::optional<NodeEvent> Take() override {
    std::optional<NodeEvent> event = inbox_->Take();
    if (event && !event->lost.ok()) {
      spdlog::warn("{} has no link error={}", NameOf(event->node), base::Quoted(event->lost.ToString()));
      if (event->lost.code() == Code::kAborted && options_.deposed) options_.deposed();
    }
    if (event && event->message.has_joined()) spdlog::info("{} joined", NameOf(event->node));
    return event;
  }
  void Wait(int wake_fd, base::Nanos deadline) override {
    if (!inbox_->empty()) return;
    pollfd fds[2] = {{inbox_->fd(), POLLIN, 0}, {wake_fd, POLLIN, 0}};
    const base::Nanos left = std::max(base::Nanos{}, deadline - clock().Now());
    const timespec time = {.tv_sec = left.count() / 1000000000, .tv_nsec = left.count() % 1000000000};
    (void)ppoll(fds, 2, &time, nullptr);
  }
  void Interrupt() override { inbox_->Wake(); }

  Result<std::vector<std::optional<pb::Joined>>> WaitJoined(base::Nanos timeout, bool all, int interrupt_fd,
                                                            const Waiting& waiting) override {
    std::vector<std::optional<pb::Joined>> joined(links_.size());
    std::vector<Status> lost(links_.size());
    const base::Nanos deadline = clock().Now() + timeout;
    base::Nanos say_at = clock().Now() + kSayWaitingEvery;
    for (;;) {
      while (std::optional<NodeEvent> event = Take()) {
        const auto node = static_cast<size_t>(event->node);
        lost[node] = event->lost;
        const Code code = event->lost.code();
        // A node that does not fit is not there; one of a list never will be.
        if (all && (code == Code::kFailedPrecondition || code == Code::kUnauthenticated))
          return event->lost.WithContext(NameOf(event->node));
        if (code == Code::kAborted) return event->lost.WithContext(NameOf(event->node));
        if (event->lost.ok() && event->message.has_joined()) joined[node] = event->message.joined();
        if (!event->lost.ok()) joined[node].reset();
      }
      std::vector<std::string> missing;
      for (size_t i = 0; i < joined.size(); ++i) {
        if (!joined[i]) {
          missing.push_back(base::Cat(NameOf(static_cast<int64_t>(i)), lost[i].ok() ? "" : ": ", lost[i].message()));
        }
      }
      if (missing.empty()) break;
      const base::Nanos now = clock().Now();
      const std::string who = base::Join(missing, "; ");
      if (now >= deadline && !all) break;
      if (now >= deadline)
        return Status(Code::kDeadlineExceeded,
                      base::Cat("the cluster waited ", timeout.count() / 1000000000, " s (join_timeout_ms) for ", who));
      if (now >= say_at) {
        waiting(who);
        say_at += kSayWaitingEvery;
      }
      pollfd interrupted = {interrupt_fd, POLLIN, 0};
      if (poll(&interrupted, 1, 0) > 0) return Status(Code::kCancelled, base::Cat("while it waited for ", who));
      Wait(interrupt_fd, std::min(deadline, say_at));
    }
    return joined;
  }

 private:
  const NodeLinksOptions options_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();  // The agent of this node may have it for longer.
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace

std::unique_ptr<NodeLinks> NodeLinks::Make(NodeLinksOptions options, Agent& agent) {
  return std::make_unique<Links>(std::move(options), agent);
}

}  // namespace hir::service
