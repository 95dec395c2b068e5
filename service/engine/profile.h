// What was measured in a run: times by the segments of its plan, or a timeline.
#pragma once

#include <span>
#include <string>

#include "hostir/v1/plan.pb.h"
#include "hostir/v1/worker.pb.h"
#include "service/engine/program.h"

namespace hir::service {

// `measured`, by rank, is of a run of `program` with `sizes`. The ops of a segment are one; a fill that is of
// no segment has a row of its own, of the kind "host", behind them.
::hostir::v1::RunProfile ProfileOf(const Program& program, const Sizes& sizes,
                                   std::span<const ::hostir::v1::Measured> measured);
// What RunReply::timeline is.
std::string TimelineOf(const Program& program, std::string_view trace,
                       std::span<const ::hostir::v1::Measured> measured);

}  // namespace hir::service
