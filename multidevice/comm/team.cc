#include "multidevice/comm/team.h"

#include <algorithm>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::comm {

std::optional<int64_t> TeamInfo::IndexOf(int64_t rank) const {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return std::nullopt;
  return found - ranks.begin();
}

std::string TeamInfo::ToString() const { return base::Cat("[", base::JoinInts(ranks, ", "), "]"); }

Result<std::optional<TeamId>> TeamTable::Find(std::span<const int64_t> ranks, int64_t lane) const {
  const std::string team = base::Cat("team [", base::JoinInts(ranks, ", "), "]: ");
  if (ranks.empty()) return InvalidArgument(base::Cat(team, "it has no rank"));
  if (lane < 0) return InvalidArgument(base::Cat(team, "lane is ", lane));
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || ranks[i] >= size_) {
      return InvalidArgument(base::Cat(team, "rank ", ranks[i], " is not in [0, ", size_, ")"));
    }
    if (std::find(ranks.begin(), ranks.begin() + static_cast<int64_t>(i), ranks[i]) !=
        ranks.begin() + static_cast<int64_t>(i)) {
      return InvalidArgument(base::Cat(team, "rank ", ranks[i], " is there twice"));
    }
  }
  if (std::find(ranks.begin(), ranks.end(), rank_) == ranks.end()) {
    return InvalidArgument(base::Cat(team, "it lacks this rank, ", rank_));
  }
  for (size_t id = 0; id < teams_.size(); ++id) {
    if (teams_[id].lane == lane &&
        std::equal(ranks.begin(), ranks.end(), teams_[id].ranks.begin(), teams_[id].ranks.end())) {
      return std::optional(TeamId{static_cast<int32_t>(id)});
    }
  }
  return std::optional<TeamId>();
}

TeamId TeamTable::Add(std::span<const int64_t> ranks, int64_t lane) {
  TeamInfo& team = teams_.emplace_back(TeamInfo{.ranks = {ranks.begin(), ranks.end()}, .lane = lane});
  team.index = team.IndexOf(rank_).value();
  return TeamId{static_cast<int32_t>(teams_.size() - 1)};
}

const TeamInfo* TeamTable::Get(TeamId id) const {
  const auto index = static_cast<int64_t>(id);
  return index >= 0 && index < size() ? &teams_[static_cast<size_t>(index)] : nullptr;
}

}  // namespace hir::comm
