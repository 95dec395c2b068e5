#include "csrc/codegen/codegen.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>

#include "csrc/base/text.h"
#include "csrc/codegen/cost.h"
#include "csrc/codegen/paired.h"
#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using base::Cat;

std::vector<const ir::Value*> PointwiseOutputs(const Structure& structure) {
  std::vector<const ir::Value*> outputs;
  for (const OutputPlace& output : structure.outputs) {
    if (output.phase < 0 && !output.late) outputs.push_back(output.value);
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
  std::vector<int> of_sums;
  const auto add_workspace = [&](const ir::Value* value) {
    plan.workspaces.push_back({.bytes = BytesOf(builder.nest().exprs, *value->type), .zeroed = false});
  };
  for (const RowSums::OfRows& of_rows : sums.of_rows) {
    of_sums.push_back(static_cast<int>(plan.workspaces.size()));
    add_workspace(of_rows.value);
  }
  for (const RowSums::Partial& partial : sums.partials) {
    of_sums.push_back(static_cast<int>(plan.workspaces.size()));
    add_workspace(partial.value);
  }
  for (const ir::Value* value : sums.kept) add_workspace(value);
  HIR_TRY(AddLaunch(plan, builder, name));
  if (of_sums.empty()) return {};
  NestBuilder second(group, classes, structure, plan.target, plan.sizes, strides);
  AddSumsOfRows(second, sums);
  AddSumsOfParts(second, sums);
  return AddLaunch(plan, second, Cat(name, ".1"), std::move(of_sums));
}

Region MakeJoined(NestBuilder& builder) {
  Region region = MakeReductionRegion(builder);
  JoinLoops(builder, region);
  return region;
}

// Whether phase `p` of `region` reads what phases from `first` on accumulate.
bool ReadsPhases(const NestBuilder& builder, const Region& region, size_t first, size_t p) {
  std::set<const ir::Value*> made;
  for (size_t q = first; q < p; ++q) {
    for (const Accumulator& accumulator : region.phases[q].accumulators) made.insert(accumulator.value);
  }
  const Phase& phase = region.phases[p];
  return std::ranges::any_of(phase.accumulators, [&](const Accumulator& a) { return builder.Reads(a.body, made); }) ||
         std::ranges::any_of(phase.stores, [&](const Store& s) { return builder.Reads(s.value, made); });
}

// The next phases that are reduced part by part, taken out of `left`: as far as they wait for nothing of each other,
// and with each one that needs no more than it.
std::vector<Together> TakeBatch(NestBuilder& builder, const Region& region, std::vector<size_t>& left) {
  size_t end = 1;
  while (end < left.size() && !ReadsPhases(builder, region, left[0], left[end])) ++end;
  std::vector<Together> batch;
  for (size_t i = 0; i < end; ++i) batch.push_back({left[i], {}});
  left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(end));
  for (Together& phases : batch) {
    const auto second =
        std::ranges::find_if(left, [&](size_t q) { return PairedOf(builder, region, phases.first, q).has_value(); });
    if (second == left.end()) continue;
    phases.second = *second;
    left.erase(second);
  }
  return batch;
}

// Reductions part by part: see partials.cc. `region` is what MakeJoined made of `builder`, which decided so; launches
// make it anew. Phases that wait for nothing of each other share their launches, a region each: the squares of all
// gradients, their sums, and all updates, in three.
Status PlanInParts(const segment::GroupView& group, const AxisClasses& classes, const Structure& structure,
                   const std::string& name, const Strides& strides, NestBuilder& builder, const Region& region,
                   KernelPlan& plan) {
  std::vector<Kept> results;
  using Make = std::function<void(PartsLaunch&, size_t)>;  // Of the phase with that number of the batch.
  const auto launch = [&](size_t count, const Make& make) -> Result<std::vector<std::vector<Kept>>> {
    std::optional<NestBuilder> fresh;  // The first launch has the guards of the decision.
    NestBuilder& own =
        plan.launches.empty() ? builder : fresh.emplace(group, classes, structure, plan.target, plan.sizes, strides);
    const Region all = plan.launches.empty() ? region : MakeJoined(own);
    std::vector<std::vector<Kept>> made;
    std::vector<Region> regions;
    UsedWorkspaces used;
    for (size_t i = 0; i < count; ++i) {
      PartsLaunch parts(own, all, static_cast<int>(plan.workspaces.size()), used);
      make(parts, i);
      regions.push_back(parts.Finish(results));
      for (const Kept& kept : parts.made()) {
        plan.workspaces.push_back({.bytes = BytesOf(own.nest().exprs, *kept.value->type), .zeroed = false});
      }
      made.push_back(parts.made());
    }
    // All are made before the first is added: that joins loops of one which the others still have apart.
    for (Region& each : regions) AddRegion(own, std::move(each));
    if (plan.launches.empty()) AddPointwiseRegions(own, PointwiseOutputs(structure));
    const size_t number = plan.launches.size();
    HIR_TRY(AddLaunch(plan, own, number == 0 ? name : Cat(name, ".", number), std::move(used.numbers)));
    return made;
  };
  std::vector<size_t> storing, per_row;
  for (size_t p = 0; p < region.phases.size(); ++p) {
    const Phase& phase = region.phases[p];
    if (phase.loops.empty()) per_row.push_back(p);
    if (!phase.loops.empty() && phase.accumulators.empty()) storing.push_back(p);
  }
  for (std::vector<size_t> left = ReducingPhases(region); !left.empty();) {
    const std::vector<Together> batch = TakeBatch(builder, region, left);
    HIR_ASSIGN(const std::vector<std::vector<Kept>> parts,
               launch(batch.size(), [&](PartsLaunch& l, size_t i) { l.ReduceParts(batch[i]); }));
    // Stores of one element a row go into the launch of the last sums, if that has all of them.
    const bool stores = left.empty() && batch.size() == 1;
    if (stores) per_row.clear();
    HIR_ASSIGN(const std::vector<std::vector<Kept>> sums, launch(batch.size(), [&](PartsLaunch& l, size_t i) {
                 l.CombineParts(batch[i], parts[i], stores, batch.size() > 1);
               }));
    for (const std::vector<Kept>& kept : sums) results.insert(results.end(), kept.begin(), kept.end());
  }
  if (!per_row.empty()) storing.push_back(per_row.front());
  if (storing.empty()) return {};
  const bool has_row_elements = std::ranges::any_of(results, [](const Kept& kept) { return kept.row_element >= 0; });
  const auto store = [&](PartsLaunch& l, size_t i) {
    if (region.phases[storing[i]].loops.empty()) {
      l.StoreRows();
    } else {
      l.StorePoints(storing[i], has_row_elements);
    }
  };
  return launch(storing.size(), store).status();
}

}  // namespace

struct Acceptance::Known {
  struct Answer {
    std::vector<const ir::Op*> ops;
    Verdict verdict;
    Cost cost;
  };

  const Answer& Of(const segment::GroupView& group) {
    Answer& answer = answers[{group.ops.empty() ? nullptr : group.ops.front(), group.ops.size()}];
    if (std::ranges::equal(answer.ops, group.ops)) return answer;
    answer = {.ops = {group.ops.begin(), group.ops.end()}, .verdict = {}, .cost = {}};
    if (std::string reason = TooLarge(group); !reason.empty()) {
      answer.verdict.reason = std::move(reason);
      return answer;
    }
    std::optional<AxisClasses> classes;
    std::optional<Structure> structure = AnalysePointwise(group, axes);
    if (!structure) structure = Analyse(group, classes.emplace(group, axes));
    answer.verdict = {structure->reason.empty(), structure->reason, structure->schedule};
    if (answer.verdict.accepted) answer.cost = costs.Of(group, *structure, axes, classes ? &*classes : nullptr);
    return answer;
  }

  OpAxes axes;
  CostModel costs;
  struct HashOf {
    size_t operator()(const std::pair<const ir::Op*, size_t>& key) const {
      return std::hash<const ir::Op*>()(key.first) ^ (key.second * 0x9e3779b97f4a7c15);
    }
  };
  // By the first op and how many there are: groups of a segmentation only grow, so that each keeps its answer while
  // others that it might become are asked of. Lookups only.
  std::unordered_map<std::pair<const ir::Op*, size_t>, Answer, HashOf> answers;
};

Acceptance::Acceptance(const Target& target, const Sizes& sizes)
    : known_(std::make_unique<Known>(Known{.axes = {}, .costs = CostModel(target, sizes), .answers = {}})) {}
Acceptance::~Acceptance() = default;

Verdict Acceptance::Of(const segment::GroupView& group) { return known_->Of(group).verdict; }

std::optional<Cost> Acceptance::CostOf(const segment::GroupView& group) {
  const Known::Answer& answer = known_->Of(group);
  return answer.verdict.accepted ? std::optional(answer.cost) : std::nullopt;
}

int64_t Acceptance::BytesOf(const ir::Value& value) { return known_->costs.BytesOf(value); }

Verdict Accepts(const segment::GroupView& group) { return Acceptance().Of(group); }

Result<KernelPlan> Plan(const segment::GroupView& group, const std::string& name, const Target& target,
                        const Sizes& sizes, const Strides& strides) {
  OpAxes axes;
  const AxisClasses classes(group, axes);
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
  if (WalksOf(target).reduces_rows_in_order && structure.schedule == "reduction") {
    const Structure in_order = AnalyseInOrder(group, classes);
    if (in_order.reason.empty() && RowsInOrderPay(builder)) {
      HIR_TRY(PlanInnerOuter(group, classes, in_order, name, strides, plan));
      return plan;
    }
  }
  if (!structure.reductions.empty()) {
    Region region = MakeJoined(builder);
    if (!region.phases.empty() && WantsParts(builder, region)) {
      HIR_TRY(PlanInParts(group, classes, structure, name, strides, builder, region, plan));
      return plan;
    }
    InlineShortReductions(builder, region);
    ReadPairsOnce(builder, region);
    if (!region.phases.empty()) AddRegion(builder, std::move(region));
  }
  AddPointwiseRegions(builder, PointwiseOutputs(structure));
  HIR_TRY(AddLaunch(plan, builder, name));
  return plan;
}

}  // namespace hir::codegen
