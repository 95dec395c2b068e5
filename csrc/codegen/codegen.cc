#include "csrc/codegen/codegen.h"

#include <algorithm>

#include "csrc/base/text.h"
#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using base::Cat;

std::vector<const ir::Value*> PointwiseOutputs(const Structure& structure) {
  std::vector<const ir::Value*> outputs;
  for (const OutputPlace& output : structure.outputs) {
    if (output.phase < 0 && output.depth < 0) outputs.push_back(output.value);
  }
  return outputs;
}

void AddGuard(KernelPlan& plan, const ir::Guard& guard) {
  const bool known = std::ranges::any_of(plan.guards, [&](const ir::Guard& other) {
    return ir::Equal(other.left, guard.left) && ir::Equal(other.right, guard.right);
  });
  if (!known) plan.guards.push_back(guard);
}

Status AddLaunch(KernelPlan& plan, NestBuilder& builder, std::string name) {
  HIR_ASSIGN(auto made, builder.Finish());
  made.first.kernel = std::move(name);
  for (size_t i = 0; i < plan.workspaces.size(); ++i)
    made.first.workspaces.push_back(static_cast<int>(i));
  for (const ir::Guard& guard : builder.facts().guards()) AddGuard(plan, guard);
  plan.launches.push_back(std::move(made.first));
  plan.nests.push_back(std::move(made.second));
  return {};
}

Status PlanInnerOuter(const segment::GroupView& group, const AxisClasses& classes,
                      const Structure& structure, const std::string& name, KernelPlan& plan) {
  NestBuilder builder(group, classes, structure, plan.target, plan.sizes);
  if (structure.schedule == "reduction") RowsInOrderPay(builder);  // A guard on this plan, too.
  const RowSums sums = AddRowsInParts(builder);
  AddPointwiseRegions(builder, PointwiseOutputs(structure));
  for (const RowSums::Partial& partial : sums.partials) {
    plan.workspaces.push_back(
        {.bytes = BytesOf(builder.nest().exprs, *partial.value->type), .zeroed = false});
  }
  HIR_TRY(AddLaunch(plan, builder, name));
  if (sums.partials.empty()) return {};
  NestBuilder second(group, classes, structure, plan.target, plan.sizes);
  AddSumsOfParts(second, sums);
  return AddLaunch(plan, second, Cat(name, ".1"));
}

}  // namespace

Verdict Accepts(const segment::GroupView& group) {
  const Structure structure = Analyse(group, AxisClasses(group));
  return {structure.reason.empty(), structure.reason, structure.schedule};
}

Result<KernelPlan> Plan(const segment::GroupView& group, const std::string& name,
                        const Target& target, const Sizes& sizes) {
  const AxisClasses classes(group);
  const Structure structure = Analyse(group, classes);
  if (!structure.reason.empty())
    return Internal(Cat(name, ": no kernel holds this group: ", structure.reason));
  KernelPlan plan;
  plan.target = target;
  plan.sizes = sizes;
  plan.schedule = structure.schedule;
  if (structure.outputs.empty()) return plan;  // Host scalars: whoever reads them computes them.
  if (!structure.columns.empty()) {
    HIR_TRY(PlanInnerOuter(group, classes, structure, name, plan));
    return plan;
  }
  NestBuilder builder(group, classes, structure, target, sizes);
  if (target.kind == Target::Kind::kCpu && structure.schedule == "reduction") {
    const Structure in_order = AnalyseInOrder(group, classes);
    if (in_order.reason.empty() && RowsInOrderPay(builder)) {
      HIR_TRY(PlanInnerOuter(group, classes, in_order, name, plan));
      return plan;
    }
  }
  bool partial = false;
  std::vector<const ir::Value*> partials;
  if (!structure.reductions.empty()) {
    Region region = MakeReductionRegion(builder);
    if (!region.phases.empty()) {
      partial = WantsPartials(builder, region);
      if (partial) partials = MakePartials(builder, region);
      AddRegion(builder, std::move(region));
    }
  }
  AddPointwiseRegions(builder, PointwiseOutputs(structure));
  for (const ir::Value* value : partials) {
    plan.workspaces.push_back(
        {.bytes = BytesOf(builder.nest().exprs, *value->type), .zeroed = false});
  }
  HIR_TRY(AddLaunch(plan, builder, name));
  if (partial) {
    NestBuilder second(group, classes, structure, target, sizes);
    Region region = MakeReductionRegion(second);
    CombinePartials(second, region, partials);
    AddRegion(second, std::move(region));
    HIR_TRY(AddLaunch(plan, second, Cat(name, ".1")));
  }
  return plan;
}

}  // namespace hir::codegen
