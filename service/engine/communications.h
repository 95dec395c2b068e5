// Communications: what the runs of a plan communicate, for the metrics.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "hostir/v1/worker.pb.h"
#include "service/engine/program.h"
#include "service/metrics/metrics.h"

namespace hir::service {

// The communications of one run: bytes by type, of all ranks, and what counts them.
struct CommunicatedBytes {
  Metrics::Communication* type = nullptr;
  int64_t bytes = 0;
};
using Communications = std::vector<CommunicatedBytes>;
// A run has.
void Count(const Communications& communications);

// Looks in a plan what its runs communicate; once, since that takes time. Thread-safe.
class CommunicationBytes {
 public:
  explicit CommunicationBytes(Metrics& metrics) : metrics_(metrics) {}  // Which outlives it.
  // Null: nothing. The plans asked for first are forgotten beyond kKept.
  std::shared_ptr<const Communications> Of(const Program& program, const Sizes& sizes);

 private:
  static constexpr size_t kKept = 1024;
  using Key = std::pair<int64_t, Sizes>;

  Metrics& metrics_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Communications>> known_;  // Guarded by mutex_, as the next.
  std::deque<Key> order_;
};

// Counts how long each communication of a run took on each rank, which `measured`.
void CountTimes(const Program& program, std::span<const ::hostir::v1::Measured> measured, Metrics& metrics);

}  // namespace hir::service
