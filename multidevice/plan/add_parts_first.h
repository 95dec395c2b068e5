// Sums of sums over ranks as one sum over ranks.
#pragma once

#include "multidevice/plan/localize.h"

namespace hir::plan {

void AddPartsFirst(LocalProgram& program);

}  // namespace hir::plan
