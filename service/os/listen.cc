#include "service/os/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdint>
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

Result<Listening> ListenOnPort(const Address& address) {
  const size_t colon = address.target.rfind(':');
  const std::string named = address.target.substr(0, colon);
  const std::string host = named.starts_with('[') ? named.substr(1, named.size() - 2) : named;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  if (const int error = getaddrinfo(host.c_str(), address.target.substr(colon + 1).c_str(), &hints, &first); error != 0)
    return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(first, freeaddrinfo);
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
  listening.address = Cat(named, ":", ntohs(port));
  return listening;
}

}  // namespace

Result<Listening> ListenOn(const Address& address) {
  return address.is_unix ? ListenOnPath(address) : ListenOnPort(address);
}

}  // namespace hir::service
