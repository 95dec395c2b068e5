// The canonical text of a graph. Parse(Print(g)) prints the same text again.
#pragma once

#include <string>

#include "csrc/ir/graph.h"

namespace hir::ir {

std::string Print(const Graph& graph);
std::string Print(const Op& op);  // One line, without its blocks' contents.

}  // namespace hir::ir
