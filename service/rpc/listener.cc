#include "service/rpc/listener.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

#include "csrc/base/check.h"
#include "csrc/base/fd_message.h"
#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "service/rpc/shared_transfers.h"

namespace hir::service {
namespace {

using base::Nanos;
using std::chrono::milliseconds;

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // RFC 9113, 3.4.
static_assert(kPreface.size() == Listener::kMemoryPreface.size() && kPreface.size() == Listener::kFramesPreface.size());
// The header of a record and the type of its message: a handshake of TLS 1.x that begins with ClientHello (RFC 8446,
// 5.1). Its third byte, the version's second, and its length are anything.
constexpr std::array<int, 6> kClientHello = {0x16, 0x03, -1, -1, -1, 0x01};
constexpr milliseconds kTryAgain = milliseconds(50);
constexpr std::chrono::seconds kBetweenRefusals = std::chrono::seconds(1);
constexpr int kAtOnce = 64;  // Accepted before those who have come already are looked at.
constexpr std::string_view kPeerPrefix = "fd:";

using base::Now;

base::Fd Reserve() { return base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

base::Fd Accept(int listening) { return base::Fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); }

void SetEpoll(const base::Fd& epoll, int operation, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll.get(), operation, fd, &event);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Open(const Address& address, const ListenerOptions& options,
                                                 std::optional<Listening> given) {
  if (!given.has_value()) {
    HIR_ASSIGN(given, ListenOn(address));
  }
  return std::unique_ptr<Listener>(new Listener(*std::move(given), address.is_unix, options));
}

Listener::Listener(Listening listening, bool is_unix, const ListenerOptions& options)
    : options_(options),
      is_unix_(is_unix),
      address_(std::move(listening.address)),
      listening_(std::move(listening.sockets)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      reserve_(Reserve()) {
  HIR_CHECK(epoll_.valid());
  SetEpoll(epoll_, EPOLL_CTL_ADD, stop_.fd(), EPOLLIN);
  for (const base::Fd& fd : listening_) SetEpoll(epoll_, EPOLL_CTL_ADD, fd.get(), EPOLLIN);
}

void Listener::Start(Takers takers) {
  takers_ = std::move(takers);
  thread_ = std::thread([this] { Loop(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    stop_.Signal();
    thread_.join();
  }
  silent_.clear();
  num_silent_ = 0;
  listening_.clear();
}

std::optional<Listener::Peer> Listener::PeerOf(std::string_view peer) const {
  if (!peer.starts_with(kPeerPrefix)) return std::nullopt;
  const std::optional<int64_t> fd = base::ParseInt(peer.substr(kPeerPrefix.size()));
  if (!fd.has_value()) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  const auto found = served_.find(static_cast<int>(*fd));
  if (found == served_.end() || !IsOpen(found->first, found->second)) return std::nullopt;
  return found->second.peer;
}

int64_t Listener::connections() const {
  const std::scoped_lock lock(mutex_);
  Forget();
  return static_cast<int64_t>(served_.size()) + num_silent_;
}

void Listener::Forget() const {
  std::erase_if(served_, [](const auto& each) { return !IsOpen(each.first, each.second); });
}

bool Listener::IsOpen(int fd, const Served& served) {
  struct stat info = {};
  return fstat(fd, &info) == 0 && info.st_dev == served.device && info.st_ino == served.inode;
}

// --- the thread ------------------------------------------------------------------------------------------------

void Listener::Loop() {
  std::array<epoll_event, kAtOnce> events = {};
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), MsToWait());
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == stop_.fd()) return;
      const bool listens = std::any_of(listening_.begin(), listening_.end(),
                                       [fd](const base::Fd& listening) { return listening.get() == fd; });
      if (listens) {
        AcceptFrom(fd);
      } else {
        Look(fd, events[static_cast<size_t>(i)].events);
      }
    }
    if (try_again_at_.has_value() && Now() >= *try_again_at_) Watch(true);
    if (!silent_.empty() && Now() >= look_at_silent_) EndSilent();
  }
}

int Listener::MsToWait() const {
  std::optional<Nanos> next = try_again_at_;
  if (!silent_.empty()) next = std::min(next.value_or(look_at_silent_), look_at_silent_);
  if (!next.has_value()) return -1;
  return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(*next - Now()).count()));
}

void Listener::Watch(bool on) {
  for (const base::Fd& fd : listening_) SetEpoll(epoll_, EPOLL_CTL_MOD, fd.get(), on ? uint32_t{EPOLLIN} : 0);
  try_again_at_.reset();
  if (!on) try_again_at_ = Now() + kTryAgain;
}

void Listener::AcceptFrom(int listening) {
  if (try_again_at_.has_value()) return;  // Found full by another socket of the same batch.
  for (int i = 0; i < kAtOnce; ++i) {
    base::Fd fd = Accept(listening);
    if (fd.valid()) {
      full_since_.reset();
      Add(std::move(fd));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED && !AcceptWithoutDescriptor(listening)) {
      return;
    }
  }
}

// The newcomer stays in the queue of the socket, where it is as well off as anywhere. When none is free for a while, it
// learns so instead of waiting for its own deadline.
bool Listener::AcceptWithoutDescriptor(int listening) {
  const int error = errno;
  pollfd waiting = {listening, POLLIN, 0};
  if (poll(&waiting, 1, 0) == 0) return false;  // accept says so, too, when nobody waits.
  if (!full_since_.has_value()) {
    spdlog::warn("no connection can be accepted error={}", base::Quoted(std::generic_category().message(error)));
    full_since_ = Now();
  }
  if (Now() - *full_since_ >= options_.full_timeout) {
    reserve_.Close();
    base::Fd fd = Accept(listening);
    reserve_ = Reserve();
    if (fd.valid() && reserve_.valid()) {  // By now one was free.
      full_since_.reset();
      Add(std::move(fd));
      return true;
    }
    if (fd.valid()) {
      Refuse("no descriptor is free");
      fd.Close();
      reserve_ = Reserve();
      return true;
    }
  }
  Watch(false);
  return false;
}

void Listener::Refuse(std::string_view why) {
  ++refused_;
  if (Now() < say_refused_at_) return;
  say_refused_at_ = Now() + kBetweenRefusals;
  spdlog::warn("connections refused={} since the start={} error={}", refused_ - refused_said_, refused_.load(),
               base::Quoted(why));
  refused_said_ = refused_;
}

void Listener::Add(base::Fd fd) {
  const auto all = [this] { return static_cast<int64_t>(served_.size() + silent_.size()); };
  {
    const std::scoped_lock lock(mutex_);
    served_.erase(fd.get());  // That one is closed: it had the number.
    if (all() >= options_.connections_max) Forget();
    if (all() >= options_.connections_max)
      return Refuse(base::Cat("connections_max = ", options_.connections_max, ": as many are open"));
  }
  Silent connection;
  connection.deadline = Now() + options_.preface_timeout;
  ucred who = {};
  socklen_t size = sizeof(who);
  if (is_unix_) {
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0) connection.peer = Peer{who.uid, who.pid};
  } else {
    const int on = 1;  // As gRPC does to those it accepts.
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  connection.fd = std::move(fd);
  const int number = connection.fd.get();
  const Preface preface = PrefaceOf(number);
  if (IsWhole(preface)) return Begin(preface, std::move(connection));
  if (silent_.empty()) look_at_silent_ = connection.deadline;
  silent_.insert_or_assign(number, std::move(connection));
  ++num_silent_;
  // Edge-triggered: half a preface stays in the socket, readable, until the rest comes.
  SetEpoll(epoll_, EPOLL_CTL_ADD, number, EPOLLIN | EPOLLRDHUP | EPOLLET);
}

Listener::Preface Listener::PrefaceOf(int fd) const {
  if (options_.tls) return PrefaceOfTls(fd);
  std::array<char, kPreface.size() + kTokenBytes> bytes = {};
  const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Preface::kPart : Preface::kWrong;
  const std::string_view all(bytes.data(), static_cast<size_t>(got));
  const std::string_view preface = all.substr(0, kPreface.size());
  if (preface == kPreface) return Preface::kHttp;
  const bool has_memory = is_unix_ && takers_.exchange, has_frames = is_unix_ && takers_.frames;
  if (has_memory && preface == kMemoryPreface) return all.size() == bytes.size() ? Preface::kMemory : Preface::kPart;
  if (has_frames && preface == kFramesPreface) return Preface::kFrames;
  const bool begins = kPreface.starts_with(preface) || (has_memory && kMemoryPreface.starts_with(preface)) ||
                      (has_frames && kFramesPreface.starts_with(preface));
  return !preface.empty() && begins ? Preface::kPart : Preface::kWrong;
}

Listener::Preface Listener::PrefaceOfTls(int fd) {
  std::array<unsigned char, kClientHello.size()> bytes = {};
  const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Preface::kPart : Preface::kWrong;
  for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
    if (kClientHello[i] >= 0 && bytes[i] != kClientHello[i]) return Preface::kWrong;
  }
  if (got == 0) return Preface::kWrong;
  return static_cast<size_t>(got) == bytes.size() ? Preface::kHttp : Preface::kPart;
}

bool Listener::IsWhole(Preface preface) { return preface != Preface::kPart && preface != Preface::kWrong; }

void Listener::Begin(Preface preface, Silent connection) {
  if (preface == Preface::kHttp) {
    Count(connection);
    return takers_.serve(connection.fd.Release());
  }
  if (preface == Preface::kFrames) return ServeFrames(std::move(connection));
  std::array<char, kPreface.size() + kTokenBytes> bytes = {};
  base::FdRoom<kSharedPartsMax> room;
  iovec data = {bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room.bytes;
  message.msg_controllen = sizeof(room.bytes);
  if (recvmsg(connection.fd.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != std::ssize(bytes)) return;
  std::vector<base::Fd> brought = base::DetachFds(message);  // Where some got lost there are too few.
  if (!connection.peer.has_value()) return;
  takers_.exchange(std::move(connection.fd), std::string_view(bytes.data(), bytes.size()).substr(kPreface.size()),
                   std::move(brought), *connection.peer);
}

void Listener::ServeFrames(Silent connection) {
  std::array<char, kFramesPreface.size()> preface = {};
  if (recv(connection.fd.get(), preface.data(), preface.size(), MSG_DONTWAIT) != std::ssize(preface)) return;
  if (!connection.peer.has_value()) return;
  Count(connection);
  takers_.frames(std::move(connection.fd), *connection.peer);
}

void Listener::Look(int fd, uint32_t events) {
  const auto found = silent_.find(fd);
  if (found == silent_.end()) return;
  const Preface preface = PrefaceOf(fd);
  const bool over = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (preface == Preface::kPart && !over) return;
  Silent connection = std::move(found->second);
  silent_.erase(found);
  --num_silent_;
  SetEpoll(epoll_, EPOLL_CTL_DEL, fd, 0);
  if (IsWhole(preface)) Begin(preface, std::move(connection));
}

void Listener::Count(const Silent& connection) {
  struct stat info = {};
  fstat(connection.fd.get(), &info);
  const std::scoped_lock lock(mutex_);
  served_.insert_or_assign(connection.fd.get(), Served{info.st_dev, info.st_ino, connection.peer});
}

void Listener::EndSilent() {
  const Nanos now = Now();
  std::erase_if(silent_, [now](const auto& each) { return each.second.deadline <= now; });
  num_silent_ = static_cast<int64_t>(silent_.size());
  look_at_silent_ = Nanos::max();
  for (const auto& [fd, connection] : silent_) look_at_silent_ = std::min(look_at_silent_, connection.deadline);
}

}  // namespace hir::service
