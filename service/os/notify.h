// What the manager of services is told that started this process with Type=notify: sd_notify(3)'s protocol.
#pragma once

#include <string_view>

namespace hir::service {

// Sends `state` ("READY=1", "STOPPING=1") to $NOTIFY_SOCKET; nothing happens where there is none. True: it was sent.
bool NotifyManager(std::string_view state);

}  // namespace hir::service
