// What a rank on a GPU is built from: all of it by libraries that are loaded at run time.
#pragma once

#include "host_ir/rank/backends.h"

namespace hir::rank {

Backends CudaBackends();

}  // namespace hir::rank
