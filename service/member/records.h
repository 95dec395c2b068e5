// Records: what a head keeps of sessions, handles and names for the next one, in etcd and with the nodes, and what the
// next one makes of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hostir/v1/cluster.pb.h"
#include "hostir/v1/node.pb.h"
#include "service/cluster/remembered.h"
#include "service/etcd/kv.h"
#include "service/store/journal.h"

namespace hir::service {

// Sessions with a lease, and names, go to etcd by `keep`; the handles of those sessions to `remembered`.
class Records final : public Journal {
 public:
  using Keep = std::function<void(const std::string& key, std::optional<std::string> value)>;
  using WhenWritten = std::function<void(std::function<void(const Status&)> done)>;
  // `when_written`: as WhenKept, of what `keep` was given.
  Records(Keep keep, WhenWritten when_written, std::shared_ptr<Remembered> remembered)
      : keep_(std::move(keep)), when_written_(std::move(when_written)), remembered_(std::move(remembered)) {}
  // They are kept already, by a head before.
  void Inherit(const Inheritance& inheritance);

  void Opened(const std::string& session, const std::string& principal, int64_t lease_ms) override;
  void Closed(const std::string& session) override;
  void Added(const std::string& session, const std::string& handle, const Tensor& tensor) override;
  void Freed(const std::string& handle) override;
  void Named(const std::string& owner, const std::string& name, bool everyone, const Tensor* tensor,
             const std::string* program) override;
  void Withdrawn(const std::string& owner, const std::string& name) override;
  void Drained(int64_t node, bool drained) override;
  void WhenKept(std::function<void(const Status&)> done) override { when_written_(std::move(done)); }

 private:
  void Remember(const std::string& session, const std::string& handle, const TensorSpec& spec,
                const std::vector<ShardSet::Shard>& shards);

  const Keep keep_;
  const WhenWritten when_written_;
  const std::shared_ptr<Remembered> remembered_;
  std::set<std::string> sessions_;  // Those that are kept.
};

// The nodes that were to have no part.
std::set<int64_t> DrainedOf(const std::vector<Kv::Entry>& kept);

// The inheritance that heads before left: `kept`, keys and values of etcd; `directory`, as the node was told that heard
// most. A shard is there when `why_lost` has no reason against it.
using WhyLost = std::function<Status(int64_t device, int64_t shard)>;
Inheritance InheritanceOf(const std::vector<Kv::Entry>& kept, const ::hostir::v1::Directory& directory,
                          int64_t num_devices, const WhyLost& why_lost);

}  // namespace hir::service
