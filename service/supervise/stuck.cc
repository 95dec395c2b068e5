#include "service/supervise/stuck.h"

#include <algorithm>
#include <vector>

#include "csrc/base/text.h"

namespace hir::service {
namespace {

std::string Ranks(const std::vector<int64_t>& ranks) {
  return base::Cat(ranks.size() == 1 ? "rank " : "ranks ", base::Join(ranks, ", "));
}

}  // namespace

std::string DescribeStuck(std::span<const ::hostir::v1::Dumped> dumped, std::span<const int64_t> awaited) {
  std::vector<int64_t> silent, late, waiting, owing;
  int64_t furthest = -1;
  std::string where;
  for (size_t rank = 0; rank < dumped.size(); ++rank) {
    if (dumped[rank].comm_entered() == -2) silent.push_back(static_cast<int64_t>(rank));
    if (awaited[rank] > 0) owing.push_back(static_cast<int64_t>(rank));
    if (dumped[rank].comm_entered() <= furthest) continue;
    furthest = dumped[rank].comm_entered();
    where = dumped[rank].where();
  }
  if (!silent.empty()) return base::Cat(Ranks(silent), silent.size() == 1 ? " does" : " do", " not answer");
  for (size_t rank = 0; rank < dumped.size(); ++rank) {
    const bool is_late = dumped[rank].comm_entered() < furthest && awaited[rank] > 0;
    const bool waits = dumped[rank].comm_entered() == furthest && dumped[rank].comm_left() < furthest;
    if (is_late) late.push_back(static_cast<int64_t>(rank));
    if (waits) waiting.push_back(static_cast<int64_t>(rank));
  }
  const std::string name = where.empty() ? base::Cat("communication #", furthest) : where;
  if (!late.empty() && !waiting.empty()) {
    return base::Cat(Ranks(late), late.size() == 1 ? " has" : " have", " not entered ", name, "; ", waiting.size(),
                     waiting.size() == 1 ? " peer is" : " peers are", " waiting");
  }
  if (!waiting.empty()) return base::Cat(name, " does not end on ", Ranks(waiting));
  return base::Cat(Ranks(owing), owing.size() == 1 ? " is" : " are", " still computing");
}

}  // namespace hir::service
