#include "multidevice/rendezvous/descriptors.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>

#include "csrc/base/text.h"

namespace hir::comm {
namespace {

using base::Cat;

constexpr size_t kTokenBytes = 16;
constexpr size_t kMessageBytesMax = 4096;

base::Nanos Now() { return base::Clock::Steady().Now(); }

Status Failed(std::string_view call) {
  return Internal(Cat("descriptors: ", call, ": ", std::strerror(errno)));  // NOLINT: one thread sets errno.
}

// The machine and its network namespace, in which abstract names live.
std::string PlaceName() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space = {};
  const ssize_t bytes = readlink("/proc/self/ns/net", space.data(), space.size());
  return Cat(boot, "/", std::string_view(space.data(), bytes < 0 ? 0 : static_cast<size_t>(bytes)));
}

Result<std::string> NewToken() {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) return Failed("getrandom");
  return token;
}

// A socket that others connect to.
struct Listener {
  base::Fd socket = {};
  std::string name = {}, token = {};
};
Result<Listener> Listen(int64_t size) {
  Listener made = {.socket = base::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!made.socket.valid()) return Failed("socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const int fd = made.socket.get();
  // Without a path the kernel finds a free name.
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)) != 0) return Failed("bind");
  // Every other rank may come several times before this one looks: to this exchange and to later ones.
  if (listen(fd, static_cast<int>(std::clamp<int64_t>(4 * size, 16, 4096))) != 0) return Failed("listen");
  socklen_t bytes = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return Failed("getsockname");
  made.name.assign(address.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1);
  HIR_ASSIGN(made.token, NewToken());
  return made;
}

sockaddr_un AddressOf(std::string_view name, socklen_t* bytes) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// A message's one descriptor, or room for it.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space = {};

  void AddTo(msghdr& message) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
  }
};

}  // namespace

Result<std::unique_ptr<DescriptorExchange>> DescriptorExchange::Create(int64_t rank, int64_t size, std::string_view key,
                                                                       Rendezvous& rendezvous, base::Nanos timeout,
                                                                       std::span<const int64_t> absent) {
  const base::Nanos end = Now() + timeout;
  Result<Listener> mine = Listen(size);
  const std::string place = PlaceName();
  HIR_TRY(rendezvous.Publish(Cat(key, rank), mine.ok() ? Cat(mine->token, place, " ", mine->name) : ""));
  std::vector<Peer> peers;
  Status apart = mine.ok() ? Status() : Unavailable(std::string(mine.status().message()));
  for (int64_t other = 0; other < size; ++other) {
    if (std::ranges::binary_search(absent, other)) {
      peers.emplace_back();
      continue;
    }
    HIR_ASSIGN(const std::string found, rendezvous.Get(Cat(key, other), end - Now()));
    const size_t space = found.find(' ', kTokenBytes);
    if (space == std::string::npos) {
      if (apart.ok()) apart = Unavailable(Cat("descriptors: rank ", other, " has no socket"));
      continue;
    }
    peers.push_back({.address = found.substr(space + 1), .token = found.substr(0, kTokenBytes)});
    if (found.substr(kTokenBytes, space - kTokenBytes) == place || !apart.ok()) continue;
    apart = Unavailable(Cat("descriptors: ranks ", rank, " and ", other,
                            " are on different machines, or in different network namespaces"));
  }
  HIR_TRY(apart);
  return std::unique_ptr<DescriptorExchange>(new DescriptorExchange(rank, std::move(mine->socket), std::move(peers)));
}

Status DescriptorExchange::Send(const Peer& peer, std::string_view what, bool yes, int fd, base::Nanos end) const {
  const base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return Failed("socket");
  const auto left = std::chrono::duration_cast<std::chrono::seconds>(end - Now()).count();
  const timeval timeout = {.tv_sec = std::max<int64_t>(left, 1), .tv_usec = 0};  // Of connecting, too.
  if (setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) return Failed("setsockopt");
  socklen_t bytes = 0;
  const sockaddr_un address = AddressOf(peer.address, &bytes);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) return Failed("connect");
  std::string text = Cat(peer.token, rank_, yes ? " y" : " n", what);
  iovec data = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  Control control;
  if (fd >= 0) {
    control.AddTo(message);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) return Failed("sendmsg");
  return {};
}

Status DescriptorExchange::Receive(base::Nanos end) {
  std::vector<pollfd> ready = {{.fd = socket_.get(), .events = POLLIN, .revents = 0}};
  for (const base::Fd& connection : connections_) {
    ready.push_back({.fd = connection.get(), .events = POLLIN, .revents = 0});
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Now()).count();
  if (poll(ready.data(), ready.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 1000))) <= 0) {
    return {};  // The caller looks at the time.
  }
  std::vector<base::Fd> silent;
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (ready[i + 1].revents == 0) {
      silent.push_back(std::move(connections_[i]));
    } else {
      Read(connections_[i]);
    }
  }
  connections_ = std::move(silent);
  if (ready[0].revents == 0) return {};
  base::Fd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) {
    connections_.push_back(std::move(connection));
    return {};
  }
  return errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ? Status() : Failed("accept");
}

// Its one message; what a stranger says is dropped.
void DescriptorExchange::Read(const base::Fd& connection) {
  std::array<char, kMessageBytesMax> text;  // NOLINT: filled by recvmsg.
  iovec data = {text.data(), text.size()};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  Control control;
  control.AddTo(message);
  const ssize_t got = recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC);
  base::Fd fd;
  if (const cmsghdr* const header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(header), sizeof(int));
    fd = base::Fd(number);
  }
  const std::string_view said(text.data(), got < 0 ? 0 : static_cast<size_t>(got));
  const std::string& token = peers_[static_cast<size_t>(rank_)].token;
  if (!said.starts_with(token)) return;
  const size_t space = said.find(' ', token.size());
  if (space == std::string_view::npos || space + 1 == said.size()) return;
  const std::optional<int64_t> from = base::ParseInt(said.substr(token.size(), space - token.size()));
  Message received = {.yes = said[space + 1] == 'y', .fd = std::move(fd)};
  if (from) arrived_.insert_or_assign({std::string(said.substr(space + 2)), *from}, std::move(received));
}

Result<std::vector<DescriptorExchange::Message>> DescriptorExchange::Exchange(std::string_view what,
                                                                              std::span<const int64_t> ranks, bool yes,
                                                                              int fd, base::Nanos timeout) {
  const base::Nanos end = Now() + timeout;
  for (int64_t other : ranks) {
    if (other == rank_) continue;
    const Status sent = Send(peers_[static_cast<size_t>(other)], what, yes, fd, end);
    if (!sent.ok()) return sent.WithContext(Cat("rank ", other, " cannot be reached"));
  }
  std::vector<Message> received;
  for (int64_t other : ranks) {
    received.push_back({.yes = yes});
    if (other == rank_) continue;
    const std::pair key(std::string(what), other);
    while (!arrived_.contains(key)) {
      if (Now() >= end) {
        return Status(Code::kDeadlineExceeded, Cat("descriptors: rank ", other, " did not come to ", what));
      }
      HIR_TRY(Receive(end));
    }
    received.back() = std::move(arrived_.extract(key).mapped());
  }
  return received;
}

Result<std::vector<base::Fd>> DescriptorExchange::Swap(std::string_view what, std::span<const int64_t> ranks, int fd,
                                                       base::Nanos timeout) {
  HIR_ASSIGN(std::vector<Message> received, Exchange(what, ranks, fd >= 0, fd, timeout));
  std::vector<base::Fd> fds;
  for (Message& message : received) fds.push_back(std::move(message.fd));
  return fds;
}

Result<bool> DescriptorExchange::AllAgree(std::string_view what, std::span<const int64_t> ranks, bool yes,
                                          base::Nanos timeout) {
  HIR_ASSIGN(const std::vector<Message> received, Exchange(what, ranks, yes, -1, timeout));
  return std::all_of(received.begin(), received.end(), [](const Message& message) { return message.yes; });
}

}  // namespace hir::comm
