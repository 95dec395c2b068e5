#include "service/member/member.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/base/version.h"
#include "service/cluster/cluster_ranks.h"
#include "service/store/store.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

constexpr size_t kNamed = 4;  // Features that are missing.

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

Result<std::unique_ptr<Member>> Member::Make(MemberOptions options, const EngineOptions& here) {
  std::unique_ptr<Member> member(new Member(std::move(options)));
  member->agent_ = std::make_unique<Agent>(AgentOptions{.fleet = FleetOf(here),
                                                        .on_devices = here.devices.own_memory,
                                                        .shard_bytes_max = here.limits.tensor_bytes_max,
                                                        .node = Describe(here)});
  const MemberOptions& its = member->options_;
  if (member->is_head()) {
    NodeLinksOptions links = {.addresses = its.nodes, .own = its.node, .tls = its.tls};
    links.join.set_cluster(its.cluster);
    links.join.set_version(std::string(kVersion));
    links.join.set_term(1);
    links.join.set_head(RandomId());
    member->links_ = NodeLinks::Make(std::move(links), *member->agent_);
  } else {
    HIR_ASSIGN(HeldAddress held, HeldAddress::Take(member->address()));
    member->held_.emplace(std::move(held));
    HIR_ASSIGN(member->server_, NodeServer::Start(member->address(), its.tls, its.cluster, *member->agent_));
  }
  return member;
}

Result<EngineOptions> Member::AllNodes(EngineOptions here, const Limits& asked, int64_t memory_bytes, int interrupt_fd,
                                       const NodeLinks::Waiting& waiting) {
  HIR_ASSIGN(const std::vector<pb::Joined> joined,
             links_->WaitJoined(milliseconds(here.limits.join_timeout_ms), interrupt_fd, waiting));
  ClusterOptions cluster = {.nodes = {},
                            .on_devices = here.devices.own_memory,
                            .setup_timeout = milliseconds(here.limits.setup_timeout_ms),
                            .comm_timeout = milliseconds(here.limits.comm_timeout_ms)};
  here.devices.own_memory = true;
  here.devices.used.clear();
  Machine machine = {.memory_bytes = memory_bytes};
  for (size_t i = 0; i < joined.size(); ++i) {
    const auto name = [&] { return links_->NameOf(static_cast<int64_t>(i)); };
    if (Status fits = CheckFits(joined[0], joined[i]); !fits.ok()) return fits.WithContext(name());
    cluster.nodes.push_back({joined[i].devices_size(), joined[i].incarnation()});
    for (const pb::NodeDevice& device : joined[i].devices()) {
      here.devices.used.push_back({.ordinal = device.ordinal(),
                                   .model = device.model(),
                                   .memory_bytes = device.memory_bytes(),
                                   .target = device.target(),
                                   .node = options_.nodes[i].ToString(),
                                   .is_here = static_cast<int64_t>(i) == options_.node});
    }
    machine.device_memory_bytes += joined[i].memory_bytes();
    spdlog::info("{} has {} devices of {}", name(), joined[i].devices_size(), joined[i].kind());
  }
  here.limits = Resolved(asked, machine);
  here.make_ranks = [cluster = std::move(cluster),
                     links = std::make_shared<std::unique_ptr<NodeLinks>>(std::move(links_))] {
    return std::make_unique<ClusterRanks>(cluster, std::move(*links));
  };
  return here;
}

}  // namespace hir::service
