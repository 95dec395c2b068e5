#include "host_ir/passes/passes.h"

#include "host_ir/passes/assign_streams.h"
#include "host_ir/passes/check_complete.h"
#include "host_ir/passes/deallocate.h"
#include "host_ir/passes/elide_waits.h"
#include "host_ir/passes/group_communications.h"
#include "host_ir/verify/verify.h"

namespace hir::host {
namespace {

constexpr ir::Pass kTable[] = {
#define PASS(Function, name, doc) {name, &Function, doc},
#include "host_ir/passes/passes.def"
};

}  // namespace

const std::span<const ir::Pass> kHostPasses = kTable;

Status FinishProgram(ir::Graph& graph) {
  HIR_TRY(ir::RunPasses(graph, kHostPasses, kGroup, {.dump = ir::DumpFromEnvironment("host_ir"), .verify = false}));
  HIR_TRY(VerifyUnordered(graph));
  return RunHostPasses(graph, kFinish);
}

Status RunHostPasses(ir::Graph& graph, std::string_view names) {
  return ir::RunPasses(graph, kHostPasses, names, {.dump = ir::DumpFromEnvironment("host_ir")});
}

}  // namespace hir::host
