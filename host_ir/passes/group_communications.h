// Small communications side by side start together; see group_communications.cc.
#pragma once

#include "csrc/ir/graph.h"

namespace hir::host {

Status GroupCommunications(ir::Graph& graph);

}  // namespace hir::host
