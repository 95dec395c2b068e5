// The reference interpreter: a fusion program run op by op, as exactly as its types allow.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "csrc/fusion/interpret/bind.h"
#include "csrc/fusion/interpret/host_tensor.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// The outputs of `graph` on `inputs`, one per parameter: the whole tensor, broadcast axes written out; a host scalar as
// a tensor without axes. `known`: values of symbols that no input's extent gives (mesh coordinates).
// Errors: those of BindSymbols; kUnimplemented for communications; kInternal for a fault in a definition, with its op.
Result<std::vector<HostTensor>> Interpret(const ir::Graph& graph, std::span<const HostTensor> inputs,
                                          SymbolValues known = {});

// The result of one op that is no communication. `tensor_of` gives the tensors of its operands and of the host scalars
// among the parameters.
Result<HostTensor> InterpretOp(const ir::Op& op, const SymbolValues& symbols,
                               const std::function<const HostTensor&(const ir::Value*)>& tensor_of);

}  // namespace hir::fusion
