// The numbers by which the ranks of a team match their communications, taken when they are posted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "multidevice/comm/communicator.h"
#include "multidevice/comm/team.h"

namespace hir::comm {

// Which communication of its team this is. Collectives of a team are counted together, as every
// rank posts all of them, but each channel of a transport that has several for itself; what goes from one rank to
// another is counted by those two alone.
struct MatchNumbers {
  int channel = 0;  // In [0, kChannelsMax).
  int64_t collective = 0;
  int64_t send = 0;
  int64_t recv = 0;
};

inline constexpr int kChannelsMax = 2;

// One rank's counters. One thread at a time.
class Numbering {
 public:
  MatchNumbers Next(const CommDesc& desc, int channel = 0) {
    MatchNumbers numbers = {.channel = channel};
    if (desc.type != CommType::kSendRecv) {
      const auto team = static_cast<size_t>(desc.team);
      if (collectives_.size() <= team) collectives_.resize(team + 1);
      numbers.collective = collectives_[team][static_cast<size_t>(channel)]++;
      return numbers;
    }
    if (desc.to != kNoRank) numbers.send = Count(desc.team, 1, desc.to);
    if (desc.from != kNoRank) numbers.recv = Count(desc.team, 2, desc.from);
    return numbers;
  }

 private:
  int64_t Count(TeamId team, int kind, int64_t peer) { return counts_[{team, kind, peer}]++; }

  std::vector<std::array<int64_t, kChannelsMax>> collectives_;  // By team, and channel.
  std::map<std::tuple<TeamId, int, int64_t>, int64_t> counts_;
};

}  // namespace hir::comm
