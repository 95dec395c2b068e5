// What a rank on a CPU is built from.
#pragma once

#include "host_ir/rank/backends.h"

namespace hir::rank {

Backends CpuBackends();

}  // namespace hir::rank
