#include "service/os/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "csrc/base/fd.h"
#include "csrc/base/text.h"

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

std::optional<base::Nanos> WatchdogTimeout() {
  const char* const timeout = std::getenv("WATCHDOG_USEC");
  const char* const pid = std::getenv("WATCHDOG_PID");
  if (timeout == nullptr || (pid != nullptr && base::ParseInt(pid) != getpid())) return std::nullopt;
  const std::optional<int64_t> us = base::ParseInt(timeout);
  constexpr auto kMost = std::chrono::duration_cast<std::chrono::microseconds>(base::Nanos::max());
  if (!us.has_value() || *us <= 0 || *us > kMost.count()) return std::nullopt;
  return std::chrono::microseconds(*us);
}

Watchdog::Watchdog(std::optional<base::Nanos> timeout, std::function<void()> probe)
    : period_(timeout.has_value() ? std::optional(*timeout / 2) : std::nullopt),
      probe_(std::move(probe)),
      next_(base::Clock::Steady().Now()) {}

int Watchdog::MsToWait() const {
  constexpr std::chrono::milliseconds kMost = std::chrono::hours(1);
  if (!period_.has_value()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_ - base::Clock::Steady().Now());
  return static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kMost).count());
}

void Watchdog::Look() {
  if (!period_.has_value() || base::Clock::Steady().Now() < next_) return;
  probe_();
  NotifyManager("WATCHDOG=1");
  next_ = base::Clock::Steady().Now() + *period_;
}

}  // namespace hir::service
