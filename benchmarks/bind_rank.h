// Where ranks of a benchmark run.
#pragma once

#include <cstdint>

#include "csrc/base/status.h"
#include "service/os/affinity.h"
#include "service/topology/topology.h"

namespace hir::bench {

// Keeps the calling process, before it has threads, to its share of the cores, as the daemon's workers are kept.
inline Status BindRank(int64_t rank, int64_t ranks) {
  HIR_ASSIGN(const service::Cores cores, service::CoresInOrder());
  return service::BindThread(service::ShareCores(cores, ranks)[static_cast<size_t>(rank)]);
}

}  // namespace hir::bench
