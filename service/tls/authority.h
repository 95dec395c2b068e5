// Authority: a certificate authority for trying out, and the certificates that it signs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/status.h"
#include "service/tls/files.h"

namespace hir::service {

// A certificate and its key, as PEM.
struct Issued {
  std::string cert;
  std::string key;
};

// ECDSA on P-256 with SHA-256. Errors: kInternal: OpenSSL fails. Threads: one at a time.
class Authority {
 public:
  // `days`: that it is valid, from now; what has expired already has less than none.
  static Result<std::unique_ptr<Authority>> Make(const std::string& name, int64_t days);
  virtual ~Authority() = default;

  virtual const Issued& own() const = 0;
  // Of `names`, each an IP address, a URI or the name of a host or person, all become alternative names and the first
  // the subject's too.
  // Errors: kInvalidArgument: a name that certificates cannot hold.
  virtual Result<Issued> Issue(std::span<const std::string> names, TlsSide side, int64_t days) const = 0;
};

}  // namespace hir::service
