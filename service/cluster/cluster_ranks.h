// ClusterRanks: the ranks of several nodes as one mesh that lives and dies together.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/busy_wait.h"
#include "csrc/base/fd.h"
#include "service/cluster/bulk_window.h"
#include "service/cluster/grants.h"
#include "service/cluster/nodes.h"
#include "service/cluster/remembered.h"
#include "service/supervise/ranks.h"
#include "service/supervise/rendezvous_table.h"

namespace hir::service {

struct ClusterOptions {
  struct Node {
    int64_t num_ranks = 0;
    std::string incarnation = {};      // As it joined.
    bool is_there = true;              // It did.
    std::vector<int64_t> shards = {};  // That it keeps, of heads before.
  };
  std::vector<Node> nodes;  // Their ranks are numbered through.
  bool on_devices = false;  // Shards live with the ranks, not with the node.
  base::Nanos setup_timeout = std::chrono::seconds(10);
  base::Nanos comm_timeout = std::chrono::seconds(30);
  // Nodes are told of it, for a later head; null: nobody would ask.
  std::shared_ptr<Remembered> remembered = {};
  // Shards of heads before have smaller numbers; of those only the `inherited` are known.
  int64_t first_shard = 1;
  std::set<int64_t> inherited = {};
  std::set<int64_t> drained = {};  // Nodes.
};

class ClusterRanks final : public Ranks {
 public:
  // Every node has joined, but for those that are not there.
  ClusterRanks(ClusterOptions options, std::unique_ptr<Nodes> nodes);
  ~ClusterRanks() override;

  int64_t size() const override { return num_ranks_; }
  const base::Clock& clock() const override { return nodes_->clock(); }
  Status Start() override;
  bool healthy() const override { return healthy_; }
  const Status& failure() const override { return failure_; }
  int64_t generation() const override { return generation_; }
  Status Call(std::vector<std::vector<RankMessage>> messages, TimeLimit timeout, std::string_view what,
              Waits waits) override;
  const std::vector<::hostir::v1::Measured>& measured() const override { return measured_; }
  [[nodiscard]] bool Post(const ::hostir::v1::Execute& execute) override;
  Status Await(TimeLimit timeout, std::string_view what, Waits waits) override;
  base::BusyWait& busy_wait() override { return busy_wait_; }
  bool TakePosted() override { return false; }  // Nobody looks for what takes a network's time.
  void Look() override {}
  void StopLooking() override {}
  void Pause() override;
  bool Watch(int wake_fd, base::Nanos timeout, std::unique_lock<std::mutex>& lock) override;
  void OnLate(Late late) override { late_ = std::move(late); }
  void OnWait(Waiting look) override { look_ = std::move(look); }
  void Nudge() override;
  void Interrupt(const Status& cause) override;
  Status WhyAbsent(int64_t rank) const override;
  void Renew() override;
  Status SetDrained(int64_t node, bool drained) override;
  bool Keeps(int64_t rank) const override;
  bool KeepsShard(int64_t rank, int64_t shard) const override;
  void Ask(std::vector<Ticket> tickets, Granted granted) override;
  Snapshot snapshot() const override;
  void OnHealth(std::function<void(bool healthy)> heard) override;

 private:
  enum class Phase { kStarting, kResting, kCalling };
  // Bytes of a shard that are still to be sent.
  struct Bulk {
    int64_t shard = 0;
    int64_t bytes = 0;
    base::Fd from;
    int64_t offset = 0;
  };
  struct Node {
    int64_t first_rank = 0;
    int64_t num_ranks = 0;
    bool is_there = true;  // It has joined, since its link was last lost.
    std::string incarnation = {};
    bool keeps = true;  // What was bound there in the generation before: all of it, or, where it has joined since,
    std::optional<std::set<int64_t>> holds = {};  // these.
    bool knows_all = false;                       // Of what is remembered, until the last news.
    std::vector<int64_t> unknown = {};            // Shards that it keeps, and nobody knows.
    bool is_drained = false;
    int64_t newest = 0;      // The largest number of a shard when it last had a part: it has none of later ones.
    bool takes_part = true;  // In this generation, or the latest.
    std::vector<int64_t> released = {};               // While it had no part,
    std::vector<int64_t> told = {};                   // and what it was told of them: it may not have heard.
    bool has_ranks = false;                           // Of this generation.
    std::optional<::hostir::v1::NodeLink> link = {};  // As measured last.
    bool owes = false;                                // A start or an answer.
    std::string where = {};                           // Of a late one.
    std::vector<int64_t> pids = {};
    std::vector<Snapshot::Usage> usage = {};
    BulkWindow window = {};
    std::vector<Bulk> bulk = {};                     // Waits for room, the last first; and behind it
    std::optional<::hostir::v1::ToNode> order = {};  // the order that binds it.
    void DropBulk() {
      bulk.clear();
      order.reset();
    }
  };
  size_t NodeOf(int64_t rank) const;
  void Joined(Node& node, const ::hostir::v1::Joined& joined);
  void Hold(Node& node, std::span<const int64_t> shards);
  // Tells nodes what there is to remember, before an order.
  void Remind();
  void TellNews();
  Status WhyAway(int64_t node) const;
  // Says what there is to say of tickets.
  void CarryGrants();
  // OK, or why the next generation would have other nodes.
  Status OthersTakePart();
  // Notes the shards that `messages` release, for a node that has no part.
  void ReleaseAt(int64_t node, std::span<const std::vector<RankMessage>> messages);
  // Waits until no node owes anything; while bytes move that may take longer. Errors: why the generation is over.
  Status AwaitAll(TimeLimit limit, std::string_view what, Waits waits);
  // All events that there are. Errors: why the generation is over.
  Status HandleEvents(std::string_view what);
  Status Handle(NodeEvent& event, std::string_view what);
  Status Lose(const NodeEvent& event, std::string_view what);
  Status HandleAnswer(Node& node, ::hostir::v1::Answer& answer);
  Status Wanted(int64_t node, const std::string& key);
  Status Published(const std::string& key, const std::string& value);
  // `links` are of the nodes that take part, in order.
  void Measured(const google::protobuf::RepeatedPtrField<::hostir::v1::NodeLink>& links);
  void Provide(int64_t node, const std::string& key, const std::string& value);
  void WriteFetched(int64_t node, const ::hostir::v1::ShardBytes& bytes);
  // Errors: kDataLoss: bytes that were wanted did not come, though every node said that all went well.
  Status CheckFetched() const;
  // Sends what there is room for of the bytes that wait, and behind the last of them the order.
  Status Pump(int64_t node);
  // The best reason of all that come within a moment: the first that is heard may be a consequence.
  Status Cause(Status first, std::string_view what);
  Status Break(Status cause);
  Status interrupt() const;
  std::string Where() const;
  std::string_view Next() const { return phase_ == Phase::kStarting ? "" : "; the mesh is being restarted"; }
  void Publish();
  void PublishLinks();  // REQUIRES: the lock is held.
  void PublishUsage();

  const ClusterOptions options_;
  const std::unique_ptr<Nodes> nodes_;
  const std::shared_ptr<Grants> grants_;
  std::deque<Node> of_node_;
  int64_t num_ranks_ = 0;
  base::BusyWait busy_wait_{base::BusyWait::Mode::kOff};
  Phase phase_ = Phase::kResting;
  bool healthy_ = false;
  Status failure_;
  int64_t generation_ = 0;
  int64_t seq_ = 0;
  int64_t newest_ = 0;  // Of the shards that were bound.
  base::Nanos began_ = {};
  int64_t bulk_bytes_ = 0;  // Of the call: shards', to nodes and from them.
  bool together_ = false;   // Its orders go when no bytes wait any more.
  Status first_error_;      // Of the call.
  base::Nanos failed_at_ = {};
  RendezvousTable keys_;
  std::vector<::hostir::v1::Measured> measured_;
  base::Nanos moved_ = {};  // When bytes of a shard came, or were taken, in the call.
  struct Fetched {
    int64_t node = 0;
    base::Fd into;
    int64_t bytes = 0;
    int64_t there = 0;  // The first of them: they come in order.
  };
  std::map<int64_t, Fetched> fetched_;  // By shard, in the call.
  Late late_;
  Waiting look_;

  std::atomic<bool> nudged_ = false;
  mutable std::mutex mutex_;
  Snapshot snapshot_;  // Guarded by mutex_: the ones below too.
  Status interrupt_ = {};
  std::vector<bool> drained_;  // By node, as somebody asked.
  std::function<void(bool)> on_health_;
};

}  // namespace hir::service
