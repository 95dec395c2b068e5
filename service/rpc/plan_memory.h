// How much memory a run of a plan needs on each rank.
#pragma once

#include "service/engine/program.h"

namespace hir::service {

// Sets memory of `explanation`, or memory_unknown where `sizes` are not all that the plan depends on. REQUIRES:
// CheckBytes of `sizes` is OK.
void SetMemory(const Program& program, const Sizes& sizes, ::hostir::v1::Explanation* explanation);

}  // namespace hir::service
