// PrincipalOf: who makes a call, or has connected. Turns and shares go by it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "csrc/base/status.h"
#include "service/rpc/listener.h"

namespace hir::service {

// "uid:1000": a user of this machine, by a Unix socket. "cert:NAME": who holds the certificate of that name, by TLS:
// the first of its URIs, else of its DNS names, else its common name. "tcp": anybody of this machine, by TCP without
// it. `context` is a call's that is alive. Errors: kUnauthenticated: a certificate without a name.
std::string PrincipalOf(const Listener::Peer& peer);
Result<std::string> PrincipalOf(const grpc::ServerContextBase& context, const Listener& listener);

}  // namespace hir::service
