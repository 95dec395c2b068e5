// Grants: the head's side of tickets: what it has asked nodes to grant to clients, and what became of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "hostir/v1/node.pb.h"
#include "service/supervise/ranks.h"

namespace hir::service {

// Ask is of any thread, and so is the end of what it gives; the rest is of the one that talks to nodes. `granted` is
// called without the lock, on either.
class Grants : public std::enable_shared_from_this<Grants> {
 public:
  // `wake` has that thread call Carry soon; it must not block.
  explicit Grants(std::function<void()> wake) : wake_(std::move(wake)) {}

  // By node.
  using Tickets = std::map<int64_t, ::hostir::v1::Grant>;
  void Ask(Tickets tickets, Ranks::Granted granted);

  // Whether some have ended, which Carry will say.
  bool has_revoked() const;
  // Says what there is to say. `why_not`: of a node that has no part.
  void Carry(const std::function<Status(int64_t node)>& why_not,
             const std::function<void(int64_t node, ::hostir::v1::ToNode message)>& send);
  void Hear(int64_t node, const ::hostir::v1::Granted& said);
  // The node has gone, and with it what it granted.
  void Lose(int64_t node, const Status& why);
  // Nobody carries any more.
  void End(const Status& why);

 private:
  class Held;
  struct One {
    Tickets tickets = {};          // Until they are said.
    std::set<int64_t> nodes = {};  // That were told.
    std::set<int64_t> unanswered = {};
    Ranks::Granted granted = {};  // Until it is called.
    Status failure = {};
  };
  void Revoke(int64_t number);
  Status FailureOf(int64_t number) const;
  // Calls what of `number` is to be called, with its failure or a grant. The lock is released.
  void Answer(std::unique_lock<std::mutex> lock, int64_t number);

  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::map<int64_t, One> grants_;  // Guarded by mutex_, as all below.
  std::vector<int64_t> asked_;
  std::vector<std::pair<int64_t, int64_t>> revoked_;  // Node, number.
  int64_t last_ = 0;
  Status over_;
};

}  // namespace hir::service
