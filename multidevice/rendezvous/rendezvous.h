// Rendezvous: how ranks that cannot talk yet find each other: a small key-value store that all of
// them reach.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"

namespace hir::comm {

// One per rank, all on the same store. Keys carry the generation of the ranks, so that nothing of
// an older one is ever read. Values are at most kRendezvousBytesMax. Thread-safe.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Stores `bytes` for every rank to get. kAlreadyExists when `key` holds other bytes; the same
  // bytes are fine.
  virtual Status Publish(std::string_view key, std::string_view bytes) = 0;
  // Blocks until `key` is published. kDeadlineExceeded, naming the key, after `timeout`.
  virtual Result<std::string> Get(std::string_view key, base::Nanos timeout) = 0;
};

inline constexpr size_t kRendezvousBytesMax = 64 * 1024;

}  // namespace hir::comm
