// Address: where a daemon listens, and what clients call it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "csrc/base/fd.h"
#include "csrc/base/status.h"

namespace hir::service {

struct Address {
  bool is_unix = true;
  std::string target;  // The socket's path, or "127.0.0.1:50051".

  std::string ToString() const;  // "unix:/run/user/1000/hostir/socket", "tcp:127.0.0.1:50051"
  // Whether it is "1.2.3.4:5" or "[::1]:5": a name may stand for several addresses, and for others tomorrow.
  bool IsNumeric() const;
};

// "unix:/path" or "tcp:host:port". Errors: kInvalidArgument: what is wrong with it; paths are absolute, have at most
// 107 bytes and none of #?,% (gRPC reads those as something else), ports are 0 to 65535.
Result<Address> ParseAddress(std::string_view text);

// Where a daemon listens that is told nothing: $XDG_RUNTIME_DIR/hostir/socket, else /tmp/hostir-<uid>/socket.
std::string DefaultAddress();

// Whether a daemon may listen there. TCP by itself has neither encryption nor authentication: it wants `tls`, or
// `insecure_tcp` (kInvalidArgument) and loopback (kPermissionDenied).
Status CheckListen(const Address& address, bool tls, bool insecure_tcp);

// Whether the address is of TCP and names this machine by itself: 127.0.0.1, localhost, [::1].
bool IsLoopback(const Address& address);

// An address held against other daemons until destruction, which removes the socket. Immutable, movable.
class HeldAddress {
 public:
  // Unix: makes the directory, for this user alone. TCP: says whether the port is free; port 0 always is.
  // Errors: kAlreadyExists when another process listens there; kPermissionDenied for a directory that others may enter;
  //         kInvalidArgument for a path where something else is, which stays; kUnavailable.
  static Result<HeldAddress> Take(const Address& address);
  // The same of an address where somebody else made the socket (TakeListening), and removes it.
  static Result<HeldAddress> TakeGiven(const Address& address);

  HeldAddress() = default;
  HeldAddress(HeldAddress&& other) noexcept
      : address_(std::exchange(other.address_, {})), lock_(std::move(other.lock_)), given_(other.given_) {}
  HeldAddress& operator=(HeldAddress&&) = delete;
  ~HeldAddress();

  const Address& address() const { return address_; }

 private:
  HeldAddress(Address address, base::Fd lock, bool given = false)
      : address_(std::move(address)), lock_(std::move(lock)), given_(given) {}

  Address address_;
  base::Fd lock_;  // Of a socket's path.
  bool given_ = false;
};

}  // namespace hir::service
