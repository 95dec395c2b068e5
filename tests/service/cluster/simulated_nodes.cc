#include "tests/service/cluster/simulated_nodes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "csrc/base/text.h"

namespace hir::testing {
namespace {

namespace pb = ::hostir::v1;
using service::NodeEvent;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr base::Nanos kLease = seconds(3);  // Until a link that says nothing is lost.

}  // namespace

SimulatedNodes::SimulatedNodes(int64_t size, int64_t ranks_of_each, NetworkModel model, uint64_t seed)
    : model_(model), ranks_of_each_(ranks_of_each), prng_(seed), nodes_(static_cast<size_t>(size)) {}

std::string SimulatedNodes::NameOf(int64_t node) const { return base::Cat("node ", node); }

std::string SimulatedNodes::IncarnationOf(int64_t node) const {
  return base::Cat(node, ".", nodes_[static_cast<size_t>(node)].incarnation);
}

void SimulatedNodes::Wrong(std::string what) {
  if (wrong_.empty()) wrong_ = std::move(what);
}

SimulatedNodes::Fault SimulatedNodes::Draw() {
  if (prng_.Below(1000) >= model_.faults) return Fault::kNone;
  ++num_faults_;
  constexpr Fault kFaults[] = {Fault::kNodeDies, Fault::kCutOff, Fault::kRankDies, Fault::kRankStops};
  return kFaults[prng_.Below(4)];
}

void SimulatedNodes::At(base::Nanos time, int64_t node, std::function<void()> what) {
  const int64_t link = nodes_[static_cast<size_t>(node)].link;
  coming_.push({time, ++number_, [this, node, link, what = std::move(what)] {
                  if (nodes_[static_cast<size_t>(node)].link == link) what();
                }});
}

base::Nanos SimulatedNodes::Arrival(base::Nanos& leaves, int64_t bytes) const {
  leaves = std::max(leaves, now_) + base::Nanos(bytes * 1'000'000'000 / model_.bytes_per_s);
  return leaves + model_.latency;
}

void SimulatedNodes::Say(int64_t node, pb::FromNode message) {
  base::Nanos& leaves = nodes_[static_cast<size_t>(node)].its_link.up;
  const base::Nanos arrival = Arrival(leaves, std::ssize(message.bytes().data()));
  At(arrival, node,
     [this, node, message = std::move(message)] { events_.push({.node = node, .lost = {}, .message = message}); });
}

void SimulatedNodes::Lose(int64_t node, const std::string& why, bool dies) {
  Node& its = nodes_[static_cast<size_t>(node)];
  ++its.link;  // Whatever is on its way.
  its.is_up = false;
  its.its_link = {};
  its.generation = 0;  // A node without a head ends its ranks.
  its.grants.clear();
  if (dies) ++its.incarnation;
  const base::Nanos noticed = now_ + (dies ? milliseconds(1) : kLease);
  At(noticed, node, [this, node, why] { events_.push({.node = node, .lost = Unavailable(why), .message = {}}); });
  At(noticed + milliseconds(prng_.Below(5000)), node, [this, node] {
    Node& back = nodes_[static_cast<size_t>(node)];
    back.is_up = true;
    back.ended = 0;
    pb::FromNode joined;
    joined.mutable_joined()->set_incarnation(IncarnationOf(node));
    events_.push({.node = node, .lost = {}, .message = std::move(joined)});
  });
}

void SimulatedNodes::CutOffForAMoment(int64_t node) {
  Node& its = nodes_[static_cast<size_t>(node)];
  ++its.link;
  its.its_link = {};
  its.generation = its.ended = 0;
  its.grants.clear();
  events_.push({.node = node, .lost = Unavailable("it is cut off"), .message = {}});
  pb::FromNode joined;
  joined.mutable_joined()->set_incarnation(IncarnationOf(node));
  events_.push({.node = node, .lost = {}, .message = std::move(joined)});
}

void SimulatedNodes::Send(int64_t node, pb::ToNode message) {
  now_ += model_.per_message;
  Node& its = nodes_[static_cast<size_t>(node)];
  if (!its.is_up) return;
  const auto bytes = std::ssize(message.bytes().data());
  its.its_link.bytes_down += bytes;
  most_on_the_way_ = std::max(most_on_the_way_, its.its_link.bytes_down);
  At(Arrival(its.its_link.down, bytes), node,
     [this, node, message = std::make_shared<pb::ToNode>(std::move(message))] { Arrive(node, *message); });
}

void SimulatedNodes::Arrive(int64_t node, pb::ToNode& message) {
  Node& its = nodes_[static_cast<size_t>(node)];
  if (message.has_end()) {
    its.ended = std::max(its.ended, message.end().generation());
    if (its.generation == message.end().generation()) its.generation = 0;
    its.its_link.said = {};
    its.its_link.answer = its.its_link.offset = 0;
    return;
  }
  if (message.has_remember()) {
    if (std::exchange(its.loses_remember, false)) return Lose(node, "it is cut off", false);
    its.dropped.insert(message.remember().dropped().begin(), message.remember().dropped().end());
    return;
  }
  if (message.has_bytes()) return ArriveBytes(node, message.bytes());
  if (message.has_taken()) {
    its.its_link.window.Taken(now_);
    return SayBytes(node);
  }
  const Fault fault = Draw();
  if (fault == Fault::kNodeDies) return Lose(node, "it died", true);
  if (fault == Fault::kCutOff) return Lose(node, "it is cut off", false);
  if (message.has_start()) {
    if (message.start().num_ranks() != size() * ranks_of_each_ || message.start().first_rank() != node * ranks_of_each_)
      Wrong("a start with other ranks");
    if (its.generation != 0) Wrong(base::Cat("a start of ranks where generation ", its.generation, " has some"));
    if (message.start().generation() <= its.ended) return;
    its.generation = message.start().generation();
    its.is_deaf = false;
    its.seq = 0;
    pb::FromNode started;
    started.mutable_started()->set_generation(its.generation);
    for (const int64_t first : message.start().nodes()) {
      pb::NodeLink& link = *started.mutable_started()->add_links();
      link.set_message_us(model_.LinkUs(first / ranks_of_each_));
      link.set_bytes_per_us(model_.link_bytes_per_us);
    }
    if (fault == Fault::kRankDies) {
      its.generation = 0;
      started.mutable_started()->mutable_error()->set_code(static_cast<int>(Code::kUnavailable));
      started.mutable_started()->mutable_error()->set_message("rank 0 died during the start of the mesh");
    }
    if (fault == Fault::kRankStops) return;  // Its setup takes for ever.
    return Say(node, std::move(started));
  }
  if (message.has_revoke()) its.grants.erase(message.revoke().number());
  if (message.has_grant()) {
    pb::FromNode granted;
    granted.mutable_granted()->set_number(message.grant().number());
    if (its.refuses.ok()) {
      its.grants.insert(message.grant().number());
    } else {
      granted.mutable_granted()->mutable_error()->set_code(static_cast<int>(its.refuses.code()));
      granted.mutable_granted()->mutable_error()->set_message(std::string(its.refuses.message()));
    }
    return Say(node, std::move(granted));
  }
  if (!message.has_order()) return;
  its.is_deaf = fault == Fault::kRankStops;
  ArriveOrder(node, message.order());
  if (fault == Fault::kRankDies && its.generation != 0) {
    its.generation = 0;
    pb::FromNode ended;
    ended.mutable_answer()->set_seq(message.order().seq());
    ended.mutable_answer()->set_ended(true);
    ended.mutable_answer()->mutable_error()->set_code(static_cast<int>(Code::kUnavailable));
    ended.mutable_answer()->mutable_error()->set_message("rank 1 died during the run");
    Say(node, std::move(ended));
  }
}

void SimulatedNodes::ArriveOrder(int64_t node, const pb::Order& order) {
  Node& its = nodes_[static_cast<size_t>(node)];
  if (std::exchange(arriving_, order.seq()) != order.seq()) first_arrival_ = now_;
  last_arrival_ = now_;
  if (order.generation() != its.generation) {
    if (order.generation() > its.generation && its.generation != 0) Wrong("an order of ranks that were not started");
    pb::FromNode over;
    over.mutable_answer()->set_seq(order.seq());
    over.mutable_answer()->set_ended(true);
    over.mutable_answer()->mutable_error()->set_code(static_cast<int>(Code::kUnavailable));
    over.mutable_answer()->mutable_error()->set_message("its ranks are over");
    return Say(node, std::move(over));
  }
  if (order.seq() <= its.seq) Wrong(base::Cat("order ", order.seq(), " after ", its.seq));
  its.seq = order.seq();
  ++num_orders_;
  num_parts_ += order.parts_size();
  std::queue<std::pair<int64_t, int64_t>> wanted;
  for (const pb::Order::Part& part : order.parts()) {
    for (const pb::DeviceShard& shard : part.message().bind().shards()) {
      const int64_t arrived = its.its_link.arrived[shard.id()];
      if (shard.has_memory() && arrived != shard.bytes())
        Wrong(base::Cat("a bind of shard ", shard.id(), ", of which ", arrived, " of ", shard.bytes(), " bytes came"));
    }
    for (const pb::DeviceShard& shard : part.message().fetch().shards()) wanted.emplace(shard.id(), shard.bytes());
  }
  if (its.is_deaf) return;
  At(now_ + model_.run, node, [this, node, seq = order.seq(), generation = order.generation(), wanted] {
    Node& then = nodes_[static_cast<size_t>(node)];
    if (then.generation != generation) return;
    then.its_link.said = wanted;
    then.its_link.offset = 0;
    then.its_link.answer = seq;
    SayBytes(node);
  });
}

void SimulatedNodes::ArriveBytes(int64_t node, const pb::ShardBytes& bytes) {
  Node& its = nodes_[static_cast<size_t>(node)];
  its.its_link.bytes_down -= std::ssize(bytes.data());
  if (!its.takes_bytes) return;
  int64_t& arrived = its.its_link.arrived[bytes.shard()];
  if (bytes.offset() == 0) arrived = 0;
  if (bytes.offset() != arrived) Wrong("bytes of a shard out of their order");
  arrived += std::ssize(bytes.data());
  if (!bytes.asks()) return;
  pb::FromNode taken;
  taken.mutable_taken();
  Say(node, std::move(taken));
}

void SimulatedNodes::SayBytes(int64_t node) {
  Node::Link& link = nodes_[static_cast<size_t>(node)].its_link;
  while (!link.said.empty()) {
    const auto [shard, total] = link.said.front();
    if (const int64_t size = link.window.Next(total - link.offset); size > 0) {
      pb::FromNode message;
      pb::ShardBytes& bytes = *message.mutable_bytes();
      bytes.set_shard(shard);
      bytes.set_total(total);
      bytes.set_offset(link.offset);
      bytes.set_data(std::string(static_cast<size_t>(size), '\0'));
      link.offset += size;
      bytes.set_asks(link.window.Sent(size, link.offset == total, now_));
      most_on_the_way_ = std::max(most_on_the_way_, link.window.on_the_way());
      Say(node, std::move(message));
    } else if (link.offset < total) {
      return;
    }
    if (link.offset < total) continue;
    link.said.pop();
    link.offset = 0;
  }
  if (link.answer == 0) return;
  pb::FromNode answer;
  answer.mutable_answer()->set_seq(std::exchange(link.answer, 0));
  Say(node, std::move(answer));
}

std::optional<NodeEvent> SimulatedNodes::Take() {
  if (events_.empty()) return std::nullopt;
  NodeEvent event = std::move(events_.front());
  events_.pop();
  now_ += model_.per_message;
  return event;
}

void SimulatedNodes::Wait(int, base::Nanos deadline) {
  while (events_.empty() && !std::exchange(interrupted_, false)) {
    if (coming_.empty() || coming_.top().time > deadline) {
      now_ = std::max(now_, deadline);
      return;
    }
    Coming next = coming_.top();
    coming_.pop();
    now_ = std::max(now_, next.time);
    next.what();
  }
}

}  // namespace hir::testing
