#include "tools/transform.h"

#include <algorithm>
#include <memory>

#include "csrc/base/text.h"
#include "csrc/codegen/gpu/gpu.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/passes.h"
#include "csrc/ir/lexer.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/pass.h"
#include "csrc/ir/print.h"
#include "csrc/ir/verify.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "host_ir/pipeline/group_passes.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/pipeline/traffic.h"
#include "host_ir/verify/verify.h"
#include "multidevice/plan/localize.h"

namespace hir::tools {
namespace {

using GraphPtr = std::unique_ptr<ir::Graph>;

// Enough devices for every mesh of the program.
int64_t NumDevices(const ir::Graph& graph) {
  int64_t last = 0;
  for (const ir::Mesh& mesh : graph.meshes()) {
    last = std::max(last, *std::max_element(mesh.mesh.devices().begin(), mesh.mesh.devices().end()));
  }
  return last + 1;
}

Result<host::ProgramPlan> Plan(GraphPtr graph, const Planning& planning, host::PlanOptions options = {}) {
  options.num_devices = NumDevices(*graph);
  options.sizes = planning.sizes;
  options.without = planning.without;
  return host::PlanProgram(std::move(graph), options);
}

// The CUDA C++ of its kernels.
Result<std::string> Cuda(GraphPtr graph, const Planning& planning) {
  HIR_ASSIGN(const host::ProgramPlan plan, Plan(std::move(graph), planning, {.target = codegen::kHopper}));
  std::string text;
  for (const codegen::KernelPlan& kernel : plan.kernels) {
    HIR_ASSIGN(const std::string own, codegen::gpu::EmitKernels(kernel));
    text += own;
  }
  return text;
}

// A line a segment that moves any, then both sums. Symbols without a size count segment::kUnknownExtent.
Result<std::string> Traffic(GraphPtr graph, const Planning& planning) {
  Planning known = planning;
  for (const ir::Expr* symbol : graph->exprs().symbols()) known.sizes.emplace(symbol->symbol, segment::kUnknownExtent);
  HIR_ASSIGN(const host::ProgramPlan plan, Plan(std::move(graph), known));
  std::string text;
  ir::ExprPool pool;
  for (const host::LoweredSegment& segment : plan.segments) {
    const ir::Expr* const bytes = host::BytesOf(pool, plan, segment);
    if (bytes != pool.Const(0)) base::Append(text, segment.name, ": ", ir::ToString(bytes), "\n");
  }
  const std::optional<host::Traffic> traffic = host::TrafficOf(plan, known.sizes);
  if (!traffic) return text + "in all: not known\n";
  return base::Cat(text, "in all: ", traffic->bytes, ", at least ", traffic->floor, "\n");
}

Result<GraphPtr> Localize(GraphPtr graph, const Planning&) {
  HIR_ASSIGN(plan::LocalProgram local, plan::Localize(*graph));
  return std::move(local.graph);
}

// In parts beside communications wherever that is possible, whatever the size.
Result<GraphPtr> LocalizeForOverlap(GraphPtr graph, const Planning&) {
  HIR_ASSIGN(plan::LocalProgram local, plan::Localize(*graph, {.overlap = plan::OverlapLimits::Unlimited()}));
  return std::move(local.graph);
}

Result<GraphPtr> Lower(GraphPtr graph, const Planning& planning) {
  HIR_ASSIGN(host::ProgramPlan plan, Plan(std::move(graph), planning));
  return std::move(plan.host);
}

// As `lower`, with products of any size beside their communications.
Result<GraphPtr> Overlap(GraphPtr graph, const Planning& planning) {
  HIR_ASSIGN(host::ProgramPlan plan, Plan(std::move(graph), planning, {.overlap = host::OverlapChoice::kAlways}));
  return std::move(plan.host);
}

// A step of the pipeline that makes another graph of a fusion program.
struct Step {
  std::string_view name;
  Result<GraphPtr> (*run)(GraphPtr, const Planning&);
};
constexpr Step kSteps[] = {
    {"localize", &Localize}, {"localize_for_overlap", &LocalizeForOverlap}, {"lower", &Lower}, {"overlap", &Overlap}};

std::span<const ir::Pass> PassesOf(const ir::OpSet& ops) {
  return &ops == &fusion::kFusionOps ? fusion::kFusionPasses : host::kHostPasses;
}

}  // namespace

const ir::OpSet& OpSetOf(std::string_view text) {
  ir::Lexer lexer(text);
  for (ir::Token token = lexer.Next(); token.kind != ir::TokenKind::kEnd; token = lexer.Next()) {
    if (token.IsWord(host::kHostOps.name)) return host::kHostOps;
    if (token.IsWord(fusion::kFusionOps.name)) break;
  }
  return fusion::kFusionOps;
}

Result<std::string> Transform(std::string_view text, std::string_view passes, const Planning& planning) {
  const bool unordered = passes.find("assign_streams") != std::string_view::npos;
  const ir::OpSet& ops = OpSetOf(text);
  HIR_ASSIGN(GraphPtr graph, ir::Parse(text, unordered && &ops == &host::kHostOps ? host::kUnorderedHostOps : ops));
  while (!passes.empty()) {
    const size_t comma = std::min(passes.find(','), passes.size());
    std::string_view name = passes.substr(0, comma);
    passes.remove_prefix(std::min(comma + 1, passes.size()));
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    const bool fusion = &graph->ops() == &fusion::kFusionOps;
    if (fusion && name == "segments") {
      HIR_ASSIGN(const host::ProgramPlan plan, Plan(std::move(graph), planning));
      return host::DescribeSegments(plan);
    }
    if (fusion && name == "traffic") return Traffic(std::move(graph), planning);
    if (fusion && name == "cuda") return Cuda(std::move(graph), planning);
    const auto* step =
        std::find_if(std::begin(kSteps), std::end(kSteps), [&](const Step& s) { return s.name == name; });
    if (fusion && step != std::end(kSteps)) {
      Result<GraphPtr> made = step->run(std::move(graph), planning);
      HIR_TRY(made.status().WithContext(name));
      graph = *std::move(made);
      HIR_TRY(ir::Verify(*graph).WithContext(name));
    } else {
      HIR_TRY(ir::RunPasses(*graph, PassesOf(graph->ops()), name));
    }
  }
  if (&graph->ops() == &host::kUnorderedHostOps) HIR_TRY(host::VerifyHost(*graph));
  return ir::Print(*graph);
}

std::string PassList() {
  std::string out;
  for (const ir::Pass& pass : fusion::kFusionPasses) base::Append(out, "  ", pass.name, ": ", pass.doc, "\n");
  for (const ir::Pass& pass : host::kHostPasses) base::Append(out, "  ", pass.name, ": ", pass.doc, "\n");
  const std::string optional = base::Join(host::OptionalPasses(), ", ");
  return out +
         "  localize, segments, lower: steps that make one rank's program, its segments, the host "
         "program\n"
         "  overlap, localize_for_overlap: as lower and localize, with products of any size in parts beside their "
         "communications, and keys of attention that go round\n"
         "  traffic: bytes that each segment moves, and the least\n"
         "  cuda: the CUDA C++ of one rank's kernels\n"
         "Passes that --without may name: " +
         optional + "\n";
}

}  // namespace hir::tools
