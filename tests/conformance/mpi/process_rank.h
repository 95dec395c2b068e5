// Programs on the processes that mpirun started: every rank has the device, the compiler and the communicator that
// hostir-eval would give it, and all run the same programs in step.
#pragma once

#include <functional>

#include "csrc/codegen/target.h"
#include "host_ir/rank/backends.h"
#include "tests/property/run_on_ranks.h"

namespace hir::testing {

// Calls `body` with what CheckOnRanks needs of `backends`, and then waits until all ranks are there. The test is
// skipped where there is no device for each rank; it fails where a rank cannot be made.
void OnProcessRanks(const rank::Backends& backends,
                    const std::function<void(const RankRunOptions& options, const codegen::Target& target)>& body);

}  // namespace hir::testing
