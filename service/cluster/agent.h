// Agent: one node's part of a cluster. It keeps the node's shards, and has its ranks carry out what the head of the
// cluster orders, in that order.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/status.h"
#include "hostir/v1/node.pb.h"
#include "service/cluster/bulk_window.h"
#include "service/cluster/kept_shards.h"
#include "service/cluster/term_fence.h"
#include "service/cluster/tickets.h"
#include "service/os/wakeup.h"
#include "service/supervise/fleet.h"

namespace hir::service {

struct AgentOptions {
  FleetOptions fleet = {};         // But for `abroad` and its times, which the head says.
  bool on_devices = false;         // The ranks have the memory of shards, which goes with them.
  int64_t shard_bytes_max = 0;     // That the node keeps, or holds for devices.
  ::hostir::v1::Joined node = {};  // As the head hears of it.
};

// Threads: any. The ranks are started by one of its own, as processes end with the thread that started them.
class Agent {
 public:
  explicit Agent(AgentOptions options);
  // Ends the ranks.
  ~Agent();

  // Called with what the node says, in order, on any thread; it may block until the head has read.
  using Say = std::function<void(::hostir::v1::FromNode)>;
  // A head that joins is told by `say` from now on; the one before no longer, and `over` is called, with why, when this
  // one is that. The number that Take and Leave want.
  // Errors: kFailedPrecondition: another version; kAborted: its term is over, or another's.
  using Over = std::function<void(const Status& why)>;
  Result<int64_t> Join(const ::hostir::v1::Join& join, Say say, Over over);
  // Somebody has been elected for `term`: the heads of earlier ones are over.
  void Fence(int64_t term);
  bool hears_head() const;
  // Hears head `number`, unless a later one has joined.
  void Take(int64_t number, ::hostir::v1::ToNode message);
  // It has gone: its ranks end, and what the node keeps stays for it, or the next head of the same name.
  void Leave(int64_t number);

  int64_t kept_bytes() const;
  // The shards that clients may write and read here, by this head's word.
  Tickets& tickets() { return tickets_; }

 private:
  void Loop();
  // Does what cannot wait for an order's end. Errors: why the ranks are to end.
  Status CarryUrgent();
  void Carry(::hostir::v1::ToNode& message);
  void StartRanks(const ::hostir::v1::StartRanks& start);
  void EndRanks();
  void CarryOrder(const ::hostir::v1::Order& order);
  // Errors: what is wrong with the order, or no room for its shards.
  Status Prepare(const ::hostir::v1::Order& order);
  // Memory for the shards of `message`, for the ranks; what of it is only on its way goes with `passing`.
  Status Bind(const ::hostir::v1::ToWorker& message, RankMessage& into);
  Status Fetch(const ::hostir::v1::ToWorker& message, RankMessage& into);
  Status Run(const ::hostir::v1::Order& order);
  // Says what the ranks use, when a second has passed since it was said last.
  void SayUsage();
  // The bytes of what was fetched, as the head takes them. Errors: kUnavailable: it wants them no longer.
  Status SayFetched(const ::hostir::v1::Order& order);
  void Tell(::hostir::v1::FromNode message);
  void Remember(::hostir::v1::Remember& remember);
  ::hostir::v1::FromNode AddTickets(const ::hostir::v1::Grant& grant);
  // The head is heard no longer; what is to be called when the lock is released. REQUIRES: mutex_ is held.
  [[nodiscard]] Over EndHead();
  // The shards of this node that a run writes.
  std::vector<int64_t> Written(const ::hostir::v1::Order& order) const;

  const AgentOptions options_;
  std::unique_ptr<Fleet> fleet_;  // The thread's own; written under mutex_.

  // The order under way has these; they are the thread's own.
  std::shared_ptr<KeptShards> shards_;
  std::vector<std::vector<RankMessage>> messages_;
  const ::hostir::v1::Execute* posted_ = nullptr;  // All that there is, for all ranks.
  std::vector<KeptShards::Memory> passing_;
  std::vector<std::pair<int64_t, KeptShards::Memory>> fetched_;
  std::vector<int64_t> released_, arrived_;
  std::vector<int64_t> bound_outputs_;  // Of a run of which PHASE_BIND alone was carried out.
  int64_t first_rank_ = 0;              // Of the ranks here.
  int64_t served_ = 0;                  // The head whose order was the latest: no other hears of what came of it.
  base::Nanos said_usage_ = {};

  Tickets tickets_;  // Of the head that is heard.
  mutable std::mutex mutex_;
  std::deque<::hostir::v1::ToNode> urgent_, orders_;  // Guarded by mutex_: all below.
  std::shared_ptr<const Say> say_;
  int64_t ended_ = 0;  // The latest generation that it ended: it may have done so before the start's turn came.
  TermFence fence_;
  BulkWindow window_;  // Of what the head is sent.
  Over over_;
  std::string knows_;
  std::shared_ptr<KeptShards> kept_;                             // Of those who know, as the next.
  std::map<std::string, ::hostir::v1::TensorRecord> directory_;  // By handle.
  int64_t directory_term_ = 0;
  int64_t directory_count_ = 0;
  bool stopping_ = false;
  std::condition_variable room_;  // In the window, or for nothing any more.
  Wakeup wakeup_;
  std::thread thread_;
};

}  // namespace hir::service
