#include "service/os/notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "csrc/base/fd.h"

namespace hir::service {

bool NotifyManager(std::string_view state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (*path != '/' && *path != '@')) return false;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path, length);
  if (*path == '@') address.sun_path[0] = '\0';  // An abstract address.
  const base::Fd socket_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  return sendto(socket_fd.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                bytes) == static_cast<ssize_t>(state.size());
}

}  // namespace hir::service
