// The values of a program's symbols, found from the shapes of its inputs.
#pragma once

#include <map>
#include <span>
#include <string>

#include "csrc/fusion/interpret/host_tensor.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

using SymbolValues = std::map<std::string, int64_t, std::less<>>;

// The value of each symbol that is the extent of an input's axis, added to `known` (mesh coordinates and the like).
// Checks number, element types and shapes of the inputs, and the guards.
// Errors: kInvalidArgument naming input, axis and both values.
Result<SymbolValues> BindSymbols(const ir::Graph& graph, std::span<const HostTensor> inputs, SymbolValues known = {});

Result<int64_t> ValueOf(const ir::Expr* expr, const SymbolValues& symbols);
// The extents of the value axes of `type`.
Result<std::vector<int64_t>> ShapeOf(const ir::Type& type, const SymbolValues& symbols);

}  // namespace hir::fusion
