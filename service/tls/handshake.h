// WhyNotConnected: a failed connection explained, by another that is made by hand.
#pragma once

#include <string>

#include "csrc/base/clock.h"
#include "service/tls/files.h"

namespace hir::service {

// Of a client whose gRPC could not connect to `target`, "host:port", with `files`, which have been checked, or without
// TLS: the reason and the remedy, a sentence without its subject ("speaks TLS: ..."). "" when nobody listens there,
// when nothing is wrong by now, and for what is no daemon. Returns within `timeout`.
std::string WhyNotConnected(const std::string& target, const TlsFiles& files, base::Nanos timeout);

}  // namespace hir::service
