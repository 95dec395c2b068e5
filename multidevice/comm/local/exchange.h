// Exchange: where the communications of all ranks of a World meet.
//
// Every communication is a set of edges: "rank a's bytes for rank b". When both ends of an edge
// have entered, a message is ready; when all edges of a rank's communication are delivered, that
// rank computes its result and leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/device/stream.h"
#include "multidevice/comm/communicator.h"
#include "multidevice/comm/local/scheduler.h"
#include "multidevice/comm/local/world.h"
#include "multidevice/comm/numbering.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

class Exchange;

// One rank's part of one communication.
struct LocalOp {
  CommDesc desc = {};
  const TeamInfo* team = nullptr;
  MatchNumbers numbers = {};
  int64_t pending = 0;                               // Edges not delivered.
  std::vector<std::vector<std::byte>> arrived = {};  // By index in the team.
  bool left = false;
};

// What one post, or the posts of a group on one stream, enqueue. Owned by its rank's communicator.
class LocalPost final : public device::AsyncOp {
 public:
  LocalPost(Exchange& exchange, int64_t rank) : exchange_(exchange), rank_(rank) {}

  void Start(device::Completion completion) override;
  void Skip(const Status& cause) override;

  std::vector<LocalOp> ops;  // Complete before it is enqueued.
  int64_t rank() const { return rank_; }
  bool over() const { return over_; }

 private:
  friend class Exchange;
  Exchange& exchange_;
  const int64_t rank_;
  device::Completion completion_;
  bool over_ = false;  // Guarded by the exchange.
};

// Thread-safe.
class Exchange {
 public:
  Exchange(const WorldOptions& options, Scheduler& scheduler);

  void Enter(LocalPost& post, device::Completion completion);
  void Skip(LocalPost& post, const Status& cause);
  // `rank` fails with `cause`, unless it failed before; its pending communications end.
  void Poison(int64_t rank, const Status& cause);
  Status Failure(int64_t rank) const;
  CommProgress Progress(int64_t rank) const;
  bool IsOver(const LocalPost& post) const;

 private:
  struct End {
    LocalPost* post = nullptr;
    LocalOp* op = nullptr;
  };
  struct Edge {
    int64_t from = 0;
    int64_t to = 0;
    End sender;
    End receiver;
  };
  struct Rank {
    Status failure;
    std::vector<LocalPost*> entered;
    CommProgress progress;
  };

  void EnterOp(LocalPost& post, LocalOp& op);
  void AddEdge(LocalPost& post, LocalOp& op, int64_t from, int64_t to);
  void Send(const std::string& key, const Edge& edge);
  void Deliver(const std::string& key);
  void LeaveIfDone(LocalPost& post, LocalOp& op);
  void EndPost(LocalPost& post, const Status& status);
  void SetDeadline(const LocalPost& post, const LocalOp& op);
  Status DeadlineError(const std::string& prefix, const std::string& name) const;
  bool Dies(int64_t rank, int64_t seq);
  void PoisonLocked(int64_t rank, const Status& cause);
  void PoisonAll(const Status& cause);
  Rank& At(int64_t rank) { return ranks_[static_cast<size_t>(rank)]; }

  const WorldOptions& options_;
  Scheduler& scheduler_;
  mutable std::mutex mutex_;
  std::vector<Rank> ranks_;            // Guarded by mutex_, as is edges_.
  std::map<std::string, Edge> edges_;  // By team, number and direction: ordered, so that a run is the same again.
};

}  // namespace hir::comm
