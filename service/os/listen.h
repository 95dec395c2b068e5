// ListenOn: sockets that listen on an address. TakeListening: those that a manager of services made.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/base/fd.h"
#include "csrc/base/status.h"
#include "service/os/address.h"

namespace hir::service {

struct Listening {
  std::vector<base::Fd> sockets;  // Nonblocking. More than one where a host's name has several addresses (localhost).
  std::string address;            // What clients connect to: "unix:/path", "127.0.0.1:50051".
};

// A Unix socket is this user's alone: its mode is 0600. Of the addresses of a host those that cannot be listened on are
// left out. Errors: kUnavailable: none of them can.
Result<Listening> ListenOn(const Address& address);

// The sockets that this process was given to listen by, by $LISTEN_FDS of $LISTEN_PID (sd_listen_fds(3)); nothing where
// there are none. What it starts does not get them. Call it once, before anything else has descriptors to start with.
// Errors: kInvalidArgument: one of them does not listen on `address`.
Result<std::optional<Listening>> TakeListening(const Address& address);

}  // namespace hir::service
