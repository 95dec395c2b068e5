// How the machine is built.
#pragma once

#include "csrc/base/status.h"
#include "service/os/affinity.h"

namespace hir::service {

// The cores that this process may run on, those that belong together side by side: threads of one core, cores of one
// cache, of one node of memory, of one package. The system numbers them otherwise: often the second threads of all
// cores come after the first ones, so that equal shares of the numbers would give two ranks the same cores.
// Errors: kUnavailable: the system does not say.
Result<Cores> CoresInOrder();

}  // namespace hir::service
