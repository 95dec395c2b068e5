// How long a run of a plan should take, and how long runs of it took.
#pragma once

#include <optional>

#include "host_ir/predict/rates.h"
#include "service/engine/program.h"
#include "service/engine/run_times.h"

namespace hir::service {

// Sets `time` of `explanation`: the prediction, or why there is none, as where `rates` is null; and what was measured.
void SetTime(const Program& program, const Sizes& sizes, const host::Rates* rates,
             const std::optional<RunTimes::Taken>& taken, ::hostir::v1::Explanation* explanation);

}  // namespace hir::service
