#include "service/member/member.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "csrc/base/quoted.h"
#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "service/cluster/cluster_ranks.h"
#include "service/etcd/grpc_kv.h"
#include "service/member/records.h"
#include "service/store/store.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

constexpr size_t kNamed = 4;  // Features that are missing.
// A node that was there once, and is not so long after a new head has asked it to join, is waited for without the rest.
constexpr milliseconds kJoinAgain{1000};
constexpr int kSayWaitingMs = 5000;
// A head's shards have numbers of its term: no two heads give the same.
constexpr int kShardBits = 40;

// Of this machine's processor, as Linux names them; sorted.
std::vector<std::string> CpuFeatures() {
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> features;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    features.assign(std::istream_iterator<std::string>(words), {});
    break;
  }
  std::ranges::sort(features);
  return features;
}

pb::Joined Describe(const EngineOptions& here) {
  pb::Joined joined;
  joined.set_version(std::string(kVersion));
  joined.set_kind(here.devices.kind);
  for (const LocalDevice& device : here.devices.used) {
    pb::NodeDevice& said = *joined.add_devices();
    said.set_ordinal(device.ordinal);
    said.set_model(device.model);
    *said.mutable_target() = device.target;
    said.set_memory_bytes(device.memory_bytes);
  }
  for (std::string& feature : CpuFeatures()) joined.add_cpu_features(std::move(feature));
  joined.set_incarnation(RandomId());
  joined.set_memory_bytes(here.limits.tensor_bytes_max);
  return joined;
}

// Errors: why programs that are made for `head` cannot run there.
Status CheckFits(const pb::Joined& head, const pb::Joined& node) {
  if (node.kind() != head.kind()) {
    return Status(Code::kFailedPrecondition,
                  base::Cat("its devices are of the kind ", node.kind(), ", those of the head ", head.kind()));
  }
  if (node.devices().empty()) return Status(Code::kFailedPrecondition, "it has no device");
  std::vector<std::string> missing;
  if (head.kind() == "cpu")
    std::ranges::set_difference(head.cpu_features(), node.cpu_features(), std::back_inserter(missing));
  if (missing.empty()) return {};
  const size_t more = missing.size() - std::min(missing.size(), kNamed);
  missing.resize(missing.size() - more);
  return Status(
      Code::kFailedPrecondition,
      base::Cat("its processor has no ", base::Join(missing, ", "), more > 0 ? base::Cat(" and ", more, " more") : "",
                ", which code made on the head may use; the weakest node can be the head"));
}

}  // namespace

Result<std::unique_ptr<Member>> Member::Make(MemberOptions options, const EngineOptions& here, int interrupt_fd,
                                             const Waiting& waiting) {
  std::unique_ptr<Member> member(new Member(std::move(options)));
  const pb::Joined self = Describe(here);
  member->agent_ = std::make_unique<Agent>(AgentOptions{.fleet = FleetOf(here),
                                                        .on_devices = here.devices.own_memory,
                                                        .shard_bytes_max = here.limits.tensor_bytes_max,
                                                        .node = self});
  const MemberOptions& its = member->options_;
  Agent& agent = *member->agent_;
  if (!member->has_etcd() && its.node == 0) return member;
  HIR_ASSIGN(HeldAddress held, HeldAddress::Take(member->address()));
  member->held_.emplace(std::move(held));
  if (member->has_etcd()) {
    Membership::Options wanted = {.election = {.cluster = its.cluster, .size = its.size, .listen = its.listen},
                                  .hears_head = [&agent] { return agent.hears_head(); },
                                  .on_term = [&agent](int64_t term) { agent.Fence(term); }};
    wanted.election.self.set_address(its.address.ToString());
    *wanted.election.self.mutable_node() = self;
    member->membership_ = std::make_unique<Membership>(std::move(wanted), GrpcKv::Make(its.etcd, its.etcd_tls));
    // Before it hears any head: it has to know which terms are over.
    HIR_TRY(member->membership_->WaitRegistered(interrupt_fd, waiting));
  }
  HIR_ASSIGN(member->server_, NodeServer::Start(member->address(), its.tls, its.cluster, agent));
  if (member->has_etcd()) member->membership_->Stand();
  return member;
}

const Address& Member::address() const {
  return has_etcd() ? options_.address : options_.nodes[static_cast<size_t>(options_.node)];
}

bool Member::heads() { return has_etcd() ? membership_->view().heads : options_.node == 0; }

void Member::StandAgain() {
  if (has_etcd()) membership_->Stand();
}

Result<std::vector<pb::NodeRecord>> Member::WaitNodes(int interrupt_fd, const Waiting& waiting) {
  if (!has_etcd()) {
    std::vector<pb::NodeRecord> nodes;
    for (const Address& address : options_.nodes) nodes.emplace_back().set_address(address.ToString());
    return nodes;
  }
  for (;;) {
    const Election::View view = membership_->view();
    if (!view.heads) return Status(Code::kAborted, base::Cat("term ", view.term, " has another head"));
    if (!view.nodes.empty()) return view.nodes;
    pollfd fds[2] = {{interrupt_fd, POLLIN, 0}, {membership_->fd(), POLLIN, 0}};
    const base::Nanos began = base::Clock::Steady().Now();
    const std::string who = base::Cat("nodes to register: ", view.num_registered, " of ", options_.size, " have");
    for (;;) {
      const auto spent = std::chrono::ceil<milliseconds>(base::Clock::Steady().Now() - began).count();
      const int ready = poll(fds, 2, static_cast<int>(std::max<int64_t>(0, kSayWaitingMs - spent)));
      if (fds[0].revents != 0) return Status(Code::kCancelled, base::Cat("while it waited for ", who));
      if (ready == 0) waiting(who);
      if (ready == 0) break;
      const Election::View now = membership_->view();
      if (!now.heads || now.num_registered != view.num_registered || !now.nodes.empty()) break;
    }
  }
}

Result<EngineOptions> Member::AllNodes(EngineOptions here, const Limits& asked, int64_t memory_bytes, int interrupt_fd,
                                       const Waiting& waiting) {
  HIR_ASSIGN(std::vector<pb::NodeRecord> nodes, WaitNodes(interrupt_fd, waiting));
  const Election::View view = has_etcd() ? membership_->view() : Election::View{.own = options_.node, .term = 1};
  if (has_etcd() && !view.heads) return Status(Code::kAborted, base::Cat("term ", view.term, " has another head"));
  NodeLinksOptions wanted = {.addresses = {}, .own = view.own, .tls = options_.tls};
  for (const pb::NodeRecord& node : nodes) {
    HIR_ASSIGN(Address address, ParseAddress(node.address()));
    wanted.addresses.push_back(std::move(address));
  }
  wanted.join.set_cluster(options_.cluster);
  wanted.join.set_version(std::string(kVersion));
  wanted.join.set_term(view.term);
  wanted.join.set_knows(has_etcd() ? view.cluster_id : RandomId());
  if (has_etcd()) {
    const Address& own = wanted.addresses[static_cast<size_t>(view.own)];
    wanted.join.set_head(base::Cat("node ", view.own, " (", own.ToString(), ", ", head_id_, ")"));
  }
  if (has_etcd()) wanted.deposed = [membership = membership_.get()] { membership->Deposed(); };
  std::unique_ptr<NodeLinks> links = NodeLinks::Make(std::move(wanted), *agent_);
  const milliseconds timeout = has_etcd() ? kJoinAgain : milliseconds(here.limits.join_timeout_ms);
  HIR_ASSIGN(const std::vector<std::optional<pb::Joined>> joined,
             links->WaitJoined(timeout, /*all=*/!has_etcd(), interrupt_fd, waiting));
  ClusterOptions cluster = {.nodes = {},
                            .on_devices = here.devices.own_memory,
                            .setup_timeout = milliseconds(here.limits.setup_timeout_ms),
                            .comm_timeout = milliseconds(here.limits.comm_timeout_ms)};
  here.devices.own_memory = true;
  here.devices.used.clear();
  Machine machine = {.memory_bytes = memory_bytes};
  for (size_t i = 0; i < joined.size(); ++i) {
    const auto name = [&] { return links->NameOf(static_cast<int64_t>(i)); };
    if (joined[i]) *nodes[i].mutable_node() = *joined[i];
    const pb::Joined& node = nodes[i].node();
    const pb::Joined& own = joined[static_cast<size_t>(view.own)] ? *joined[static_cast<size_t>(view.own)] : node;
    const Status fits = CheckFits(own, node);
    if (!fits.ok() && !has_etcd()) return fits.WithContext(name());
    if (!fits.ok()) spdlog::error("{} has no part error={}", name(), base::Quoted(fits.ToString()));
    if (!fits.ok()) cluster.drained.insert(static_cast<int64_t>(i));
    cluster.nodes.push_back(
        {node.devices_size(), node.incarnation(), joined[i].has_value(), {node.shards().begin(), node.shards().end()}});
    for (const pb::NodeDevice& device : node.devices()) {
      here.devices.used.push_back({.ordinal = device.ordinal(),
                                   .model = device.model(),
                                   .memory_bytes = device.memory_bytes(),
                                   .target = device.target(),
                                   .node = nodes[i].address(),
                                   .is_here = static_cast<int64_t>(i) == view.own});
    }
    machine.device_memory_bytes += node.memory_bytes();
    here.nodes.push_back({name(), node.devices_size(), node.memory_bytes()});
    spdlog::info("{} {} {} devices of {}", name(), joined[i] ? "has" : "is not there; it has", node.devices_size(),
                 node.kind());
  }
  here.limits = Resolved(asked, machine);
  if (has_etcd()) Inherit(view, nodes, joined, cluster, here);
  here.make_ranks = [cluster = std::move(cluster),
                     links = std::make_shared<std::unique_ptr<NodeLinks>>(std::move(links))] {
    return std::make_unique<ClusterRanks>(cluster, std::move(*links));
  };
  return here;
}

void Member::Inherit(const Election::View& view, const std::vector<pb::NodeRecord>& nodes,
                     const std::vector<std::optional<pb::Joined>>& joined, ClusterOptions& cluster,
                     EngineOptions& here) {
  const pb::Directory* latest = &pb::Directory::default_instance();
  std::vector<size_t> node_of;  // By device.
  std::vector<std::set<int64_t>> held(joined.size());
  for (size_t i = 0; i < joined.size(); ++i) {
    node_of.insert(node_of.end(), static_cast<size_t>(cluster.nodes[i].num_ranks), i);
    held[i].insert(cluster.nodes[i].shards.begin(), cluster.nodes[i].shards.end());
    if (!joined[i]) continue;
    const pb::Directory& told = joined[i]->directory();
    if (std::pair(told.term(), told.count()) > std::pair(latest->term(), latest->count())) latest = &told;
  }
  // A node that is not there may have what it had: nobody knows until it joins.
  const auto why_lost = [&](int64_t device, int64_t shard) -> Status {
    const size_t node = node_of[static_cast<size_t>(device)];
    if (!joined[node] || held[node].contains(shard)) return {};
    return {Code::kDataLoss, base::Cat("a part of it was on node ", node, " (", nodes[node].address(),
                                       "), which does not have it since the cluster has another head; put it again, ",
                                       "or run again what made it")};
  };
  here.inheritance = InheritanceOf(view.kept, *latest, std::ssize(node_of), why_lost);
  here.inheritance.first_shard = view.term << kShardBits;
  cluster.first_shard = here.inheritance.first_shard;
  cluster.drained.merge(DrainedOf(view.kept));
  cluster.remembered = std::make_shared<Remembered>();
  const auto inherit = [&](const Inheritance::Tensor& tensor) {
    for (const ShardSet::Shard& shard : tensor.shards) {
      if (tensor.lost.ok()) cluster.inherited.insert(shard.id);
    }
  };
  std::set<std::string> sessions;
  for (const Inheritance::Session& session : here.inheritance.sessions) sessions.insert(session.id);
  for (const Inheritance::Handle& handle : here.inheritance.handles) {
    if (sessions.contains(handle.session)) inherit(handle.tensor);
  }
  for (const Inheritance::Name& name : here.inheritance.names) inherit(name.tensor);
  const auto keep = [membership = membership_.get()](const std::string& key, std::optional<std::string> value) {
    membership->Keep(key, std::move(value));
  };
  const auto when_written = [membership = membership_.get()](std::function<void(const Status&)> done) {
    membership->WhenWritten(std::move(done));
  };
  auto records = std::make_shared<Records>(keep, when_written, cluster.remembered);
  records->Inherit(here.inheritance);
  here.journal = std::move(records);
  here.starts_later = true;
  if (view.term > 1) {
    spdlog::info("term={}: {} sessions, {} handles and {} names of heads before", view.term,
                 here.inheritance.sessions.size(), here.inheritance.handles.size(), here.inheritance.names.size());
  }
}

}  // namespace hir::service
