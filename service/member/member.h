// Member: what a daemon is in a cluster of several: one node by its agent, and, where it heads, the head of all.
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
#include "service/cluster/cluster_ranks.h"
#include "service/engine/engine.h"
#include "service/links/node_links.h"
#include "service/links/node_server.h"
#include "service/links/shard_service.h"
#include "service/member/membership.h"
#include "service/os/address.h"
#include "service/tls/files.h"

namespace hir::service {

struct MemberOptions {
  std::string cluster = {};  // Its name.
  TlsFiles tls = {};
  std::string listen = {};  // Where clients are served by whoever heads.

  // By a list, whose first node heads for good:
  std::vector<Address> nodes = {};
  int64_t node = 0;  // Which of them this is.
  // Or, where there are some, by etcd, whose members these are: every node may head.
  std::vector<std::string> etcd = {};
  TlsFiles etcd_tls = {};
  Address address = {};  // This node's, by which it is known for good.
  int64_t size = 0;      // Nodes that there are.
};

// Threads: one.
class Member {
 public:
  // Told now and then what is waited for.
  using Waiting = std::function<void(const std::string& who)>;
  // `here`: this node by itself. Its ranks start when the head says so. With etcd it waits until it is registered.
  // Errors: those of HeldAddress::Take; kUnavailable: nobody can listen there; those of Membership::WaitRegistered.
  static Result<std::unique_ptr<Member>> Make(MemberOptions options, const EngineOptions& here, int interrupt_fd,
                                              const Waiting& waiting);

  // Whether it heads now.
  bool heads();
  // Readable when that may have changed; below 0: it never does.
  int changed_fd() const { return membership_ == nullptr ? -1 : membership_->fd(); }
  // Whoever served clients has ended that: this node may head again.
  void StandAgain();
  // Where the head reaches this node.
  const Address& address() const;
  // Bytes of tensors that this node keeps.
  int64_t kept_bytes() const { return agent_->kept_bytes(); }
  // For clients of the head, whose node keeps shards, too. It goes before this.
  std::unique_ptr<grpc::Service> ShardsHere() { return MakeShardService(agent_->tickets()); }

  // While it heads: what the cluster is as the devices of one daemon, whose limits are `asked` with what depends on the
  // machine settled for all nodes. Waits until all have joined; by etcd, until all were there once, since those that
  // are not now are known.
  // Errors: as of NodeLinks::WaitJoined; kFailedPrecondition: nodes that do not fit together, by name; kAborted: it
  //         heads no longer. The engine goes before this.
  Result<EngineOptions> AllNodes(EngineOptions here, const Limits& asked, int64_t memory_bytes, int interrupt_fd,
                                 const Waiting& waiting);

 private:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}
  bool has_etcd() const { return !options_.etcd.empty(); }
  // The nodes as it knows them while it heads; by etcd, when all have registered.
  Result<std::vector<::hostir::v1::NodeRecord>> WaitNodes(int interrupt_fd, const Waiting& waiting);

  // Takes over what heads before left, and sees to what is kept for later ones.
  void Inherit(const Election::View& view, const std::vector<::hostir::v1::NodeRecord>& nodes,
               const std::vector<std::optional<::hostir::v1::Joined>>& joined, ClusterOptions& cluster,
               EngineOptions& here);

  const MemberOptions options_;
  const std::string head_id_ = RandomId();
  std::unique_ptr<Agent> agent_;
  std::optional<HeldAddress> held_;  // Of who serves its agent, as the next: its socket is this user's alone.
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<Membership> membership_;
};

}  // namespace hir::service
