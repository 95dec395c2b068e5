// Library calls of the CPU, as an evaluator wants them.
#pragma once

#include <memory>

#include "host_ir/eval/library.h"

namespace hir::rank {

// `num_threads`: of one call.
std::unique_ptr<host::LibrarySource> MakeCpuLibraries(int num_threads);

}  // namespace hir::rank
