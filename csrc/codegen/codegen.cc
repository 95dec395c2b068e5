#include "csrc/codegen/codegen.h"

#include <algorithm>
#include <optional>

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

// `workspaces`: those of its slots, in their order; all that there are where it says nothing.
Status AddLaunch(KernelPlan& plan, NestBuilder& builder, std::string name,
                 std::optional<std::vector<int>> workspaces = {}) {
  HIR_ASSIGN(auto made, builder.Finish());
  made.first.kernel = std::move(name);
  if (workspaces) {
    made.first.workspaces = std::move(*workspaces);
  } else {
    for (size_t i = 0; i < plan.workspaces.size(); ++i) made.first.workspaces.push_back(static_cast<int>(i));
  }
  for (const ir::Guard& guard : builder.facts().guards()) AddGuard(plan, guard);
  plan.launches.push_back(std::move(made.first));
  plan.nests.push_back(std::move(made.second));
  return {};
}

Status PlanInnerOuter(const segment::GroupView& group, const AxisClasses& classes, const Structure& structure,
                      const std::string& name, const Strides& strides, KernelPlan& plan) {
  NestBuilder builder(group, classes, structure, plan.target, plan.sizes, strides);
  if (structure.schedule == "reduction") RowsInOrderPay(builder);  // A guard on this plan, too.
  const RowSums sums = AddRowsInParts(builder);
  AddPointwiseRegions(builder, PointwiseOutputs(structure));
  std::vector<int> of_partials;
  const auto add_workspace = [&](const ir::Value* value) {
    plan.workspaces.push_back({.bytes = BytesOf(builder.nest().exprs, *value->type), .zeroed = false});
  };
  for (const RowSums::Partial& partial : sums.partials) {
    of_partials.push_back(static_cast<int>(plan.workspaces.size()));
    add_workspace(partial.value);
  }
  for (const ir::Value* value : sums.kept) add_workspace(value);
  HIR_TRY(AddLaunch(plan, builder, name));
  if (sums.partials.empty()) return {};
  NestBuilder second(group, classes, structure, plan.target, plan.sizes, strides);
  AddSumsOfParts(second, sums);
  return AddLaunch(plan, second, Cat(name, ".1"), std::move(of_partials));
}

Region MakeJoined(NestBuilder& builder) {
  Region region = MakeReductionRegion(builder);
  JoinLoops(builder, region);
  return region;
}

// Reductions part by part: see partials.cc. `region` is what MakeJoined made of `builder`, which decided so.
Status PlanInParts(const segment::GroupView& group, const AxisClasses& classes, const Structure& structure,
                   const std::string& name, const Strides& strides, NestBuilder& builder, Region region,
                   KernelPlan& plan) {
  const std::vector<size_t> reducing = ReducingPhases(region);
  std::vector<size_t> storing;
  for (size_t p = 0; p < region.phases.size(); ++p) {
    if (!region.phases[p].loops.empty() && region.phases[p].accumulators.empty()) storing.push_back(p);
  }
  std::vector<Kept> results;
  const auto launch = [&](NestBuilder& own, Region whole, const auto& make) -> Result<std::vector<Kept>> {
    PartsLaunch parts(own, std::move(whole), static_cast<int>(plan.workspaces.size()));
    make(parts);
    AddRegion(own, parts.Finish(results));
    if (plan.launches.empty()) AddPointwiseRegions(own, PointwiseOutputs(structure));
    for (const Kept& kept : parts.made()) {
      plan.workspaces.push_back({.bytes = BytesOf(own.nest().exprs, *kept.value->type), .zeroed = false});
    }
    const size_t number = plan.launches.size();
    HIR_TRY(AddLaunch(plan, own, number == 0 ? name : Cat(name, ".", number), parts.workspaces()));
    return parts.made();
  };
  const auto anew = [&](const auto& make) {
    NestBuilder own(group, classes, structure, plan.target, plan.sizes, strides);
    Region whole = MakeJoined(own);
    return launch(own, std::move(whole), make);
  };
  std::vector<Kept> parts;
  for (const size_t p : reducing) {
    const auto reduce = [&](PartsLaunch& l) { l.ReduceParts(p); };
    if (plan.launches.empty()) {
      HIR_ASSIGN(parts, launch(builder, std::move(region), reduce));
    } else {
      HIR_ASSIGN(parts, anew(reduce));
    }
    HIR_ASSIGN(const std::vector<Kept> made,
               anew([&](PartsLaunch& l) { l.CombineParts(p, parts, p == reducing.back()); }));
    results.insert(results.end(), made.begin(), made.end());
  }
  for (const size_t p : storing) HIR_TRY(anew([&](PartsLaunch& l) { l.StorePoints(p); }).status());
  return {};
}

}  // namespace

Verdict Accepts(const segment::GroupView& group) {
  const Structure structure = Analyse(group, AxisClasses(group));
  return {structure.reason.empty(), structure.reason, structure.schedule, structure.is_starved};
}

Result<KernelPlan> Plan(const segment::GroupView& group, const std::string& name, const Target& target,
                        const Sizes& sizes, const Strides& strides) {
  const AxisClasses classes(group);
  const Structure structure = Analyse(group, classes);
  if (!structure.reason.empty()) return Internal(Cat(name, ": no kernel holds this group: ", structure.reason));
  KernelPlan plan;
  plan.target = target;
  plan.sizes = sizes;
  plan.schedule = structure.schedule;
  if (structure.outputs.empty()) return plan;  // Host scalars: whoever reads them computes them.
  if (!structure.columns.empty()) {
    HIR_TRY(PlanInnerOuter(group, classes, structure, name, strides, plan));
    return plan;
  }
  NestBuilder builder(group, classes, structure, target, sizes, strides);
  if (target.kind == Target::Kind::kCpu && structure.schedule == "reduction") {
    const Structure in_order = AnalyseInOrder(group, classes);
    if (in_order.reason.empty() && RowsInOrderPay(builder)) {
      HIR_TRY(PlanInnerOuter(group, classes, in_order, name, strides, plan));
      return plan;
    }
  }
  if (!structure.reductions.empty()) {
    Region region = MakeJoined(builder);
    if (!region.phases.empty() && WantsParts(builder, region)) {
      HIR_TRY(PlanInParts(group, classes, structure, name, strides, builder, std::move(region), plan));
      return plan;
    }
    if (!region.phases.empty()) AddRegion(builder, std::move(region));
  }
  AddPointwiseRegions(builder, PointwiseOutputs(structure));
  HIR_TRY(AddLaunch(plan, builder, name));
  return plan;
}

}  // namespace hir::codegen
