#include <hwloc.h>

#include <memory>

#include "service/topology/topology.h"

namespace hir::service {

Result<Cores> CoresInOrder() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return Unavailable("hwloc does not start");
  const std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)> topology(made, &hwloc_topology_destroy);
  // A discovery must not move the calling thread from core to core: others may start threads from it.
  const unsigned long flags = HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING |
                              HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
  if (hwloc_topology_set_flags(topology.get(), flags) != 0 || hwloc_topology_load(topology.get()) != 0)
    return Unavailable("hwloc does not know this machine");
  Cores cores;
  const int count = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PU);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj_t unit = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PU, static_cast<unsigned>(i));
    cores.push_back(static_cast<int>(unit->os_index));
  }
  if (cores.empty()) return Unavailable("hwloc finds no core");
  return cores;
}

}  // namespace hir::service
