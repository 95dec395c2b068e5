#include "service/planner/pipeline.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

bool AllKnown(std::span<const plan::Boundary> inputs, const codegen::Sizes& sizes) {
  std::vector<std::string_view> symbols;
  for (const plan::Boundary& input : inputs) {
    if (input.global->kind != ir::TypeKind::kTensor) continue;
    for (const ir::Axis& axis : input.global->axes) ir::CollectSymbols(axis.extent, symbols);
  }
  return std::ranges::all_of(
      symbols, [&](std::string_view symbol) { return sizes.contains(std::string(symbol)); });
}

}  // namespace

Result<pb::Plan> MakePlan(const pb::ProgramSource& program, const PipelineOptions& options) {
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, Read(program));
  HIR_ASSIGN(host::ProgramPlan plan,
             host::PlanProgram(std::move(graph), {.num_devices = options.num_devices,
                                                  .target = options.target,
                                                  .sizes = options.sizes}));
  pb::Plan message = ToMessage(plan);
  message.set_provisional(options.target.kind == codegen::Target::Kind::kGpu &&
                          !AllKnown(plan.local.inputs, options.sizes));
  if (message.provisional()) return message;
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
