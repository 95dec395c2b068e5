// The schedules: each makes regions of a nest. One file each. Private to csrc/codegen.
#pragma once

#include <map>
#include <vector>

#include "csrc/codegen/nest_builder.h"

namespace hir::codegen {

// pointwise.cc: outputs that depend on no reduction.
void AddPointwiseRegions(NestBuilder& builder, const std::vector<const ir::Value*>& outputs);

// reduction.cc: all reductions of the group and the outputs that go with them, in one region without a
// decision about vectors.
Region MakeReductionRegion(NestBuilder& builder);

// partials.cc: whether the region has too few rows to keep a machine busy, and can be computed in two launches.
bool WantsPartials(NestBuilder& builder, const Region& region);
// First launch: each of several parts of the reduced range into a workspace, one per accumulator, returned in
// their order.
std::vector<const ir::Value*> MakePartials(NestBuilder& builder, Region& region);
// Second launch, on a region made anew: the parts together, and what depends on them.
void CombinePartials(NestBuilder& builder, Region& region,
                     const std::vector<const ir::Value*>& partials);

// inner_outer.cc: reductions over columns and over rows, in one pass over the rows and a second launch.
// Whether a "reduction" that could run its rows in order is fast so: a CPU reads pages that follow each other faster
// than blocks of columns, but few rows make more partial results than they save.
bool RowsInOrderPay(NestBuilder& builder);
// Reductions over rows, part by part.
struct RowSums {
  struct Partial {
    const ir::Value* value = nullptr;  // A workspace.
    int depth = 0;                     // It keeps the first `depth` rows' axes.
  };
  std::vector<Partial> partials;
  // Of each reduction the partial that it is; or, where several share sums, that of each term of its body (terms.h).
  std::map<NestBuilder::Source, std::vector<size_t>> sources;
  bool shared = false;
};
// First launch: all that is made row by row, and the parts' sums.
RowSums AddRowsInParts(NestBuilder& builder);
// Second launch: the parts together, and what depends on them.
void AddSumsOfParts(NestBuilder& builder, const RowSums& sums);

// region_axes.cc: chooses the axis that is innermost, splits what is too long, and what is parallel from what is not;
// adds the region. For GPUs adds it as it is.
// REQUIRES: grid holds every loop outside the phases and serial is empty, or serial is decided; columns are empty.
void AddRegion(NestBuilder& builder, Region region);

// The trip count where it is constant, else `otherwise`.
int64_t TripsOf(const Loop& loop, int64_t otherwise);

}  // namespace hir::codegen
