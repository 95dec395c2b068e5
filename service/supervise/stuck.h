// Words for a run that does not end: who holds whom up, and where.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "hostir/v1/worker.pb.h"

namespace hir::service {

// comm_entered of a rank that does not answer; its `where` says why, when that is known: "stopped".
inline constexpr int64_t kNoAnswer = -2;

// "rank 3", "ranks 0, 1 and 2"; of many the first ones.
std::string RanksText(std::span<const int64_t> ranks);
// "rank 3 does not answer (stopped)"; `holds`: by rank, from `first_rank` on, what its process is held by, or empty.
std::string SilentText(std::span<const int64_t> ranks, std::span<const std::string> holds, int64_t first_rank = 0);

// Of the ranks from `first_rank` on. `dumped`: what each answered, or kNoAnswer. `awaited`: the replies each owes.
// "rank 3 has not entered allgather #17, it computes (next: k4); ranks 0, 1 and 2 are waiting"
std::string DescribeStuck(std::span<const ::hostir::v1::Dumped> dumped, std::span<const int64_t> awaited,
                          int64_t first_rank = 0);

}  // namespace hir::service
