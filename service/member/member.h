// Member: what a daemon is in a cluster of several: one node by its agent, and, the first of them, the head of all.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "service/cluster/agent.h"
#include "service/engine/engine.h"
#include "service/links/node_links.h"
#include "service/links/node_server.h"
#include "service/os/address.h"
#include "service/tls/files.h"

namespace hir::service {

struct MemberOptions {
  std::string cluster = {};
  std::vector<Address> nodes = {};
  int64_t node = 0;  // Which of them this is.
  TlsFiles tls = {};
};

// Threads: one.
class Member {
 public:
  // `here`: this node by itself. Its ranks start when the head says so.
  // Errors: those of HeldAddress::Take; kUnavailable: nobody can listen there.
  static Result<std::unique_ptr<Member>> Make(MemberOptions options, const EngineOptions& here);

  bool is_head() const { return options_.node == 0; }
  // Where the head reaches this node.
  const Address& address() const { return options_.nodes[static_cast<size_t>(options_.node)]; }
  // What this node keeps of tensors.
  int64_t kept_bytes() const { return agent_->kept_bytes(); }

  // Of the head: what the cluster is as the devices of one daemon, whose limits are `asked` with what depends on the
  // machine settled for all nodes. Waits until all have joined.
  // Errors: as of NodeLinks::WaitJoined; kFailedPrecondition: nodes that do not fit together, by name. The engine goes
  // before this.
  Result<EngineOptions> AllNodes(EngineOptions here, const Limits& asked, int64_t memory_bytes, int interrupt_fd,
                                 const NodeLinks::Waiting& waiting);

 private:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}

  const MemberOptions options_;
  std::unique_ptr<Agent> agent_;
  std::optional<HeldAddress> held_;  // Of who is not the head, as the next: its socket is this user's alone.
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<NodeLinks> links_;  // Until the ranks have them.
};

}  // namespace hir::service
