// The planner process: answers MakePlan messages until its socket ends.
#pragma once

#include "service/os/fd.h"
#include "service/planner/pipeline.h"

namespace hir::service {

// `options` but for devices and sizes, which the messages give.
[[noreturn]] void ServePlanner(Fd socket, PipelineOptions options);

}  // namespace hir::service
