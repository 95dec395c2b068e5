// Journal: what a later daemon has to know of sessions, handles and names to go on with them; and what one that goes on
// was told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "service/store/spec.h"
#include "service/store/tensor.h"

namespace hir::service {

// Called under the store's lock, but for the last two, in the order of what happens: nothing here may block, or call
// the store.
class Journal {
 public:
  virtual ~Journal() = default;

  virtual void Opened(const std::string& session, const std::string& principal, int64_t lease_ms) = 0;
  virtual void Closed(const std::string& session) = 0;  // Its handles are freed.
  virtual void Added(const std::string& session, const std::string& handle, const Tensor& tensor) = 0;
  virtual void Freed(const std::string& handle) = 0;
  // A tensor, or, null, a program's text.
  virtual void Named(const std::string& owner, const std::string& name, bool everyone, const Tensor* tensor,
                     const std::string* program) = 0;
  virtual void Withdrawn(const std::string& owner, const std::string& name) = 0;
  // A node of the cluster. On any thread.
  virtual void Drained(int64_t node, bool drained) = 0;

  // Calls `done` when a later daemon would find what was told before: on any thread, without any lock held; where it
  // cannot be kept for long, as well. Errors: kUnavailable: a later daemon is there, and does not find it.
  virtual void WhenKept(std::function<void(const Status&)> done) = 0;
};

// All that there was of a daemon before.
struct Inheritance {
  struct Session {
    std::string id;
    std::string principal;
    int64_t lease_ms = 0;
  };
  // The same tensor where the first shard is the same.
  struct Tensor {
    TensorSpec spec = {};
    std::vector<ShardSet::Shard> shards = {};
    Status lost = {};  // Why it is; OK: its shards are there.
  };
  struct Handle {
    std::string session;
    std::string handle;
    Tensor tensor;
  };
  struct Name {
    std::string owner;
    std::string name;
    bool everyone = false;
    Tensor tensor = {};        // Without shards:
    std::string program = {};  // its text.
  };
  std::vector<Session> sessions = {};
  std::vector<Handle> handles = {};
  std::vector<Name> names = {};
  int64_t first_shard = 1;  // Those below are, or were, of daemons before.
};

}  // namespace hir::service
