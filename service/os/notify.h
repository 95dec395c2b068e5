// What the manager of services is told that started this process with Type=notify: sd_notify(3)'s protocol.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "csrc/base/clock.h"

namespace hir::service {

// Sends `state` ("READY=1", "STOPPING=1") to $NOTIFY_SOCKET; nothing happens where there is none. True: it was sent.
bool NotifyManager(std::string_view state);

// After so long a silence the manager takes this process for hung, and kills it: $WATCHDOG_USEC, of $WATCHDOG_PID where
// that is set (sd_watchdog_enabled(3)). Nothing: it does not look, or at another process.
std::optional<base::Nanos> WatchdogTimeout();

// Says WATCHDOG=1 twice in each such time. Threads: one, which may be held up no longer than half of it.
class Watchdog {
 public:
  // `probe` returns only if the process can still do its work: where it hangs nothing is said.
  Watchdog(std::optional<base::Nanos> timeout, std::function<void()> probe);

  // Until Look has something to do; -1: never.
  int MsToWait() const;
  void Look();

 private:
  const std::optional<base::Nanos> period_;
  const std::function<void()> probe_;
  base::Nanos next_;
};

}  // namespace hir::service
