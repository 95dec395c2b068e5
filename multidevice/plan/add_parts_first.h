// Sums over ranks of what each rank has added up as far as it can.
#pragma once

#include "multidevice/plan/localize.h"

namespace hir::plan {

void AddPartsFirst(LocalProgram& program);

}  // namespace hir::plan
