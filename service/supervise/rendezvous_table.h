// RendezvousTable: the keys that the ranks of a generation publish, and who waits for which.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace hir::service {

// So that one that asks, or publishes, without end does not fill the memory of who keeps this, there is a limit on the
// bytes of all. Threads: one.
class RendezvousTable {
 public:
  // Who asked for `key` before, in their order. A key that is there already keeps its value.
  // Errors: kResourceExhausted.
  Result<std::vector<int64_t>> Publish(const std::string& key, std::string value);
  // The value; null: `who` is among those whom Publish tells. Errors: kResourceExhausted.
  Result<const std::string*> Get(int64_t who, const std::string& key);
  // Whether anybody waits for `key`.
  bool IsWanted(const std::string& key) const { return waiting_.contains(key); }
  bool Has(const std::string& key) const { return values_.contains(key); }

 private:
  Status Charge(size_t bytes);

  std::map<std::string, std::string> values_;
  std::map<std::string, std::set<int64_t>> waiting_;  // Nothing empty.
  int64_t bytes_ = 0;
};

}  // namespace hir::service
