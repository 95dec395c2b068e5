// The times of a profiled run, by the segments of its plan.
#pragma once

#include <span>

#include "hostir/v1/plan.pb.h"
#include "service/engine/program.h"
#include "service/supervise/fleet.h"

namespace hir::service {

// `times`, by rank, are of a run of `program` with `sizes`. The ops of a segment are one; a copy or fill that is of no
// segment has a row of its own, of the kind "host", behind them.
::hostir::v1::RunProfile ProfileOf(const Program& program, const Sizes& sizes, std::span<const Fleet::OpTimes> times);

}  // namespace hir::service
