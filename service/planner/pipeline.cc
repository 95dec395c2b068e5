#include "service/planner/pipeline.h"

#include <memory>
#include <string>
#include <utility>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/proto/program_proto.h"
#include "host_ir/pipeline/pipeline.h"
#include "service/planner/plan_message.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The daemon has read it before; this is another process, so it is read again.
Result<std::unique_ptr<ir::Graph>> Read(const pb::ProgramSource& source) {
  if (source.has_program()) return ir::FromProto(source.program(), fusion::kFusionOps);
  return ir::Parse(source.text(), fusion::kFusionOps);
}

}  // namespace

Result<pb::Plan> MakePlan(const pb::ProgramSource& program, const PipelineOptions& options) {
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, Read(program));
  HIR_ASSIGN(host::ProgramPlan plan,
             host::PlanProgram(std::move(graph), {.num_devices = options.num_devices}));
  pb::Plan message = ToMessage(plan);
  for (const codegen::KernelPlan& kernels : plan.kernels) {
    HIR_ASSIGN(codegen::Artifact compiled, options.compile(kernels));
    pb::Artifact& artifact = *message.add_artifacts();
    artifact.set_backend(options.backend);
    artifact.set_code(std::move(compiled.bytes));
    for (std::string& kernel : compiled.kernels) artifact.add_kernels(std::move(kernel));
  }
  return message;
}

}  // namespace hir::service
