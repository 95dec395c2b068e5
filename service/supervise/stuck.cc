#include "service/supervise/stuck.h"

#include <algorithm>
#include <vector>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

constexpr size_t kNamed = 8;  // Ranks, of many.

std::string_view Are(const std::vector<int64_t>& ranks) { return ranks.size() == 1 ? " is" : " are"; }

// "; ranks 0 and 2 are waiting in allgather #17"
std::string Waiting(const std::vector<int64_t>& ranks, std::string_view in) {
  if (ranks.empty()) return "";
  return base::Cat("; ", RanksText(ranks), Are(ranks), " waiting", in.empty() ? "" : " in ", in);
}

}  // namespace

std::string RanksText(std::span<const int64_t> ranks) {
  if (ranks.size() == 1) return base::Cat("rank ", ranks[0]);
  const std::span<const int64_t> first = ranks.first(std::min(ranks.size() - 1, kNamed));
  const size_t left = ranks.size() - first.size();
  return base::Cat("ranks ", base::Join(first, ", "), " and ",
                   left == 1 ? base::Cat(ranks.back()) : base::Cat(left, " more"));
}

std::string SilentText(std::span<const int64_t> ranks, std::span<const std::string> holds, int64_t first_rank) {
  const auto hold_of = [&](int64_t rank) -> const std::string& {
    return holds[static_cast<size_t>(rank - first_rank)];
  };
  const std::string& hold = hold_of(ranks[0]);
  const bool alike = std::ranges::all_of(ranks, [&](int64_t rank) { return hold_of(rank) == hold; });
  return base::Cat(RanksText(ranks), ranks.size() == 1 ? " does" : " do", " not answer",
                   alike && !hold.empty() ? base::Cat(" (", hold, ")") : "");
}

std::string DescribeStuck(std::span<const ::hostir::v1::Dumped> dumped, std::span<const int64_t> awaited,
                          int64_t first_rank) {
  std::vector<int64_t> silent, late, waiting, owing;
  std::vector<std::string> holds(dumped.size());
  int64_t furthest = -1;
  std::string where;
  for (size_t rank = 0; rank < dumped.size(); ++rank) {
    if (dumped[rank].comm_entered() == kNoAnswer) {
      silent.push_back(first_rank + static_cast<int64_t>(rank));
      holds[rank] = dumped[rank].where();
    }
    if (awaited[rank] > 0) owing.push_back(first_rank + static_cast<int64_t>(rank));
    if (dumped[rank].comm_entered() <= furthest) continue;
    furthest = dumped[rank].comm_entered();
    where = dumped[rank].where();
  }
  for (size_t rank = 0; rank < dumped.size(); ++rank) {
    const ::hostir::v1::Dumped& at = dumped[rank];
    if (at.comm_entered() == kNoAnswer || awaited[rank] == 0) continue;
    if (at.comm_entered() < furthest) late.push_back(first_rank + static_cast<int64_t>(rank));
    if (at.comm_entered() == furthest && at.comm_left() < furthest)
      waiting.push_back(first_rank + static_cast<int64_t>(rank));
  }
  const std::string name = where.empty() ? base::Cat("communication #", furthest) : where;
  if (!silent.empty()) return SilentText(silent, holds, first_rank) + Waiting(waiting, name);
  const std::vector<int64_t>& holding = late.empty() ? owing : late;
  const auto computing = std::ranges::find_if(holding, [&](int64_t rank) {
    const ::hostir::v1::Dumped& at = dumped[static_cast<size_t>(rank - first_rank)];
    return at.comm_left() >= at.comm_entered();
  });
  const std::string next =
      computing == holding.end() ? "" : dumped[static_cast<size_t>(*computing - first_rank)].next();
  const std::string at = next.empty() ? "" : base::Cat(" (next: ", next, ")");
  if (!late.empty() && !waiting.empty()) {
    return base::Cat(RanksText(late), late.size() == 1 ? " has" : " have", " not entered ", name, at,
                     Waiting(waiting, ""));
  }
  if (!waiting.empty()) return base::Cat(name, " does not end on ", RanksText(waiting));
  if (owing.empty()) return "all ranks have answered";
  return base::Cat(RanksText(owing), Are(owing), " still computing", furthest < 0 ? "" : base::Cat(" behind ", name),
                   at);
}

}  // namespace hir::service
