// NodeLinks: the head's links to the nodes of its cluster: streams of gRPC, and for its own node the agent in this
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/node.pb.h"
#include "service/cluster/agent.h"
#include "service/cluster/nodes.h"
#include "service/os/address.h"
#include "service/tls/files.h"

namespace hir::service {

struct NodeLinksOptions {
  std::vector<Address> addresses;  // By node.
  int64_t own = 0;                 // Which of them this process is.
  TlsFiles tls = {};
  ::hostir::v1::Join join = {};  // But for `node`.
  // Called when a node has heard of a later head; may be null.
  std::function<void()> deposed = {};
};

// As Nodes; WaitJoined before anything else.
class NodeLinks : public Nodes {
 public:
  // `agent` lives longer.
  static std::unique_ptr<NodeLinks> Make(NodeLinksOptions options, Agent& agent);

  // Waits until every node has joined, or, unless `all` have to, for `timeout`, and returns what each said. `waiting`
  // is told now and then who is missing.
  // Errors: kDeadlineExceeded naming those who have not, and why; kFailedPrecondition of one that never will; kAborted:
  //         there is a later head; `interrupt_fd` got readable: kCancelled.
  using Waiting = std::function<void(const std::string& who)>;
  virtual Result<std::vector<std::optional<::hostir::v1::Joined>>> WaitJoined(base::Nanos timeout, bool all,
                                                                              int interrupt_fd,
                                                                              const Waiting& waiting) = 0;
};

}  // namespace hir::service
