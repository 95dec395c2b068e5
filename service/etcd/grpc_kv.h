// GrpcKv: etcd as a Kv, by its gRPC API.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "service/etcd/kv.h"
#include "service/tls/files.h"

namespace hir::service {

// Asks one member until it fails, then the next. A request that nobody answers within a second is given up.
class GrpcKv : public Kv {
 public:
  // `members`: host:port of each. Without `tls` in the clear.
  static std::unique_ptr<GrpcKv> Make(std::vector<std::string> members, const TlsFiles& tls);

  // `changed` is called, on a thread of its own, when a key that begins with `prefix` may have changed: at least once
  // after each change, unless etcd is not there. Until destruction.
  virtual void Watch(std::string prefix, std::function<void()> changed) = 0;
};

}  // namespace hir::service
