#include "service/planner/pipeline.h"

#include <algorithm>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/proto/program_proto.h"
#include "host_ir/pipeline/pin_sizes.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/rank/compile_all.h"
#include "service/planner/plan_message.h"
#include "service/planner/pool_message.h"
#include "service/planner/size_buckets.h"

namespace hir::service {
namespace {

namespace pb = ::hostir::v1;

// The daemon has read it before; this is another process, so it is read again.
Result<std::unique_ptr<ir::Graph>> Read(const pb::ProgramSource& source) {
  if (source.has_program()) return ir::FromProto(source.program(), fusion::kFusionOps);
  return ir::Parse(source.text(), fusion::kFusionOps);
}

Result<host::ProgramPlan> Plan(const pb::ProgramSource& program, const PipelineOptions& options,
                               const codegen::Sizes& sizes) {
  HIR_ASSIGN(std::unique_ptr<ir::Graph> graph, Read(program));
  return host::PlanProgram(std::move(graph), {.num_devices = options.num_devices,
                                              .target = options.target,
                                              .sizes = sizes,
                                              .resharding_bytes_max = options.resharding_bytes_max,
                                              .links = options.links,
                                              .streams = options.loop_streams,
                                              .overlap = options.overlap});
}

// Whether some sizes of `symbols` have a plan of their own: its schedules have guards then.
bool SizesMatter(const pb::ProgramSource& program, const PipelineOptions& options,
                 const std::set<std::string>& symbols) {
  codegen::Sizes small;
  for (const std::string& symbol : symbols) small[symbol] = host::kNarrow + 1;  // Less may be a constant.
  const Result<host::ProgramPlan> plan = Plan(program, options, small);
  return plan.ok() && std::ranges::any_of(plan->kernels, [](const auto& kernel) { return !kernel.guards.empty(); });
}

void Tell(const PipelineOptions& options, pb::PlanProgress::Stage stage, int64_t kernels_compiled, int64_t kernels) {
  if (!options.progress) return;
  pb::PlanProgress progress;
  progress.set_stage(stage);
  progress.set_kernels_compiled(kernels_compiled);
  progress.set_kernels(kernels);
  options.progress(progress);
}

Result<std::vector<codegen::Artifact>> Compile(std::span<const codegen::KernelPlan> kernels,
                                               const PipelineOptions& options) {
  const auto told = [&](int64_t num_compiled) {
    Tell(options, pb::PlanProgress::STAGE_COMPILING, num_compiled, std::ssize(kernels));
  };
  if (!kernels.empty()) told(0);
  return rank::CompileAll(kernels, options.compile, {.pool = options.pool, .compiled = told});
}

}  // namespace

Result<pb::Plan> MakePlan(const pb::ProgramSource& program, const PipelineOptions& options) {
  Tell(options, pb::PlanProgress::STAGE_PLANNING, 0, 0);
  HIR_ASSIGN(host::ProgramPlan plan, Plan(program, options, options.sizes));
  pb::Plan message = ToMessage(plan, options.target, options.sizes);
  HIR_TRY(AddPools(*plan.host, &message));
  // Sizes decide how tensors go from node to node.
  const bool between_nodes = options.links.of_node.size() > 1 && !plan.local.communications.empty();
  const bool is_gpu = options.target.kind == codegen::Target::Kind::kGpu;
  if (options.sizes.empty()) {
    const std::set<std::string> symbols = SymbolsOf(plan.local.inputs);
    const bool matter = is_gpu || between_nodes || SizesMatter(program, options, symbols);
    message.set_provisional(!symbols.empty() && matter);
    // A CPU's kernels take milliseconds, so that what cannot be compiled is known now.
    if (message.provisional() && is_gpu) return message;
    codegen::Sizes narrow;  // All sizes that share it are at least so large; one of 1 need not be known to be that.
    for (const auto& [symbol, least] : plan.least_shared) {
      if (least > 2 && symbols.contains(symbol)) narrow.emplace(symbol, least);
    }
    KeepFromSmall(plan.least_shared, narrow, &message);
  } else {
    KeepFromSmall(plan.least_shared, options.sizes, &message);
    if (is_gpu || between_nodes) AddBuckets(options.sizes, &message);
    if (is_gpu) KeepToVectors(options.sizes, &message);
  }
  HIR_ASSIGN(std::vector<codegen::Artifact> artifacts, Compile(plan.kernels, options));
  for (codegen::Artifact& compiled : artifacts) {
    if (auto notes = codegen::gpu::NotesOf(compiled); is_gpu && notes.ok()) {
      for (std::string& note : *notes) message.mutable_explanation()->add_notes(std::move(note));
    }
    pb::Artifact& artifact = *message.add_artifacts();
    artifact.set_backend(options.backend);
    artifact.set_code(std::move(compiled.bytes));
    for (std::string& kernel : compiled.kernels) artifact.add_kernels(std::move(kernel));
  }
  return message;
}

}  // namespace hir::service
