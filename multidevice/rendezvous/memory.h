// The rendezvous of ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "multidevice/rendezvous/rendezvous.h"

namespace hir::comm {

// Shared by all ranks. Thread-safe.
class MemoryRendezvous final : public Rendezvous {
 public:
  Status Publish(std::string_view key, std::string_view bytes) override;
  Result<std::string> Get(std::string_view key, base::Nanos timeout) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;  // Guarded by mutex_.
};

}  // namespace hir::comm
