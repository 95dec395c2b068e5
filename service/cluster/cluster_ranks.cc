#include "service/cluster/cluster_ranks.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"
#include "service/supervise/child_error.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;
using std::chrono::milliseconds;

// A node says by itself that its ranks are late; so long after that it is the node that is.
constexpr base::Nanos kNodeGrace = std::chrono::seconds(2);
constexpr base::Nanos kOthersGrace = std::chrono::seconds(1);
// A link that carries less is as good as none.
constexpr int64_t kSlowestBytesPerMs = 100;
// Between the death of a rank, or of a node, and what ranks elsewhere say of it.
constexpr base::Nanos kCauseGrace = milliseconds(200);

bool IsReadable(int fd) {
  pollfd readable = {fd, POLLIN, 0};
  return poll(&readable, 1, 0) > 0;
}

bool IsExported(const RankMessage& message) {
  const auto is_exported = [](const pb::DeviceShard& shard) { return shard.exported(); };
  return std::ranges::any_of(message.message.bind().shards(), is_exported) ||
         std::ranges::any_of(message.message.fetch().shards(), is_exported);
}

// A message to ranks of one node, by their numbers there.
struct Said {
  RankMessage message;
  std::vector<int64_t> ranks;
};

// The messages of each rank, in its order. One that is next on several ranks is there once: plans are large, and the
// same for all. Those of one rank's own shards go first, so that what is behind them is next on all.
std::vector<Said> OnceEach(std::span<std::vector<RankMessage>> of_ranks) {
  std::vector<size_t> next(of_ranks.size(), 0);
  const auto pick = [&]() -> std::optional<size_t> {
    std::optional<size_t> any;
    for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
      if (next[rank] == of_ranks[rank].size()) continue;
      const pb::ToWorker& message = of_ranks[rank][next[rank]].message;
      if (message.has_bind() || message.has_fetch()) return rank;
      if (!any) any = rank;
    }
    return any;
  };
  std::vector<Said> all;
  while (const std::optional<size_t> first = pick()) {
    Said& said = all.emplace_back();
    said.message = std::move(of_ranks[*first][next[*first]++]);
    said.ranks = {static_cast<int64_t>(*first)};
    if (said.message.message.has_bind() || said.message.message.has_fetch()) continue;
    const std::string text = said.message.message.SerializeAsString();
    for (size_t rank = *first + 1; rank < of_ranks.size(); ++rank) {
      if (next[rank] == of_ranks[rank].size()) continue;
      if (of_ranks[rank][next[rank]].message.SerializeAsString() != text) continue;
      said.ranks.push_back(static_cast<int64_t>(rank));
      ++next[rank];
    }
  }
  return all;
}

int64_t CeilMs(base::Nanos time) { return std::chrono::ceil<milliseconds>(time).count(); }

// A death, or a lost node, is the cause of whatever others say.
int RankOfCause(const Status& status) { return status.code() == Code::kUnavailable ? 0 : 1; }

}  // namespace

ClusterRanks::ClusterRanks(ClusterOptions options, std::unique_ptr<Nodes> nodes)
    : options_(std::move(options)),
      nodes_(std::move(nodes)),
      grants_(std::make_shared<Grants>([nodes = nodes_.get()] { nodes->Interrupt(); })) {
  HIR_CHECK(std::ssize(options_.nodes) == nodes_->size());
  for (const ClusterOptions::Node& node : options_.nodes) {
    Node& made = of_node_.emplace_back();
    made.first_rank = num_ranks_;
    made.num_ranks = node.num_ranks;
    made.incarnation = node.incarnation;
    made.is_there = node.is_there;
    made.newest = options_.first_shard;  // It may have those of heads before.
    if (node.is_there) Hold(made, node.shards);
    num_ranks_ += node.num_ranks;
    drained_.push_back(options_.drained.contains(std::ssize(drained_)));
  }
  Publish();
}

ClusterRanks::~ClusterRanks() {
  grants_->End(Unavailable("the head of the cluster is shutting down"));
  if (healthy_) (void)Break(Unavailable("the head of the cluster is shutting down"));
}

void ClusterRanks::Pause() { sched_yield(); }

size_t ClusterRanks::NodeOf(int64_t rank) const {
  const auto behind = std::ranges::upper_bound(of_node_, rank, {}, &Node::first_rank);
  return static_cast<size_t>(behind - of_node_.begin()) - 1;
}

Status ClusterRanks::Start() {
  HIR_CHECK(!healthy_);
  ++generation_;
  phase_ = Phase::kStarting;
  keys_ = {};
  first_error_ = {};
  (void)HandleEvents("the start of the mesh");  // Of what has ended. Who has joined again is there.
  std::vector<int64_t> absent, firsts;
  Status away;
  for (size_t i = 0; i < of_node_.size(); ++i) {
    Node& node = of_node_[i];
    {
      const std::scoped_lock lock(mutex_);
      node.is_drained = drained_[i];
    }
    if (node.takes_part) node.newest = newest_;
    node.takes_part = node.is_there && !node.is_drained;
    if (node.takes_part) {
      firsts.push_back(node.first_rank);
      continue;
    }
    if (away.ok()) away = WhyAway(static_cast<int64_t>(i));
    for (int64_t rank = 0; rank < node.num_ranks; ++rank) absent.push_back(node.first_rank + rank);
  }
  if (std::ssize(absent) == num_ranks_) return Break(std::move(away));  // Nobody is there.
  healthy_ = true;
  began_ = moved_ = clock().Now();
  bulk_bytes_ = 0;
  Remind();
  for (size_t i = 0; i < of_node_.size(); ++i) {
    Node& node = of_node_[i];
    const auto number = static_cast<int64_t>(i);
    if (!node.takes_part) continue;
    node.owes = true;
    node.has_ranks = true;
    pb::ToNode message;
    pb::StartRanks& start = *message.mutable_start();
    start.set_generation(generation_);
    start.set_first_rank(node.first_rank);
    start.set_num_ranks(num_ranks_);
    start.set_setup_timeout_ms(CeilMs(options_.setup_timeout));
    start.set_comm_timeout_ms(CeilMs(options_.comm_timeout));
    start.mutable_absent()->Add(absent.begin(), absent.end());
    if (firsts.size() > 1) start.mutable_nodes()->Add(firsts.begin(), firsts.end());
    nodes_->Send(number, std::move(message));
  }
  const TimeLimit limit = {options_.setup_timeout, "setup_timeout_ms"};
  const Status status = AwaitAll(limit, "the start of the mesh", Waits::kEachOther);
  phase_ = Phase::kResting;
  if (!status.ok()) return healthy_ ? Break(status) : status;
  Publish();
  return {};
}

Status ClusterRanks::Pump(int64_t number) {
  Node& node = of_node_[static_cast<size_t>(number)];
  while (!node.bulk.empty()) {
    Bulk& next = node.bulk.back();
    const int64_t size = node.window.Next(next.bytes - next.offset);
    if (size == 0) return {};
    pb::ToNode piece;
    pb::ShardBytes& bytes = *piece.mutable_bytes();
    bytes.set_shard(next.shard);
    bytes.set_total(next.bytes);
    bytes.set_offset(next.offset);
    std::string& data = *bytes.mutable_data();
    data.resize(static_cast<size_t>(size));
    if (pread(next.from.get(), data.data(), data.size(), next.offset) != size)
      return Internal(base::Cat("the bytes of shard ", next.shard, " cannot be read"));
    next.offset += size;
    bytes.set_asks(node.window.Sent(size, next.offset == next.bytes, clock().Now()));
    nodes_->Send(number, std::move(piece));
    if (next.offset == next.bytes) node.bulk.pop_back();
  }
  if (!together_) {
    if (node.order) nodes_->Send(number, *std::exchange(node.order, std::nullopt));
    return {};
  }
  if (std::ranges::any_of(of_node_, [](const Node& other) { return !other.bulk.empty(); })) return {};
  for (size_t i = 0; i < of_node_.size(); ++i) {
    if (of_node_[i].order) nodes_->Send(static_cast<int64_t>(i), *std::exchange(of_node_[i].order, std::nullopt));
  }
  moved_ = clock().Now();
  return {};
}

Status ClusterRanks::Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
                          Waits waits) {
  HIR_CHECK(healthy_ && std::ssize(messages) == num_ranks_);
  for (const auto& of_rank : messages) {
    for (const RankMessage& message : of_rank) {
      for (const pb::DeviceShard& shard : message.message.bind().shards()) newest_ = std::max(newest_, shard.id());
    }
    if (std::ranges::any_of(of_rank, IsExported))
      return Unimplemented(
          "memory of a device that a client exports goes to no node of a cluster: send it by the host");
  }
  first_error_ = {};
  measured_.assign(static_cast<size_t>(num_ranks_), {});
  fetched_.clear();
  began_ = moved_ = clock().Now();
  bulk_bytes_ = 0;
  // Ranks that wait for others begin when those can: bytes of one node may take long.
  together_ = waits == Waits::kEachOther;
  ++seq_;
  Remind();
  for (size_t i = 0; i < of_node_.size(); ++i) {
    Node& node = of_node_[i];
    pb::ToNode message;
    pb::Order& order = *message.mutable_order();
    order.set_generation(generation_);
    order.set_seq(seq_);
    order.set_what(std::string(what));
    order.set_timeout_us(std::chrono::ceil<std::chrono::microseconds>(timeout.time).count());
    order.set_limit(std::string(timeout.limit));
    order.set_waits_for_each_other(waits == Waits::kEachOther);
    const std::span<std::vector<RankMessage>> its(&messages[static_cast<size_t>(node.first_rank)],
                                                  static_cast<size_t>(node.num_ranks));
    if (!node.takes_part) {
      ReleaseAt(static_cast<int64_t>(i), its);
      continue;
    }
    for (Said& said : OnceEach(its)) {
      pb::Order::Part& part = *order.add_parts();
      if (std::ssize(said.ranks) < node.num_ranks) part.mutable_ranks()->Add(said.ranks.begin(), said.ranks.end());
      size_t next_fd = 0;
      for (const pb::DeviceShard& shard : said.message.message.bind().shards()) {
        if (!shard.has_memory()) continue;
        base::Fd from(dup(said.message.fds[next_fd++]));
        bulk_bytes_ += shard.bytes();
        if (shard.bytes() > 0) node.bulk.push_back({shard.id(), shard.bytes(), std::move(from)});
      }
      for (const pb::DeviceShard& shard : said.message.message.fetch().shards()) {
        bulk_bytes_ += shard.bytes();
        fetched_[shard.id()] = {static_cast<int64_t>(i), base::Fd(dup(said.message.fds[next_fd++])), shard.bytes()};
      }
      *part.mutable_message() = std::move(said.message.message);
    }
    if (order.parts().empty()) continue;  // Nothing for it to do.
    node.owes = true;
    node.order = std::move(message);
  }
  for (size_t i = 0; i < of_node_.size(); ++i) {
    if (Status sent = Pump(static_cast<int64_t>(i)); !sent.ok()) return Break(std::move(sent));
  }
  return Await(timeout, what, waits);
}

bool ClusterRanks::Post(const pb::Execute& execute) {
  HIR_CHECK(healthy_);
  first_error_ = {};
  measured_.assign(static_cast<size_t>(num_ranks_), {});
  began_ = moved_ = clock().Now();
  bulk_bytes_ = 0;
  ++seq_;
  Remind();
  for (size_t i = 0; i < of_node_.size(); ++i) {
    if (!of_node_[i].takes_part) continue;
    pb::ToNode message;
    pb::Order& order = *message.mutable_order();
    order.set_generation(generation_);
    order.set_seq(seq_);
    order.set_what(base::Cat("run ", execute.run()));
    order.set_timeout_us(execute.timeout_ms() * 1000);
    order.set_waits_for_each_other(true);
    *order.add_parts()->mutable_message()->mutable_execute() = execute;
    of_node_[i].owes = true;
    nodes_->Send(static_cast<int64_t>(i), std::move(message));
  }
  return true;
}

Status ClusterRanks::Await(TimeLimit timeout, std::string_view what, Waits waits) {
  if (!healthy_) return failure_;
  phase_ = Phase::kCalling;
  const Status failure = AwaitAll(timeout, what, waits);
  phase_ = Phase::kResting;
  if (failure.ok() && first_error_.ok()) first_error_ = CheckFetched();
  fetched_.clear();
  return failure.ok() ? first_error_ : failure;
}

Status ClusterRanks::AwaitAll(TimeLimit limit, std::string_view what, Waits waits) {
  base::Nanos look_at = look_ ? base::Nanos() : base::Nanos::max();
  for (Node& node : of_node_) node.where.clear();
  for (;;) {
    if (Status ended = HandleEvents(what); !ended.ok()) return Break(Cause(std::move(ended), what));
    if (const Status cause = interrupt(); !cause.ok()) return Break(cause.WithContext(what));
    if (std::ranges::none_of(of_node_, &Node::owes)) return {};
    const base::Nanos now = clock().Now();
    if (look_ && (nudged_.exchange(false) || now >= look_at)) {
      const Result<base::Nanos> next = look_();
      if (!next.ok()) {
        const std::string where = Where();
        return Break(
            {next.status().code(), base::Cat(next.status().message(), where.empty() ? "" : ": ", where, Next())});
      }
      look_at = *next;
    }
    const bool failed = !first_error_.ok() && waits == Waits::kEachOther;
    const base::Nanos slowest = std::chrono::milliseconds(bulk_bytes_ / kSlowestBytesPerMs);
    base::Nanos end = std::min(std::max(began_, moved_), began_ + slowest) + limit.time + kNodeGrace;
    if (failed) end = std::min(end, failed_at_ + kOthersGrace);
    if (now >= end) {
      if (failed) return Break(first_error_);
      const auto late = std::ranges::find_if(of_node_, &Node::owes);
      const std::string stuck = late->bulk.empty() ? " does not answer" : " takes no more bytes: look at its link";
      return Break({Code::kDeadlineExceeded,
                    base::Cat(what, " took longer than ", limit.limit, limit.limit.empty() ? "" : " = ",
                              CeilMs(limit.time), " ms: ", nodes_->NameOf(late - of_node_.begin()), stuck, Next())});
    }
    nodes_->Wait(-1, std::min(end, look_at));
  }
}

Status ClusterRanks::HandleEvents(std::string_view what) {
  CarryGrants();
  while (std::optional<NodeEvent> event = nodes_->Take()) HIR_TRY(Handle(*event, what));
  return {};
}

Status ClusterRanks::Lose(const NodeEvent& event, std::string_view what) {
  Node& node = of_node_[static_cast<size_t>(event.node)];
  node.is_there = false;
  node.owes = false;
  grants_->Lose(event.node,
                Unavailable(base::Cat(nodes_->NameOf(event.node), " is lost (", event.lost.message(), ")")));
  node.window = {};
  node.DropBulk();
  node.released.insert(node.released.end(), node.told.begin(), node.told.end());
  node.told.clear();
  if (!std::exchange(node.has_ranks, false)) return {};
  return Unavailable(
      base::Cat(nodes_->NameOf(event.node), " is lost (", event.lost.message(), "), during ", what, Next()));
}

Status ClusterRanks::Handle(NodeEvent& event, std::string_view what) {
  if (!event.lost.ok()) return Lose(event, what);
  Node& node = of_node_[static_cast<size_t>(event.node)];
  pb::FromNode& message = event.message;
  switch (message.body_case()) {
    case pb::FromNode::kJoined: Joined(node, message.joined()); return {};
    case pb::FromNode::kStarted: {
      if (message.started().generation() != generation_ || !node.has_ranks || !healthy_) return {};
      node.owes = false;
      node.told.clear();  // Before the start.
      node.pids.assign(message.started().pids().begin(), message.started().pids().end());
      const Status status = FromError(message.started().error());
      if (!status.ok()) node.has_ranks = false;
      Measured(message.started().links());
      return status.ok() ? status : status.WithContext(nodes_->NameOf(event.node));
    }
    case pb::FromNode::kAnswer: {
      // One to what came before is none to a start, or to an order that waits for its bytes.
      if (message.answer().seq() != seq_ || !node.owes || node.order || phase_ == Phase::kStarting) return {};
      node.told.clear();  // Before the order.
      return HandleAnswer(node, *message.mutable_answer());
    }
    case pb::FromNode::kPublished:
      return node.has_ranks ? Published(message.published().key(), message.published().value()) : Status();
    case pb::FromNode::kWanted: return node.has_ranks ? Wanted(event.node, message.wanted().key()) : Status();
    case pb::FromNode::kBytes: WriteFetched(event.node, message.bytes()); return {};
    case pb::FromNode::kGranted: grants_->Hear(event.node, message.granted()); return {};
    case pb::FromNode::kTaken:
      if (node.window.Taken(clock().Now())) moved_ = clock().Now();
      return Pump(event.node);
    case pb::FromNode::kLate:
      if (message.late().seq() != seq_ || !node.owes) return {};
      node.where = message.late().where();
      if (late_) late_(what, Where());
      return {};
    case pb::FromNode::kUsage: {
      const pb::RanksUsage& usage = message.usage();
      if (usage.generation() != generation_ || !healthy_) return {};
      node.usage.assign(static_cast<size_t>(node.num_ranks), {.num_threads = usage.num_threads()});
      for (int i = 0; i < std::min(usage.resident_bytes_size(), usage.cpu_ms_size()) && i < node.num_ranks; ++i) {
        node.usage[static_cast<size_t>(i)].resident_bytes = usage.resident_bytes(i);
        node.usage[static_cast<size_t>(i)].cpu_ms = usage.cpu_ms(i);
      }
      PublishUsage();
      return {};
    }
    case pb::FromNode::kEnded: {
      if (message.ended().generation() != generation_ || !node.has_ranks) return {};
      node.has_ranks = false;
      node.owes = false;
      Status cause = FromError(message.ended().cause());
      return cause.ok()
                 ? Internal(base::Cat("the ranks of ", nodes_->NameOf(event.node), " ended, and it does not say why"))
                 : cause;
    }
    case pb::FromNode::kBeat:
    case pb::FromNode::BODY_NOT_SET: break;
  }
  return {};
}

// Powers of two: links that are alike give the same plans.
void ClusterRanks::Measured(const google::protobuf::RepeatedPtrField<pb::NodeLink>& links) {
  const auto is_time = [](double value) { return value >= 1e-3 && value <= 1e9; };
  const auto is_sane = [&](const pb::NodeLink& link) {
    return is_time(link.message_us()) && is_time(link.bytes_per_us());
  };
  if (links.size() != std::ranges::count_if(of_node_, &Node::takes_part) || !std::ranges::all_of(links, is_sane))
    return;
  const auto rounded = [](double value) { return std::exp2(std::round(std::log2(value))); };
  int next = 0;
  for (Node& node : of_node_) {
    if (!node.takes_part) continue;
    const pb::NodeLink& link = links[next++];
    node.link.emplace();
    node.link->set_message_us(rounded(link.message_us()));
    node.link->set_bytes_per_us(rounded(link.bytes_per_us()));
  }
}

// A node whose link was lost may have gone on, and keep what it had.
void ClusterRanks::Joined(Node& node, const pb::Joined& joined) {
  node.is_there = true;
  node.knows_all = false;
  if (std::exchange(node.incarnation, joined.incarnation()) != joined.incarnation()) node.keeps = false;
  Hold(node, std::span(joined.shards().data(), static_cast<size_t>(joined.shards_size())));
}

void ClusterRanks::Hold(Node& node, std::span<const int64_t> shards) {
  node.holds.emplace(shards.begin(), shards.end());
  node.unknown.clear();
  for (const int64_t shard : shards) {
    if (shard < options_.first_shard && !options_.inherited.contains(shard)) node.unknown.push_back(shard);
  }
}

void ClusterRanks::Ask(std::vector<Ticket> tickets, Granted granted) {
  if (options_.on_devices) return granted(Status(Code::kFailedPrecondition, "all shards are the devices'"));
  Grants::Tickets of_nodes;
  for (Ticket& ticket : tickets) {
    pb::Ticket& said = *of_nodes[static_cast<int64_t>(NodeOf(ticket.rank))].add_tickets();
    said.set_secret(std::move(ticket.secret));
    said.set_receipt(std::move(ticket.receipt));
    said.set_writes(ticket.writes);
    said.set_bytes(ticket.bytes);
    said.mutable_shards()->Add(ticket.shards.begin(), ticket.shards.end());
  }
  grants_->Ask(std::move(of_nodes), std::move(granted));
}

void ClusterRanks::CarryGrants() {
  const auto why_not = [this](int64_t number) -> Status {
    const Node& node = of_node_[static_cast<size_t>(number)];
    if (!node.takes_part || !node.is_there) return WhyAway(number);
    // While it starts, a node that was restarted counts as one that keeps nothing: what was written would be lost.
    return healthy_ && phase_ != Phase::kStarting ? Status() : Unavailable("the mesh is being restarted");
  };
  // All that was written has got a handle by the time its tickets end, and no order need follow.
  if (grants_->has_revoked() && healthy_ && phase_ != Phase::kStarting) TellNews();
  grants_->Carry(why_not, [this](int64_t number, pb::ToNode message) {
    Node& node = of_node_[static_cast<size_t>(number)];
    for (const pb::Ticket& ticket : message.grant().tickets()) {
      if (!ticket.writes()) continue;
      // It has them from now on, as those that were bound.
      for (const int64_t shard : ticket.shards()) newest_ = std::max(newest_, shard);
      if (node.holds) node.holds->insert(ticket.shards().begin(), ticket.shards().end());
    }
    nodes_->Send(number, std::move(message));
  });
}

void ClusterRanks::Remind() {
  if (phase_ != Phase::kStarting) {
    for (Node& node : of_node_) {
      if (node.takes_part) node.holds.reset();  // It has been asked for; the rest comes from here.
    }
  }
  TellNews();
}

void ClusterRanks::TellNews() {
  const bool is_kept = options_.remembered != nullptr;
  const std::vector<pb::Remember> news = is_kept ? options_.remembered->Take() : std::vector<pb::Remember>();
  for (size_t i = 0; i < of_node_.size(); ++i) {
    Node& node = of_node_[i];
    if (!node.is_there) continue;
    std::vector<pb::Remember> messages = node.knows_all || !is_kept ? news : options_.remembered->All();
    if (!std::exchange(node.knows_all, true) || !node.released.empty()) {
      if (messages.empty()) messages.emplace_back();
      node.released.insert(node.released.end(), node.unknown.begin(), node.unknown.end());
      messages.front().mutable_dropped()->Add(node.released.begin(), node.released.end());
      node.unknown.clear();
      node.told.insert(node.told.end(), node.released.begin(), node.released.end());
      node.released.clear();
    }
    for (pb::Remember& remember : messages) {
      pb::ToNode message;
      message.mutable_remember()->Swap(&remember);
      nodes_->Send(static_cast<int64_t>(i), std::move(message));
    }
  }
}

Status ClusterRanks::HandleAnswer(Node& node, pb::Answer& answer) {
  HIR_CHECK(std::ssize(measured_) == num_ranks_);  // It is of a call.
  node.owes = false;
  const Status status = FromError(answer.error());
  for (int i = 0; i < answer.measured_size() && i < node.num_ranks; ++i)
    measured_[static_cast<size_t>(node.first_rank + i)].Swap(answer.mutable_measured(i));
  if (answer.ended()) {
    node.has_ranks = false;
    return status.ok() ? Internal("a node's ranks ended, and it does not say why") : status;
  }
  if (!status.ok() && first_error_.ok()) {
    first_error_ = status;
    failed_at_ = clock().Now();
  }
  return {};
}

Status ClusterRanks::Wanted(int64_t node, const std::string& key) {
  HIR_ASSIGN(const std::string* const value, keys_.Get(node, key));
  if (value != nullptr) Provide(node, key, *value);
  return {};
}

Status ClusterRanks::Published(const std::string& key, const std::string& value) {
  HIR_ASSIGN(const std::vector<int64_t> waiting, keys_.Publish(key, value));
  for (const int64_t node : waiting) Provide(node, key, value);
  return {};
}

void ClusterRanks::Provide(int64_t node, const std::string& key, const std::string& value) {
  pb::ToNode message;
  message.mutable_provide()->set_key(key);
  message.mutable_provide()->set_value(value);
  nodes_->Send(node, std::move(message));
}

void ClusterRanks::WriteFetched(int64_t node, const pb::ShardBytes& bytes) {
  if (bytes.asks()) {
    pb::ToNode taken;
    taken.mutable_taken();
    nodes_->Send(node, std::move(taken));
  }
  const auto found = fetched_.find(bytes.shard());
  if (found == fetched_.end()) return;
  Fetched& into = found->second;
  const auto size = std::ssize(bytes.data());
  if (into.node != node || bytes.offset() != into.there || size > into.bytes - into.there) return;  // None of it.
  if (pwrite(into.into.get(), bytes.data().data(), bytes.data().size(), into.there) != size) return;
  into.there += size;
  moved_ = clock().Now();
}

Status ClusterRanks::CheckFetched() const {
  for (const auto& [shard, fetched] : fetched_) {
    if (fetched.there != fetched.bytes)
      return Status(Code::kDataLoss, base::Cat(fetched.bytes - fetched.there, " bytes of shard ", shard,
                                               " did not come from ", nodes_->NameOf(fetched.node)));
  }
  return {};
}

std::string ClusterRanks::Where() const {
  std::vector<std::string> of_nodes;
  for (size_t i = 0; i < of_node_.size(); ++i) {
    const Node& node = of_node_[i];
    if (node.owes && !node.where.empty())
      of_nodes.push_back(base::Cat(nodes_->NameOf(static_cast<int64_t>(i)), ": ", node.where));
  }
  return base::Join(of_nodes, "; ");
}

Status ClusterRanks::Cause(Status first, std::string_view what) {
  const base::Nanos until = clock().Now() + kCauseGrace;
  Status best = std::move(first);
  while (RankOfCause(best) > 0 && std::ranges::any_of(of_node_, &Node::owes)) {
    if (Status other = HandleEvents(what); !other.ok()) {
      if (RankOfCause(other) < RankOfCause(best)) best = std::move(other);
      continue;
    }
    if (clock().Now() >= until) break;
    nodes_->Wait(-1, until);
  }
  return best;
}

Status ClusterRanks::WhyAway(int64_t node) const {
  const bool is_drained = of_node_[static_cast<size_t>(node)].is_drained;
  return Unavailable(nodes_->NameOf(node) + (is_drained ? " is drained (hostir undrain ends that)" : " is not there"));
}

Status ClusterRanks::WhyAbsent(int64_t rank) const {
  const size_t node = NodeOf(rank);
  return of_node_[node].takes_part ? Status() : WhyAway(static_cast<int64_t>(node));
}

void ClusterRanks::ReleaseAt(int64_t node, std::span<const std::vector<RankMessage>> messages) {
  // All ranks are told of all.
  Node& its = of_node_[static_cast<size_t>(node)];
  for (const RankMessage& message : messages.front()) {
    for (const int64_t shard : message.message.release().shards()) {
      if (shard <= its.newest) its.released.push_back(shard);
    }
  }
}

Status ClusterRanks::OthersTakePart() {
  for (size_t i = 0; i < of_node_.size(); ++i) {
    const Node& node = of_node_[i];
    const std::string name = nodes_->NameOf(static_cast<int64_t>(i));
    const std::scoped_lock lock(mutex_);
    if (node.takes_part && drained_[i]) return Unavailable(name + " is to be drained; the mesh goes on without it");
    if (!node.takes_part && node.is_there && !drained_[i])
      return Unavailable(name + " is there again; the mesh is restarted with it");
  }
  return {};
}

void ClusterRanks::Renew() {
  if (Status ended = HandleEvents("idle"); !ended.ok()) {
    if (healthy_) (void)Break(std::move(ended));
    return;
  }
  if (Status others = OthersTakePart(); !others.ok()) (void)Break(std::move(others));
}

Status ClusterRanks::SetDrained(int64_t node, bool drained) {
  if (node < 0 || node >= nodes_->size())
    return {Code::kNotFound, base::Cat("node ", node, ": the cluster has ", nodes_->size(), ", from 0 on")};
  {
    const std::scoped_lock lock(mutex_);
    const auto left = std::ranges::count(drained_, false) - (drained && !drained_[static_cast<size_t>(node)] ? 1 : 0);
    if (left == 0) return {Code::kFailedPrecondition, "all other nodes are drained: nobody would be left"};
    drained_[static_cast<size_t>(node)] = drained;
  }
  nodes_->Interrupt();
  return {};
}

bool ClusterRanks::Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  nodes_->Wait(wake_fd, clock().Now() + timeout);
  lock.lock();
  if (healthy_) {
    Renew();
  } else {
    (void)HandleEvents("idle");
  }
  return IsReadable(wake_fd);
}

void ClusterRanks::Nudge() {
  nudged_ = true;
  nodes_->Interrupt();
}

void ClusterRanks::Interrupt(const Status& cause) {
  {
    const std::scoped_lock lock(mutex_);
    interrupt_ = cause;
  }
  nodes_->Interrupt();
}

Status ClusterRanks::interrupt() const {
  const std::scoped_lock lock(mutex_);
  return interrupt_;
}

bool ClusterRanks::Keeps(int64_t rank) const { return of_node_[NodeOf(rank)].keeps; }

bool ClusterRanks::KeepsShard(int64_t rank, int64_t shard) const {
  const Node& node = of_node_[NodeOf(rank)];
  return node.keeps && (!node.holds || node.holds->contains(shard));
}

Status ClusterRanks::Break(Status cause) {
  const bool served = std::exchange(healthy_, false) && phase_ != Phase::kStarting;
  failure_ = cause;
  for (size_t i = 0; i < of_node_.size(); ++i) {
    Node& node = of_node_[i];
    node.owes = false;
    node.DropBulk();
    node.pids.clear();
    node.usage.clear();
    if (served && node.takes_part) node.keeps = !options_.on_devices;
    if (!node.is_there || !std::exchange(node.has_ranks, false)) continue;
    pb::ToNode message;
    message.mutable_end()->set_generation(generation_);
    message.mutable_end()->mutable_cause()->set_code(static_cast<int>(cause.code()));
    message.mutable_end()->mutable_cause()->set_message(std::string(cause.message()));
    nodes_->Send(static_cast<int64_t>(i), std::move(message));
  }
  fetched_.clear();
  Publish();
  return cause;
}

void ClusterRanks::Publish() {
  const std::scoped_lock lock(mutex_);
  snapshot_.generation = generation_;
  const bool was_healthy = std::exchange(snapshot_.healthy, healthy_ && phase_ != Phase::kStarting);
  if (snapshot_.healthy != was_healthy && on_health_) on_health_(snapshot_.healthy);
  snapshot_.pids.clear();
  snapshot_.absent.clear();
  for (size_t i = 0; i < of_node_.size(); ++i) {
    const Node& node = of_node_[i];
    const auto num = static_cast<size_t>(node.num_ranks);
    std::vector<int64_t> pids = node.pids;
    pids.resize(num);
    snapshot_.pids.insert(snapshot_.pids.end(), pids.begin(), pids.end());
    const std::string why = node.takes_part ? "" : std::string(WhyAway(static_cast<int64_t>(i)).message());
    snapshot_.absent.insert(snapshot_.absent.end(), num, why);
  }
  PublishLinks();
  snapshot_.failure = failure_.ok() ? "" : failure_.ToString();
}

// One that was never measured is taken for the slowest of those that were.
void ClusterRanks::PublishLinks() {
  snapshot_.links.Clear();
  pb::NodeLink slowest;
  slowest.set_bytes_per_us(std::numeric_limits<double>::infinity());
  bool any = false;
  for (const Node& node : of_node_) {
    if (!node.link) continue;
    any = true;
    slowest.set_message_us(std::max(slowest.message_us(), node.link->message_us()));
    slowest.set_bytes_per_us(std::min(slowest.bytes_per_us(), node.link->bytes_per_us()));
  }
  if (!any) return;
  for (size_t i = 0; i < of_node_.size(); ++i) {
    for (int64_t rank = 0; rank < of_node_[i].num_ranks; ++rank) snapshot_.links.add_node_of(static_cast<int64_t>(i));
    *snapshot_.links.add_of_node() = of_node_[i].link.value_or(slowest);
  }
}

void ClusterRanks::PublishUsage() {
  const std::scoped_lock lock(mutex_);
  snapshot_.usage.clear();
  for (const Node& node : of_node_) {
    std::vector<Snapshot::Usage> usage = node.usage;
    usage.resize(static_cast<size_t>(node.num_ranks));
    snapshot_.usage.insert(snapshot_.usage.end(), usage.begin(), usage.end());
  }
}

void ClusterRanks::OnHealth(std::function<void(bool)> heard) {
  const std::scoped_lock lock(mutex_);
  on_health_ = std::move(heard);
  if (on_health_) on_health_(snapshot_.healthy);
}

Ranks::Snapshot ClusterRanks::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return snapshot_;
}

}  // namespace hir::service
