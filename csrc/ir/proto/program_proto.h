// Programs on the wire (proto/hostir/v1/program.proto) to graphs and back. The message is
// untrusted: it goes through the Builder and Annotate, like text, so both forms obey the same rules
// and limits.
#pragma once

#include <memory>

#include "csrc/ir/graph.h"

namespace hostir::v1 {
class Program;
}

namespace hir::ir {

// Builds and verifies `program`, which must be of `ops`.
// Errors: kInvalidArgument naming op or value, with the location the message gives; kResourceExhausted for a limit of
//         parse.h or builder.h, naming it.
Result<std::unique_ptr<Graph>> FromProto(const hostir::v1::Program& program, const OpSet& ops);

// Writes `graph` to `program`, with all types and final layouts. FromProto of it prints as `graph` does.
void ToProto(const Graph& graph, hostir::v1::Program& program);

}  // namespace hir::ir
