#include "service/rpc/framed_calls.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "service/convert/status.h"

namespace hir::service {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr size_t kRequestHead = 6, kAnswerHead = 8;
constexpr size_t kFirstBytes = 16 << 10;  // That are read at once, and most requests have.
constexpr std::chrono::seconds kBetweenLooks = std::chrono::seconds(1);  // For what stands still.
constexpr size_t kPartsAtOnce = 64;                                      // Of an answer, in one system call.

// The sizes that a request begins with.
struct Head {
  uint32_t message = 0;
  uint8_t method = 0, trace = 0;
  size_t whole() const { return kRequestHead + method + trace + message; }
};

Head HeadOf(const std::string& frame) {
  Head head;
  std::memcpy(&head.message, frame.data(), sizeof(head.message));
  head.method = static_cast<uint8_t>(frame[4]);
  head.trace = static_cast<uint8_t>(frame[5]);
  return head;
}

std::array<char, kAnswerHead> AnswerHead(size_t bytes, Code code) {
  std::array<char, kAnswerHead> head = {};
  const auto size = static_cast<uint32_t>(bytes), number = static_cast<uint32_t>(code);
  std::memcpy(head.data(), &size, sizeof(size));
  std::memcpy(head.data() + sizeof(size), &number, sizeof(number));
  return head;
}

}  // namespace

// One connection, in one of three states: a request comes; it is carried out; its answer goes. Thread-safe.
class FrameSocket : public std::enable_shared_from_this<FrameSocket> {
 public:
  FrameSocket(FramedCalls& calls, base::Fd fd, const Listener::Peer& peer)
      : calls_(calls), peer_(peer), fd_(std::move(fd)) {}

  // Something has come, or the client has left.
  void Look(uint32_t events);
  // The request that has come is `call`'s.
  void Begin(std::shared_ptr<FramedCall> call) {
    const std::scoped_lock lock(mutex_);
    call_ = std::move(call);
  }
  // `call` null: the request has none.
  void Answer(FramedCall* call, const Status& status, const grpc::ByteBuffer& answer);
  void EndIfStalled(base::Nanos now) {
    std::unique_lock lock(mutex_);
    if (fd_.valid() && stalls_at_.has_value() && *stalls_at_ <= now) Close(lock);
  }
  void End() {
    std::unique_lock lock(mutex_);
    if (fd_.valid()) Close(lock);
  }

 private:
  enum class State { kReading, kCarrying, kSending };

  // All below REQUIRE mutex_, and that fd_ is open.
  //
  // More of the frame that comes. True: it is there. Errors: it will never be; kUnavailable: the client has left.
  Result<bool> Read();
  Status Grow(size_t bytes);
  // Whether the rest of the answer has gone. Errors: kUnavailable.
  Result<bool> Write();
  void SetMoving(bool is_moving);  // Whether a frame has come, or gone, in part.
  void Close(std::unique_lock<std::mutex>& lock);
  void Watch(uint32_t events) { calls_.Watch(fd_.get(), events); }

  FramedCalls& calls_;  // As long as fd_ is open.
  const Listener::Peer peer_;
  std::mutex mutex_;
  base::Fd fd_;  // Guarded by mutex_, as all below; closed: the client has left.
  State state_ = State::kReading;
  std::string in_;  // Of the request.
  size_t in_size_ = 0;
  Charge charge_;    // For in_.
  std::string out_;  // Of the answer, what has not gone.
  size_t out_at_ = 0;
  bool ends_ = false;  // With the answer.
  std::optional<base::Nanos> stalls_at_;
  std::shared_ptr<FramedCall> call_;  // From its beginning until its answer has gone.
};

void FrameSocket::Look(uint32_t events) {
  std::unique_lock lock(mutex_);
  if (!fd_.valid()) return;
  if (state_ == State::kSending) {
    const Result<bool> sent = Write();
    if (sent.ok() && !*sent) return Watch(EPOLLOUT | EPOLLRDHUP);
    if (!sent.ok() || ends_) return Close(lock);
    const std::shared_ptr<FramedCall> call = std::move(call_);
    state_ = State::kReading;
    Watch(EPOLLIN | EPOLLRDHUP);
    lock.unlock();
    if (call != nullptr) call->Over();
    return;
  }
  if (state_ == State::kCarrying) {
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) Close(lock);
    return;
  }
  const Result<bool> whole = Read();
  if (whole.ok() && !*whole) return Watch(EPOLLIN | EPOLLRDHUP);
  state_ = State::kCarrying;
  if (!whole.ok()) {
    if (whole.status().code() == Code::kUnavailable) return Close(lock);
    ends_ = true;  // Nobody knows where the next frame begins.
    lock.unlock();
    return Answer(nullptr, whole.status(), {});
  }
  // Moved, since the next may come before this one is let go of.
  const std::string frame = std::exchange(in_, {});
  in_size_ = 0;
  const Charge charge = std::move(charge_);
  const int number = fd_.get();
  lock.unlock();
  const Head head = HeadOf(frame);
  const std::string_view rest = std::string_view(frame).substr(kRequestHead);
  const grpc::Slice message(rest.data() + head.method + head.trace, head.message);
  calls_.carry_({.method = rest.substr(0, head.method),
                 .trace = rest.substr(head.method, head.trace),
                 .peer = peer_,
                 .fd = number,
                 .bytes = grpc::ByteBuffer(&message, 1),
                 .socket = shared_from_this()});
  lock.lock();
  if (fd_.valid() && state_ == State::kCarrying) Watch(EPOLLRDHUP);
}

Result<bool> FrameSocket::Read() {
  for (;;) {
    const size_t wanted = in_size_ < kRequestHead ? kFirstBytes : HeadOf(in_).whole();
    if (in_size_ >= kRequestHead) {
      const int64_t most = calls_.options_.message_bytes_max;
      if (HeadOf(in_).message > most) {
        return ResourceExhausted(
            base::Cat("message_bytes_max = ", most, ": the request has ", HeadOf(in_).message, " bytes; split it"));
      }
      if (in_size_ == wanted) {
        SetMoving(false);
        return true;
      }
      if (in_size_ > wanted) return InvalidArgument("a request before the one before is answered: wait for it");
    }
    HIR_TRY(Grow(wanted));
    const ssize_t got = recv(fd_.get(), in_.data() + in_size_, in_.size() - in_size_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      if (in_size_ > 0) SetMoving(true);
      return false;
    }
    if (got <= 0) return Unavailable("the client has left");
    in_size_ += static_cast<size_t>(got);
  }
}

// Room for more of a frame of `bytes`: twice that, at most, which has come of it, since what is claimed costs nothing.
Status FrameSocket::Grow(size_t bytes) {
  if (in_size_ < in_.size()) return {};
  const size_t room = std::min(bytes, std::max(kFirstBytes, 2 * in_.size()));
  const int64_t over = static_cast<int64_t>(room) - FramedCalls::kSmallBytes;
  if (over > charge_.amount()) {
    if (charge_.amount() == 0) {
      HIR_ASSIGN(charge_, calls_.bytes_.Take(over));
    } else {
      HIR_TRY(charge_.Grow(over - charge_.amount()));
    }
  }
  in_.resize(room);
  return {};
}

void FrameSocket::Answer(FramedCall* call, const Status& status, const grpc::ByteBuffer& answer) {
  std::unique_lock lock(mutex_);
  if (!fd_.valid()) {  // It has left, as it was about to be told.
    call_ = nullptr;
    lock.unlock();
    if (call != nullptr) {
      call->Left();
      call->Over();
    }
    return;
  }
  std::vector<grpc::Slice> slices;
  std::string error;
  if (!status.ok()) {
    error = ToGrpc(status).error_message();
    slices.emplace_back(error.data(), error.size(), grpc::Slice::STATIC_SLICE);
  } else if (answer.Valid()) {
    (void)answer.Dump(&slices);
  }
  size_t bytes = 0;
  for (const grpc::Slice& slice : slices) bytes += slice.size();
  const std::array<char, kAnswerHead> head = AnswerHead(bytes, status.code());
  std::array<iovec, kPartsAtOnce> parts = {};
  parts[0] = {const_cast<char*>(head.data()), head.size()};
  const size_t num_parts = std::min(slices.size() + 1, parts.size());
  for (size_t i = 1; i < num_parts; ++i) {
    parts[i] = {const_cast<uint8_t*>(slices[i - 1].begin()), slices[i - 1].size()};
  }
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = num_parts;
  const ssize_t sent = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  auto gone = static_cast<size_t>(std::max<ssize_t>(sent, 0));
  const std::shared_ptr<FramedCall> kept = call_;  // Until it is over.
  if (gone == head.size() + bytes && !ends_) {
    call_ = nullptr;
    state_ = State::kReading;
    Watch(EPOLLIN | EPOLLRDHUP);
    lock.unlock();
    if (call != nullptr) call->Over();
    return;
  }
  state_ = State::kSending;
  const auto keep = [this, &gone](const void* data, size_t size) {
    const size_t skipped = std::min(gone, size);
    gone -= skipped;
    out_.append(static_cast<const char*>(data) + skipped, size - skipped);
  };
  keep(head.data(), head.size());
  for (const grpc::Slice& slice : slices) keep(slice.begin(), slice.size());
  const bool failed = sent < 0 && errno != EAGAIN && errno != EINTR;
  if (failed || (ends_ && out_.empty())) return Close(lock);
  SetMoving(true);
  Watch(EPOLLOUT | EPOLLRDHUP);
}

Result<bool> FrameSocket::Write() {
  while (out_at_ < out_.size()) {
    const ssize_t sent = send(fd_.get(), out_.data() + out_at_, out_.size() - out_at_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      SetMoving(true);
      return false;
    }
    if (sent < 0) return Unavailable("the client has left");
    out_at_ += static_cast<size_t>(sent);
  }
  out_ = {};
  out_at_ = 0;
  SetMoving(false);
  return true;
}

void FrameSocket::SetMoving(bool is_moving) {
  if (is_moving != stalls_at_.has_value()) calls_.CountMoving(is_moving ? 1 : -1);
  stalls_at_.reset();
  if (is_moving) stalls_at_ = base::Now() + calls_.options_.idle;
}

void FrameSocket::Close(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<FrameSocket> self = shared_from_this();  // Which the list may have been the last to hold.
  SetMoving(false);
  calls_.Forget(fd_.get());
  fd_.Close();
  in_ = {};
  const std::shared_ptr<FramedCall> call = std::move(call_);
  const bool is_answered = state_ == State::kSending;
  lock.unlock();
  if (call == nullptr) return;
  call->Left();
  if (is_answered) call->Over();
}

FramedCall::FramedCall(CallRecord record, InFlight& in_flight, CallLog& log,
                       std::unique_ptr<google::protobuf::Message> reply, std::shared_ptr<FrameSocket> socket)
    : UnaryCall(std::move(record), in_flight, log, std::move(reply)), socket_(std::move(socket)) {}

std::shared_ptr<FramedCall> FramedCall::Make(CallRecord record, InFlight& in_flight, CallLog& log,
                                             std::unique_ptr<google::protobuf::Message> reply,
                                             const std::shared_ptr<FrameSocket>& socket) {
  std::shared_ptr<FramedCall> call(new FramedCall(std::move(record), in_flight, log, std::move(reply), socket));
  socket->Begin(call);
  return call;
}

void FramedCall::Send(const Status& status, grpc::ByteBuffer answer) { socket_->Answer(this, status, answer); }

FramedCalls::FramedCalls(const Options& options, std::function<void(Request)> carry)
    : options_(options),
      carry_(std::move(carry)),
      bytes_("transport_bytes_max", "bytes of requests on their way", options.transport_bytes_max),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  HIR_CHECK(epoll_.valid());
  for (const Wakeup* wakeup : {&stop_, &moving_}) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.fd = wakeup->fd();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup->fd(), &event);
  }
  for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { Loop(); });
}

void FramedCalls::Add(base::Fd fd, const Listener::Peer& peer) {
  const int number = fd.get();
  const auto socket = std::make_shared<FrameSocket>(*this, std::move(fd), peer);
  const std::scoped_lock lock(mutex_);
  if (stopped_) return;
  sockets_.insert_or_assign(number, socket);
  const std::array<char, kAnswerHead> taken = AnswerHead(0, Code::kOk);
  (void)send(number, taken.data(), taken.size(), MSG_DONTWAIT | MSG_NOSIGNAL);  // It has room, and who left is seen.
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
  event.data.fd = number;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, number, &event);
}

void FramedCalls::Refuse(const Request& request, const Status& status) { request.socket->Answer(nullptr, status, {}); }

void FramedCalls::Stop() {
  stop_.Signal();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::unordered_map<int, std::shared_ptr<FrameSocket>> ended;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
    ended = sockets_;
  }
  for (const auto& [fd, socket] : ended) socket->End();
}

void FramedCalls::Loop() {
  const int between_ms = static_cast<int>(std::chrono::milliseconds(kBetweenLooks).count());
  for (;;) {
    epoll_event event = {};
    const int count = epoll_wait(epoll_.get(), &event, 1, num_moving_ > 0 ? between_ms : -1);
    if (num_moving_ > 0 && base::Now() >= look_at_.load()) EndStalled();
    if (count <= 0) continue;
    if (event.data.fd == stop_.fd()) return;
    if (event.data.fd == moving_.fd()) moving_.Clear();
    if (const std::shared_ptr<FrameSocket> socket = Find(event.data.fd)) socket->Look(event.events);
  }
}

void FramedCalls::CountMoving(int64_t more) {
  if (num_moving_.fetch_add(more) == 0) moving_.Signal();  // Threads that wait for ever wait no longer.
}

void FramedCalls::EndStalled() {
  look_at_ = base::Now() + kBetweenLooks;
  std::vector<std::shared_ptr<FrameSocket>> all;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [fd, socket] : sockets_) all.push_back(socket);
  }
  for (const std::shared_ptr<FrameSocket>& socket : all) socket->EndIfStalled(base::Now());
}

std::shared_ptr<FrameSocket> FramedCalls::Find(int fd) {
  const std::scoped_lock lock(mutex_);
  const auto found = sockets_.find(fd);
  return found == sockets_.end() ? nullptr : found->second;
}

void FramedCalls::Forget(int fd) {
  const std::scoped_lock lock(mutex_);
  sockets_.erase(fd);
}

void FramedCalls::Watch(int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events | EPOLLONESHOT;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

}  // namespace hir::service
