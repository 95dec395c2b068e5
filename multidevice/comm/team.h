// The teams of one communicator: who is in them, and this rank's place.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "multidevice/comm/communicator.h"

namespace hir::comm {

struct TeamInfo {
  std::vector<int64_t> ranks;  // Ranks of the communicator, in team order.
  int64_t lane = 0;
  int64_t index = 0;  // Of this rank in `ranks`.

  int64_t size() const { return static_cast<int64_t>(ranks.size()); }
  // The place of `rank` in the team, or nothing.
  std::optional<int64_t> IndexOf(int64_t rank) const;
  std::string ToString() const;  // "[0, 2]"
};

// Grows only; a TeamId is a place in it. One thread at a time; what Get returned stays where it is.
class TeamTable {
 public:
  TeamTable(int64_t rank, int64_t size) : rank_(rank), size_(size) {}

  // The team already made of `ranks` and `lane`, or nothing. Errors: as Communicator::Team for its
  // arguments.
  Result<std::optional<TeamId>> Find(std::span<const int64_t> ranks, int64_t lane) const;
  // REQUIRES: Find(ranks, lane) gave nothing.
  TeamId Add(std::span<const int64_t> ranks, int64_t lane);
  // Null for an id that this table did not give.
  const TeamInfo* Get(TeamId id) const;
  int64_t size() const { return static_cast<int64_t>(teams_.size()); }

 private:
  const int64_t rank_;
  const int64_t size_;
  std::deque<TeamInfo> teams_;
};

}  // namespace hir::comm
