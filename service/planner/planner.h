// The planner process: answers MakePlan messages until its socket ends.
#pragma once

#include <cstdint>

#include "csrc/base/fd.h"
#include "service/planner/pipeline.h"

namespace hir::service {

// `options` but for devices and sizes, which the messages give. `bytes_max`: of what it may allocate beyond what the
// process has when it begins, its threads included; who wants more ends it with kExitOutOfMemory. 0: any.
[[noreturn]] void ServePlanner(base::Fd socket, int64_t bytes_max, PipelineOptions options);

}  // namespace hir::service
