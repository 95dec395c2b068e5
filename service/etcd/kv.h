// Kv: the seam between membership and what keeps it: keys that outlive whoever wrote them, and keys under a lease. etcd
// (grpc_kv.h), or, in tests, a simulated one on a clock of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

namespace hir::service {

// Each call is one request, which sees all that were answered before. Errors of all: kUnavailable, kDeadlineExceeded:
// nobody knows whether it was carried out. Threads: one.
class Kv {
 public:
  virtual ~Kv() = default;

  struct Entry {
    std::string key;
    std::string value;
    int64_t lease = 0;  // 0: it has none.
  };
  // Those whose key begins with `prefix`, by key.
  virtual Result<std::vector<Entry>> List(std::string_view prefix) = 0;

  // All of `puts` and `erased`, if everything in `when` holds; else nothing.
  struct Condition {
    std::string key;
    std::optional<std::string> value = {};  // It is this; without the two: there is no such key.
    std::optional<int64_t> lease = {};      // Its lease is.
  };
  struct Transaction {
    std::vector<Condition> when = {};
    std::vector<Entry> puts = {};
    std::vector<std::string> erased = {};
  };
  // Whether it held. Errors: kNotFound: a lease is over; nothing was done.
  virtual Result<bool> Commit(const Transaction& transaction) = 0;

  // A new lease. Whoever has it keeps it alive, or its keys go.
  virtual Result<int64_t> Grant(base::Nanos time) = 0;
  // False: it is over.
  virtual Result<bool> KeepAlive(int64_t lease) = 0;
  virtual Status Revoke(int64_t lease) = 0;
};

}  // namespace hir::service
