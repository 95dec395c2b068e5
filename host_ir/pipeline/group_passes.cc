#include "host_ir/pipeline/group_passes.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/ir/pass.h"
#include "csrc/ir/verify.h"
#include "csrc/segment/forward.h"
#include "csrc/segment/rematerialize.h"
#include "csrc/segment/sink_reshapes.h"
#include "csrc/segment/take_out_views.h"
#include "host_ir/lower/products.h"
#include "host_ir/lower/storage.h"
#include "host_ir/lower/strided_views.h"

namespace hir::host {
namespace {

using base::Cat;
using enum GroupPass::Need;

Status FitProductsToLibrary(Segmented& program, const GroupOptions& options) {
  return FitProducts(*program.graph, options.target, program.strides);
}

Status SinkReshapesOfReduced(Segmented& program, const GroupOptions&) { return segment::SinkReshapes(*program.graph); }

Status ForwardTensors(Segmented& program, const GroupOptions& options) {
  return segment::Forward(*program.graph, true, options.sizes);
}

Status CopyScalars(Segmented& program, const GroupOptions&) { return segment::Forward(*program.graph, false); }

Status SegmentOps(Segmented& program, const GroupOptions& options) {
  HIR_ASSIGN(program.groups, GroupsOf(*program.graph, options.segmentation, options.sizes, options.target));
  return {};
}

std::function<bool(const ir::Op&)> IsViewIn(const Segmented& program) {
  return [&program](const ir::Op& op) {
    const bool may_be = op.operands.size() == 1 && op.operands[0]->type->kind == ir::TypeKind::kTensor && IsView(op);
    return may_be && !program.strides.contains(op.operands[0]) && !program.strides.contains(op.results[0]);
  };
}

Status TakeOutViewsOfGroups(Segmented& program, const GroupOptions& options) {
  program.calls_take_strides = true;
  const StridedViews views(options.target, program.strides);
  const segment::ViewRules rules = {
      .is_view = IsViewIn(program),
      .is_strided_view = [&views](const ir::Op& op) { return views.IsView(op); },
      .are_read_in_place = [&views](std::span<ir::Op* const> chain,
                                    std::span<ir::Op* const> readers) { return views.AreReadInPlace(chain, readers); },
      .are_written_in_place = [&views](std::span<ir::Op* const> chain) { return views.AreWrittenInPlace(chain); }};
  return segment::TakeOutViews(*program.graph, program.groups, rules);
}

Status RematerializeGroups(Segmented& program, const GroupOptions& options) {
  const StridedViews views(options.target, program.strides);
  const std::vector<std::vector<ir::Op*>> uses = ir::UsesOf(*program.graph);
  const auto is_view = [&, is_plain = IsViewIn(program)](const segment::Group& group) {
    if (std::ranges::all_of(group.ops, [&](const ir::Op* op) { return is_plain(*op); })) return true;
    const bool is_older = std::ranges::all_of(
        group.outputs, [&](const ir::Value* output) { return static_cast<size_t>(output->id) < uses.size(); });
    return program.calls_take_strides && is_older && views.IsReadInPlace(group, uses);
  };
  return segment::Rematerialize(*program.graph, program.groups,
                                {.fits = FitsOneKernel, .is_view = is_view, .sizes = options.sizes});
}

Status MergeCopiesOfGroups(Segmented& program, const GroupOptions&) {
  segment::MergeCopies(*program.graph, program.groups, FitsOneKernel);
  return {};
}

Status Order(Segmented& program, const GroupOptions&) {
  program.groups = OrderForOverlap(std::move(program.groups));
  return {};
}

constexpr GroupPass kTable[] = {
#define GROUP_PASS(Function, name, need, doc) {name, Function, need, doc},
#include "host_ir/pipeline/group_passes.def"
};

// Fusion passes that save work, and that nothing behind them needs.
constexpr std::string_view kOptionalFusionPasses = "cse,fold_casts,fold_permutes,transpose_products";

Result<const GroupPass*> Find(std::string_view name) {
  std::vector<std::string_view> known;
  for (const GroupPass& pass : kTable) {
    if (pass.name == name) return &pass;
    known.push_back(pass.name);
  }
  return ir::CheckPassName(name, known);
}

void Dump(const Segmented& program, std::string_view pass) {
  std::string text = Cat("// groups after ", pass, "\n");
  for (const segment::Group& group : program.groups) {
    const auto name = [](const ir::Value* value) { return value->name; };
    std::vector<std::string> ops;
    std::vector<std::string_view> inputs, outputs;
    for (const ir::Op* op : group.ops) ops.push_back(Cat(op->results[0]->name, " = ", op->info->name));
    std::ranges::transform(group.inputs, std::back_inserter(inputs), name);
    std::ranges::transform(group.outputs, std::back_inserter(outputs), name);
    base::Append(text, base::Join(ops, ", "), " (", base::Join(inputs, ", "), " -> ", base::Join(outputs, ", "), ")\n");
  }
  std::fputs(text.c_str(), stderr);
}

}  // namespace

constinit const std::span<const GroupPass> kGroupPasses = kTable;

Status RunGroupPasses(Segmented& program, std::string_view names, const GroupOptions& options) {
  // Copies of ops are inferred again. What that finds is known of the ops, and may name a rank's place in a mesh.
  const std::vector<ir::Guard> guards = program.graph->guards;
  const std::vector<std::string_view> without = ir::PassNames(options.without);
  const bool dumps = static_cast<bool>(ir::DumpFromEnvironment("groups"));
  for (const std::string_view name : ir::PassNames(names)) {
    HIR_ASSIGN(const GroupPass* const pass, Find(name));
    const bool is_off = !options.segmentation.saves_bytes || std::ranges::find(without, name) != without.end();
    if (is_off && pass->need == kOptional) continue;
    HIR_TRY(pass->run(program, options));
    if (dumps) Dump(program, name);
  }
  program.graph->guards = guards;
  for (StreamLoop& loop : program.loops) {
    HIR_TRY(RunGroupPasses(loop.body.segments, names, options));
    if (loop.rest != nullptr) HIR_TRY(RunGroupPasses(loop.rest_body.segments, names, options));
  }
  return {};
}

std::vector<std::string_view> OptionalPasses() {
  std::vector<std::string_view> names = ir::PassNames(kOptionalFusionPasses);
  for (const GroupPass& pass : kTable) {
    if (pass.need == kOptional) names.push_back(pass.name);
  }
  return names;
}

}  // namespace hir::host
