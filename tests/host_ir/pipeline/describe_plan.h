// A plan in a few lines, for goldens: one a segment, one a communication, one a guard.
#pragma once

#include <string>

#include "host_ir/pipeline/pipeline.h"

namespace hir::host {

std::string DescribePlan(const ProgramPlan& plan);

}  // namespace hir::host
