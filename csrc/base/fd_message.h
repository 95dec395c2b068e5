// Descriptors that travel with a message through a Unix socket (SCM_RIGHTS).
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <span>
#include <vector>

#include "csrc/base/fd.h"

namespace hir::base {

// Room for a message's descriptors.
template <size_t kFdsMax>
struct FdRoom {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kFdsMax * sizeof(int))] = {};
};

// Makes `fds` part of a message that is to be sent. `room` has space for them, and outlives the sending.
void AttachFds(msghdr& message, std::span<char> room, std::span<const int> fds);
// Those of a message that was received with control data.
std::vector<Fd> DetachFds(msghdr& message);

}  // namespace hir::base
