// Drops waits and records that order nothing; see elide_waits.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

Status ElideWaits(ir::Graph& graph);

}  // namespace hir::host
