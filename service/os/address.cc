#include "service/os/address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "csrc/base/text.h"
#include "service/os/error.h"

namespace hir::service {
namespace {

using base::Cat;

constexpr std::string_view kUnix = "unix:";
constexpr std::string_view kTcp = "tcp:";
constexpr int64_t kPortMax = 65535;
// gRPC takes addresses for URIs: these end a path, part two of them, or stand for another character.
constexpr std::string_view kNotInPaths = "#?,%";

Result<HeldAddress> InUse(const Address& address) {
  return Status(Code::kAlreadyExists,
                Cat("another daemon listens on ", address.ToString(), ": use that one, or --listen elsewhere"));
}

// The lock beside the socket at `path`. Errors: HeldAddress::Take's.
Result<base::Fd> LockPath(const std::string& path) {
  const std::string directory = path.substr(0, std::max<size_t>(1, path.rfind('/')));
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(directory);
  struct stat info = {};
  if (stat(directory.c_str(), &info) != 0) return ErrnoStatus(directory);
  if (info.st_uid != getuid() || (info.st_mode & 077) != 0) {
    return Status(Code::kPermissionDenied, Cat(directory,
                                               " must be this user's alone (chmod 700): whoever can "
                                               "reach the socket can run programs"));
  }
  base::Fd lock(open(Cat(path, ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!lock.valid()) return ErrnoStatus(Cat(path, ".lock"));
  return lock;
}

// Removes the socket at `path`, of a daemon that was killed, and nothing else. Errors: kInvalidArgument.
Status RemoveSocket(const std::string& path) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return {};  // Nothing is there.
  if (!S_ISSOCK(info.st_mode)) {
    return InvalidArgument(Cat(path, " is ",
                               S_ISDIR(info.st_mode)   ? "a folder"
                               : S_ISLNK(info.st_mode) ? "a symbolic link"
                                                       : "a file",
                               ", not a socket: name a path where nothing is, or remove it"));
  }
  unlink(path.c_str());
  return {};
}

// Whether a socket can be bound to `target`, "host:port". Errors: as above.
Status TryBind(const Address& address) {
  const size_t colon = address.target.rfind(':');
  std::string host = address.target.substr(0, colon);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const std::string port = address.target.substr(colon + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Unavailable(Cat(address.ToString(), ": ", gai_strerror(error)));
  const base::Fd probe(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;  // As the server does: connections that just ended are in nobody's way.
  setsockopt(probe.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = bind(probe.get(), found->ai_addr, found->ai_addrlen) == 0;
  const int error = errno;
  freeaddrinfo(found);
  if (bound) return {};
  errno = error;
  if (error == EADDRINUSE) return InUse(address).status();
  return ErrnoStatus(address.ToString());
}

}  // namespace

std::string Address::ToString() const { return Cat(is_unix ? kUnix : kTcp, target); }

bool Address::IsNumeric() const {
  const std::string host = target.substr(0, target.rfind(':'));
  in6_addr ignored = {};
  if (is_unix) return false;
  if (!host.starts_with('[')) return inet_pton(AF_INET, host.c_str(), &ignored) == 1;
  return host.ends_with(']') && inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &ignored) == 1;
}

Result<Address> ParseAddress(std::string_view text) {
  if (text.starts_with(kUnix)) {
    const std::string_view path = text.substr(kUnix.size());
    if (!path.starts_with('/')) return InvalidArgument("the path must be absolute");
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
      return InvalidArgument(
          Cat("a socket's path has at most ", sizeof(sockaddr_un::sun_path) - 1, " bytes, this one has ", path.size()));
    }
    if (const size_t at = path.find_first_of(kNotInPaths); at != std::string_view::npos) {
      return InvalidArgument(
          Cat("the path has \"", path.substr(at, 1), "\", which gRPC reads as no part of a path: name another"));
    }
    return Address{true, std::string(path)};
  }
  if (!text.starts_with(kTcp)) return InvalidArgument("want unix:/path or tcp:host:port");
  const std::string_view target = text.substr(kTcp.size());
  const size_t colon = target.rfind(':');
  const std::optional<int64_t> port =
      colon == std::string_view::npos || colon == 0 ? std::nullopt : base::ParseInt(target.substr(colon + 1));
  if (!port.has_value() || *port < 0 || *port > kPortMax)
    return InvalidArgument(Cat("want tcp:host:port with a port from 0 to ", kPortMax));
  return Address{false, std::string(target)};
}

std::string DefaultAddress() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return Cat(kUnix, runtime, "/hostir/socket");
  return Cat(kUnix, "/tmp/hostir-", getuid(), "/socket");
}

bool IsLoopback(const Address& address) {
  const std::string_view host = std::string_view(address.target).substr(0, address.target.rfind(':'));
  return !address.is_unix && (host == "127.0.0.1" || host == "localhost" || host == "[::1]");
}

Status CheckListen(const Address& address, bool tls, bool insecure_tcp) {
  if (address.is_unix || tls) return {};
  if (!insecure_tcp) {
    return InvalidArgument(
        "TCP by itself has neither encryption nor authentication: --tls-cert, --tls-key and --tls-client-ca give it "
        "both (hostir certs makes some for trying out); --insecure-tcp allows it on loopback");
  }
  if (IsLoopback(address)) return {};
  return {Code::kPermissionDenied,
          "without encryption only loopback is served (127.0.0.1, localhost, [::1]); with --tls-cert, --tls-key and "
          "--tls-client-ca any address is"};
}

Result<HeldAddress> HeldAddress::Take(const Address& address) {
  if (!address.is_unix) {
    HIR_TRY(TryBind(address));
    return HeldAddress(address, base::Fd());
  }
  HIR_ASSIGN(base::Fd lock, LockPath(address.target));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return InUse(address);
  HIR_TRY(RemoveSocket(address.target));
  return HeldAddress(address, std::move(lock));
}

Result<HeldAddress> HeldAddress::TakeGiven(const Address& address) {
  if (!address.is_unix) return HeldAddress(address, base::Fd(), /*given=*/true);
  HIR_ASSIGN(base::Fd lock, LockPath(address.target));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return InUse(address);
  return HeldAddress(address, std::move(lock), /*given=*/true);
}

HeldAddress::~HeldAddress() {
  if (lock_.valid() && !given_) (void)RemoveSocket(address_.target).ok();
}

}  // namespace hir::service
