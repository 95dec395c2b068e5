#include "service/os/listen.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

using base::Cat;

Status CannotListen(const Address& address, std::string_view why) {
  return Unavailable(Cat("cannot listen on ", address.ToString(), ": ", why));
}

Status CannotListen(const Address& address, int error) {
  return CannotListen(address, std::generic_category().message(error));
}

base::Fd NewSocket(int family) { return base::Fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

bool BindAndListen(const base::Fd& fd, const void* name, socklen_t size) {
  return fd.valid() && bind(fd.get(), static_cast<const sockaddr*>(name), size) == 0 &&
         listen(fd.get(), SOMAXCONN) == 0;
}

Result<Listening> ListenOnPath(const Address& address) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  address.target.copy(name.sun_path, sizeof(name.sun_path) - 1);
  base::Fd fd = NewSocket(AF_UNIX);
  // The file that bind makes has the mode of the socket, less the umask: nobody else could connect even for a moment,
  // and the umask, which is every thread's, stays.
  if (fd.valid()) fchmod(fd.get(), 0600);
  if (!BindAndListen(fd, &name, sizeof(name))) return CannotListen(address, errno);
  Listening listening;
  listening.sockets.push_back(std::move(fd));
  listening.address = address.ToString();
  return listening;
}

// Where the port of both families' addresses is.
in_port_t& PortOf(sockaddr* name) {
  return name->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                                     : reinterpret_cast<sockaddr_in*>(name)->sin_port;
}

std::string HostOf(const Address& address) { return address.target.substr(0, address.target.rfind(':')); }

using Names = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// The addresses of host and port. Errors: kUnavailable: there are none.
Result<Names> NamesOf(const Address& address) {
  const std::string named = HostOf(address);
  const std::string host = named.starts_with('[') ? named.substr(1, named.size() - 2) : named;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const std::string port = address.target.substr(named.size() + 1);
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &first); error != 0)
    return CannotListen(address, gai_strerror(error));
  return Names(first, freeaddrinfo);
}

Result<Listening> ListenOnPort(const Address& address) {
  HIR_ASSIGN(const Names found, NamesOf(address));
  Listening listening;
  in_port_t port = 0;  // The one that the system chose, once it has, is the others' too.
  int error = EADDRNOTAVAIL;
  for (addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    base::Fd fd = NewSocket(each->ai_family);
    const int on = 1;  // Connections that just ended are in nobody's way.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (port != 0) PortOf(each->ai_addr) = port;
    if (!BindAndListen(fd, each->ai_addr, each->ai_addrlen)) {
      error = errno;
      continue;
    }
    sockaddr_storage bound = {};
    socklen_t size = sizeof(bound);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
    port = PortOf(reinterpret_cast<sockaddr*>(&bound));
    listening.sockets.push_back(std::move(fd));
  }
  if (listening.sockets.empty()) return CannotListen(address, error);
  listening.address = Cat(HostOf(address), ":", ntohs(port));
  return listening;
}

constexpr int kFirstGiven = 3;
constexpr int64_t kGivenMax = 64;

// The address of a socket, as others call it.
std::string NameOf(const sockaddr_storage& name, socklen_t size) {
  if (name.ss_family == AF_UNIX) {
    const auto& path = reinterpret_cast<const sockaddr_un&>(name).sun_path;
    const size_t length = size - std::min<size_t>(size, offsetof(sockaddr_un, sun_path));
    return Cat("unix:", std::string_view(path, strnlen(path, length)));
  }
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  constexpr int kNumbers = NI_NUMERICHOST | NI_NUMERICSERV;
  const auto* any = reinterpret_cast<const sockaddr*>(&name);
  if (getnameinfo(any, size, host, sizeof(host), port, sizeof(port), kNumbers) != 0) return "a socket of another kind";
  return name.ss_family == AF_INET6 ? Cat("tcp:[", host, "]:", port) : Cat("tcp:", host, ":", port);
}

// Errors: kInvalidArgument, with what the socket is.
Status CheckGiven(int fd, const Address& address) {
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(Cat("the manager of services gave ", what, ", and --listen says ", address.ToString(),
                               ": both must be the same"));
  };
  int listens = 0;
  socklen_t size = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0)
    return wrong(Cat("descriptor ", fd, ", which does not listen"));
  sockaddr_storage name = {};
  size = sizeof(name);
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  const std::string is = NameOf(name, size);
  if (address.is_unix) return is == address.ToString() ? Status() : wrong(is);
  HIR_ASSIGN(const Names wanted, NamesOf(address));
  for (const addrinfo* each = wanted.get(); each != nullptr; each = each->ai_next) {
    sockaddr_storage one = {};
    std::memcpy(&one, each->ai_addr, each->ai_addrlen);
    if (NameOf(one, each->ai_addrlen) == is) return {};
  }
  return wrong(is);
}

}  // namespace

Result<std::optional<Listening>> TakeListening(const Address& address) {
  const char* const pid = std::getenv("LISTEN_PID");
  const char* const fds = std::getenv("LISTEN_FDS");
  if (pid == nullptr || fds == nullptr || base::ParseInt(pid) != getpid()) return std::optional<Listening>();
  const int64_t count = base::ParseInt(fds).value_or(0);
  if (count <= 0) return std::optional<Listening>();
  if (count > kGivenMax) return InvalidArgument(Cat("LISTEN_FDS=", fds, ": want at most ", kGivenMax));
  Listening listening;
  for (int fd = kFirstGiven; fd < kFirstGiven + static_cast<int>(count); ++fd) {
    HIR_TRY(CheckGiven(fd, address));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    listening.sockets.emplace_back(fd);
  }
  listening.address = address.is_unix ? address.ToString() : address.target;
  return std::optional(std::move(listening));
}

Result<Listening> ListenOn(const Address& address) {
  return address.is_unix ? ListenOnPath(address) : ListenOnPort(address);
}

}  // namespace hir::service
