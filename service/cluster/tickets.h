// Tickets: the node's side of them: who may write or read which shards here, past the head.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "hostir/v1/node.pb.h"
#include "service/cluster/kept_shards.h"

namespace hir::service {

// Thread-safe.
class Tickets {
 public:
  static constexpr size_t kTicketsMax = 65536;

  // The use of one ticket. Memory lasts as long as this: what is written to shards that are gone is for nobody.
  struct Use {
    std::shared_ptr<KeptShards> kept;
    std::vector<int64_t> shards;
    std::vector<KeptShards::Memory> memory;  // Of each.
    int64_t bytes = 0;
    std::string receipt;
    int64_t grant = 0;
    int64_t number = 0;                   // Unique here.
    std::shared_ptr<const bool> is_over;  // Of the grant. Guarded by the tickets' lock.
  };

  // All or none; the memory of shards that are to be written is there then.
  // Errors: kResourceExhausted: the node is full; kInternal: what a head does not say.
  Status Add(const ::hostir::v1::Grant& grant, const std::shared_ptr<KeptShards>& kept);
  // The ticket is used up. `stop` is called when it is revoked before End, under a lock that End takes: it must not
  // block. Errors: kNotFound.
  Result<Use> Begin(std::string_view secret, bool writes, std::function<void()> stop);
  void End(const Use& use);
  // All bytes are written: the receipt. Errors: kAborted: it was revoked.
  Result<std::string> Written(const Use& use);
  void Revoke(int64_t number);
  void Clear();

 private:
  struct Entry {
    bool writes = false;
    Use use;
  };
  struct Granted {
    std::vector<std::string> secrets;
    std::map<int64_t, std::function<void()>> stops;  // By number, of those under way.
    std::shared_ptr<bool> is_over = std::make_shared<bool>(false);
  };
  static void End(Granted& granted);

  std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> tickets_;  // By secret. Guarded by mutex_, as the next.
  std::map<int64_t, Granted> grants_;
  int64_t last_use_ = 0;
};

}  // namespace hir::service
