// ListenOn: sockets that listen on an address.
#pragma once

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

}  // namespace hir::service
