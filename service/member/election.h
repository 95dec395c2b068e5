// Election: one node's part in choosing the head of a cluster whose membership is kept in etcd, and what the head keeps
// there. No threads and no time of its own: it looks when it is told to.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "hostir/v1/cluster.pb.h"
#include "service/etcd/kv.h"

namespace hir::service {

struct ElectionOptions {
  std::string cluster = {};  // Its name.
  int64_t size = 1;          // Nodes that it has.
  std::string listen = {};   // Where this node serves clients when it heads.
  ::hostir::v1::NodeRecord self = {};
  base::Nanos lease = std::chrono::seconds(5);  // Who is not heard of for so long is no head.
};

// Threads: one.
class Election {
 public:
  Election(ElectionOptions options, Kv& kv, const base::Clock& clock);

  // Registers, keeps the lease alive, and sees who heads; where nobody does and `stands`, it tries to. Who heads and
  // finds that nobody else was elected meanwhile stays the head, whatever became of its lease: etcd may have been away.
  // Errors: those of Kv: nothing is known to have changed; kFailedPrecondition: the cluster has another size, or all of
  // its nodes.
  Status Look(bool stands);
  // Gives up its lease, so that others need not wait for its end.
  void Leave();

  // Written with the next Look, while it heads; nothing: erased.
  void Keep(const std::string& key, std::optional<std::string> value) { unwritten_[key] = std::move(value); }
  // Whether it heads, and etcd has all that was to be kept.
  bool has_written() const { return view_.heads && unwritten_.empty(); }

  struct View {
    std::string cluster_id = {};
    int64_t own = -1;  // Its number; below 0: it has none yet.
    int64_t term = 0;  // The latest that it has heard of.
    bool heads = false;
    std::optional<::hostir::v1::HeadRecord> head = {};
    // While it heads, and once all nodes have registered: each node's record. Else empty.
    std::vector<::hostir::v1::NodeRecord> nodes = {};
    // While it heads: how many have.
    int64_t num_registered = 0;
    // State that heads before kept, as it was when this one was elected.
    std::vector<Kv::Entry> kept = {};
  };
  const View& view() const { return view_; }
  // Whether it headed, and another one was elected.
  bool was_deposed() const { return was_deposed_; }
  // Somebody who heard of a later head says so.
  void Depose();
  // After the end of its headship: it may stand again.
  void Yielded() { was_deposed_ = false; }

 private:
  std::string Key(std::string_view name) const;
  // One step that needs no other; false: nothing is left to do.
  Result<bool> Step(bool stands);
  Result<bool> Register();
  Result<bool> LookForHead(bool stands);
  // Its headship.
  Status Begin(const ::hostir::v1::HeadRecord& head);
  Status Write();
  Status ListNodes();

  const ElectionOptions options_;
  Kv& kv_;
  const base::Clock& clock_;
  int64_t lease_ = 0;  // 0: none.
  base::Nanos kept_alive_ = {};
  bool is_live_ = false;  // Its key under the lease is there.
  bool was_deposed_ = false;
  int64_t own_term_ = 0;  // That it heads in; 0: it does not.
  std::map<std::string, std::optional<std::string>> unwritten_;
  View view_;
};

}  // namespace hir::service
