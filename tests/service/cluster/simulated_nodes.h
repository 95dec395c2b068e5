// SimulatedNodes: the nodes of a cluster and the network to them, on a virtual clock. A node starts ranks, carries
// orders out and answers, with the bytes of shards that are fetched (zeros); it can die, be cut off for a while, stop
// answering, or have a rank that dies: when, a seed says.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/base/prng.h"
#include "service/cluster/bulk_window.h"
#include "service/cluster/nodes.h"

namespace hir::testing {

struct NetworkModel {
  base::Nanos latency = std::chrono::microseconds(50);      // One way.
  base::Nanos per_message = std::chrono::nanoseconds(500);  // That the head is busy with one.
  base::Nanos run = std::chrono::microseconds(200);         // Of an order on a node.
  int64_t bytes_per_s = 1'250'000'000;                      // Of a link, in each direction.
  // Of 1,000 messages to nodes, how many meet a fault.
  int64_t faults = 0;
  // As its ranks measure them: a message of node k takes 100 us and k more.
  double LinkUs(int64_t node) const { return 100 + static_cast<double>(node); }
  double link_bytes_per_us = 117;
};

class SimulatedNodes final : public service::Nodes, public base::Clock {
 public:
  SimulatedNodes(int64_t size, int64_t ranks_of_each, NetworkModel model, uint64_t seed);

  int64_t size() const override { return static_cast<int64_t>(nodes_.size()); }
  std::string NameOf(int64_t node) const override;
  const base::Clock& clock() const override { return *this; }
  base::Nanos Now() const override { return now_; }
  void Send(int64_t node, ::hostir::v1::ToNode message) override;
  std::optional<service::NodeEvent> Take() override;
  void Wait(int wake_fd, base::Nanos deadline) override;
  void Interrupt() override { interrupted_ = true; }

  std::string IncarnationOf(int64_t node) const;
  void SetLink(double bytes_per_us) { model_.link_bytes_per_us = bytes_per_us; }  // Of all nodes.
  // Grants that the node has made, and that were not revoked.
  int64_t num_grants(int64_t node) const { return std::ssize(nodes_[static_cast<size_t>(node)].grants); }
  void RefuseGrants(int64_t node, Status why) { nodes_[static_cast<size_t>(node)].refuses = std::move(why); }
  bool is_up(int64_t node) const { return nodes_[static_cast<size_t>(node)].is_up; }

  // Seen by the nodes; what is wrong with what they saw, or "".
  std::string wrong() const { return wrong_; }
  base::Nanos last_arrival() const { return last_arrival_; }  // Of an order, at its node.
  // Between orders of the latest call: from the first node's to the last's.
  base::Nanos arrival_skew() const { return last_arrival_ - first_arrival_; }
  int64_t num_orders() const { return num_orders_; }
  int64_t num_parts() const { return num_parts_; }  // Of all orders.
  int64_t num_faults() const { return num_faults_; }
  int64_t most_on_the_way() const { return most_on_the_way_; }  // Bytes of shards to one node, or from it.
  // From now on the node takes no bytes, and says so of none.
  void TakeNoBytes(int64_t node) { nodes_[static_cast<size_t>(node)].takes_bytes = false; }
  // The next Remember that is on its way to the node, and its link, are lost.
  void LoseAtRemember(int64_t node) { nodes_[static_cast<size_t>(node)].loses_remember = true; }
  void CutOff(int64_t node) { Lose(node, "it is cut off", false); }
  // Its link is lost, and up again before anybody takes an event of either.
  void CutOffForAMoment(int64_t node);
  const std::set<int64_t>& dropped(int64_t node) const { return nodes_[static_cast<size_t>(node)].dropped; }
  // The message that comes next from a node, whoever made it up.
  void Inject(int64_t node, ::hostir::v1::FromNode message) { Say(node, std::move(message)); }

 private:
  struct Node {
    bool is_up = true;  // Its link.
    int64_t incarnation = 1;
    int64_t link = 1;        // Its number: what was on its way on one before is lost.
    int64_t generation = 0;  // Of its ranks; 0: none.
    int64_t ended = 0;       // The latest that was ended.
    int64_t seq = 0;         // Of the latest order.
    bool is_deaf = false;    // Its ranks never answer, in this generation.
    std::set<int64_t> grants = {};
    Status refuses = {};
    bool takes_bytes = true;
    bool loses_remember = false;
    std::set<int64_t> dropped;  // As it was told.
    struct Link {
      base::Nanos down = {}, up = {};                // When what was sent, and said, will have left.
      int64_t bytes_down = 0;                        // On the way.
      std::map<int64_t, int64_t> arrived;            // By shard.
      service::BulkWindow window;                    // Of what it says.
      std::queue<std::pair<int64_t, int64_t>> said;  // Shards that are to be said, and their bytes; and behind them
      int64_t offset = 0;                            // (of the first)
      int64_t answer = 0;                            // the answer of this order.
    } its_link = {};
  };
  enum class Fault { kNone, kNodeDies, kCutOff, kRankDies, kRankStops };
  Fault Draw();
  // Runs at `time`, on the link that there is now.
  void At(base::Nanos time, int64_t node, std::function<void()> what);
  void Say(int64_t node, ::hostir::v1::FromNode message);
  void Lose(int64_t node, const std::string& why, bool dies);
  void Arrive(int64_t node, ::hostir::v1::ToNode& message);
  void ArriveBytes(int64_t node, const ::hostir::v1::ShardBytes& bytes);
  void SayBytes(int64_t node);
  // When what leaves now, behind all of before, is there.
  base::Nanos Arrival(base::Nanos& leaves, int64_t bytes) const;
  void ArriveOrder(int64_t node, const ::hostir::v1::Order& order);
  void Wrong(std::string what);

  struct Coming {
    base::Nanos time;
    int64_t number;
    std::function<void()> what;
    bool operator>(const Coming& other) const { return std::tie(time, number) > std::tie(other.time, other.number); }
  };

  NetworkModel model_;
  const int64_t ranks_of_each_;
  base::Prng prng_;
  std::vector<Node> nodes_;
  std::priority_queue<Coming, std::vector<Coming>, std::greater<>> coming_;
  std::queue<service::NodeEvent> events_;
  base::Nanos now_ = std::chrono::hours(1);
  int64_t number_ = 0;
  bool interrupted_ = false;
  std::string wrong_;
  base::Nanos first_arrival_ = {}, last_arrival_ = {};
  int64_t arriving_ = -1;  // The number of that call.
  int64_t num_orders_ = 0;
  int64_t num_parts_ = 0;
  int64_t num_faults_ = 0;
  int64_t most_on_the_way_ = 0;
};

}  // namespace hir::testing
