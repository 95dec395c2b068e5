// What the processes of CPU devices are built from.
#pragma once

#include "service/planner/pipeline.h"
#include "service/worker/backends.h"

namespace hir::service {

Backends CpuBackends();

// The compiler for a planner of CPU devices. It remembers what it compiled.
decltype(PipelineOptions::compile) CpuCompile();

}  // namespace hir::service
