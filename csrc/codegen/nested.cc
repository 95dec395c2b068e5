// Reductions that keep other axes than the rows of their region, beside those that keep exactly them: the sums of each
// channel in the backward pass of a group norm, whose rows are groups of channels; the total beside the sums of rows.
//
//   launch 1: each row reduces its own elements, all of them or those of each of its outermost columns, while they are
//             read for what else the row computes, and leaves the results
//   launch 2: for each result, those that the rows left, and what is made of it
//
// Bytes moved beside inputs and outputs: 4 to 8 for each such result of a row, twice.
#include <algorithm>

#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

using fusion::Element;

// Where the results of a row lie that keep the first `columns` columns.
std::vector<int> PlaceOf(const Structure& structure, int columns) {
  std::vector<int> place = structure.rows;
  place.insert(place.end(), structure.columns.begin(), structure.columns.begin() + columns);
  return place;
}

const ir::Value* MakeWorkspace(NestBuilder& builder, DType dtype, const std::vector<int>& place) {
  std::vector<ir::Axis> axes;
  for (const int axis : place)
    axes.push_back({ir::AxisKind::kIteration, builder.nest().exprs.Import(builder.classes().Extent(axis))});
  return builder.MakeValue(dtype, std::move(axes), "partial");
}

std::vector<const Element*> IndexOf(NestBuilder& builder, const std::vector<int>& place) {
  std::vector<const Element*> index;
  for (const int axis : place) index.push_back(builder.nest().elements.Index(builder.Variable(axis)));
  return index;
}

bool HaveSame(const std::vector<int>& a, const std::vector<int>& b) {
  return a.size() == b.size() && std::ranges::is_permutation(a, b);
}

}  // namespace

void LeaveNested(NestBuilder& builder, Region& region, RowSums& sums) {
  Phase once_a_row;
  for (Phase& phase : region.phases) {
    std::vector<Accumulator> others;
    for (Accumulator& accumulator : phase.accumulators) {
      const NestBuilder::Source source = builder.SourceOf(accumulator.value);
      const int columns = source.reduction->nested;
      if (columns < 0) {
        others.push_back(std::move(accumulator));
        continue;
      }
      const std::vector<int> place = PlaceOf(builder.structure(), columns);
      const ir::Value* value = MakeWorkspace(builder, accumulator.dtype, place);
      const int tensor = builder.AddTensor(Tensor::Role::kWorkspace, value);
      sums.of_rows.push_back({source, value});
      if (columns > 0) {
        phase.nested_loops = static_cast<size_t>(columns);
        phase.nested.push_back({std::move(accumulator), tensor, IndexOf(builder, place)});
        continue;
      }
      const Element* result = builder.nest().elements.MakeLoad(accumulator.value, builder.RowIndex(accumulator.value));
      once_a_row.stores.push_back({tensor, IndexOf(builder, place), result});
      others.push_back(std::move(accumulator));
    }
    phase.accumulators = std::move(others);
  }
  if (!once_a_row.stores.empty()) region.phases.push_back(std::move(once_a_row));
}

void AddSumsOfRows(NestBuilder& builder, const RowSums& sums) {
  const Structure& structure = builder.structure();
  std::map<NestBuilder::Source, const ir::Value*> left;  // What the rows left of each.
  for (const RowSums::OfRows& of_rows : sums.of_rows) {
    const std::vector<int> place = PlaceOf(structure, of_rows.source.reduction->nested);
    const ir::Value* value = MakeWorkspace(builder, of_rows.value->type->dtype, place);
    builder.AddTensor(Tensor::Role::kWorkspace, value);
    left[of_rows.source] = value;
  }
  const auto is_of_rows = [&](const OutputPlace& output) {
    return output.late && structure.reductions[*output.late].nested >= 0;
  };
  std::vector<std::vector<int>> done;  // Classes that outputs keep.
  for (const OutputPlace& first : structure.outputs) {
    if (!is_of_rows(first)) continue;
    const Reduction& reduction = structure.reductions[*first.late];
    if (std::ranges::any_of(done, [&](const auto& kept) { return HaveSame(kept, reduction.kept); })) continue;
    done.push_back(reduction.kept);
    builder.StartRegion();
    Region region;
    Phase totals, stores;
    for (const OutputPlace& output : structure.outputs) {
      if (!is_of_rows(output) || !HaveSame(structure.reductions[*output.late].kept, reduction.kept)) continue;
      stores.stores.push_back({builder.AddTensor(Tensor::Role::kOutput, output.value),
                               builder.CanonicalIndex(output.value), builder.ElementOf(output.value)});
    }
    for (const int axis : PlaceOf(structure, reduction.nested)) {
      const bool is_kept = std::ranges::find(reduction.kept, axis) != reduction.kept.end();
      (is_kept ? region.grid : totals.loops).push_back(builder.LoopOver(axis));
    }
    std::map<const ir::Value*, const Element*> results;  // Where there is nothing to add up.
    for (auto& [phase, accumulators] : builder.accumulators()) {
      for (Accumulator& accumulator : accumulators) {
        const auto source = left.find(builder.SourceOf(accumulator.value));
        if (source == left.end()) continue;  // Part of a body that ran before.
        const std::vector<int> place = PlaceOf(structure, source->first.reduction->nested);
        accumulator.body = builder.nest().elements.MakeLoad(source->second, IndexOf(builder, place));
        results[accumulator.value] = accumulator.body;
        totals.accumulators.push_back(std::move(accumulator));
      }
    }
    if (totals.loops.empty()) {
      for (Store& store : stores.stores) {
        store.value = builder.Rewrite(store.value, [&](const Element* e) -> const Element* {
          if (e->kind != Element::Kind::kLoad) return nullptr;
          const auto result = results.find(e->value);
          return result == results.end() ? nullptr : result->second;
        });
      }
      region.phases = {std::move(stores)};
    } else {
      region.phases = {std::move(totals), std::move(stores)};
    }
    AddRegion(builder, std::move(region));
  }
}

}  // namespace hir::codegen
