// NodeServer: where a node of a cluster is served by its agent, for the head.
#pragma once

#include <memory>
#include <string>

#include "csrc/base/status.h"
#include "service/cluster/agent.h"
#include "service/os/address.h"
#include "service/tls/files.h"

namespace hir::service {

// Threads: any.
class NodeServer {
 public:
  virtual ~NodeServer() = default;

  // Without `tls` anybody who reaches the address can give orders. `agent` lives longer.
  // Errors: kUnavailable: the address is taken, or none of this machine.
  static Result<std::unique_ptr<NodeServer>> Start(const Address& address, const TlsFiles& tls,
                                                   const std::string& cluster, Agent& agent);
  virtual const std::string& address() const = 0;  // With the port that there is.
};

}  // namespace hir::service
