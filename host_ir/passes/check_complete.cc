// Changes nothing: the last of the passes, so that a program that will not load is refused where it
// was made.
#include "host_ir/passes/check_complete.h"

#include "host_ir/verify/verify.h"

namespace hir::host {

Status CheckComplete(ir::Graph& graph) { return VerifyComplete(graph); }

}  // namespace hir::host
