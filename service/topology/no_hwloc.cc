// A build without hwloc: the order of the system's numbers.
#include "service/topology/topology.h"

namespace hir::service {

Result<Cores> CoresInOrder() { return CoresOfThread(); }

}  // namespace hir::service
