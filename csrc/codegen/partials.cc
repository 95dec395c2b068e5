// Few rows, long reductions: the reduced range is cut into parts, each reduced by another piece of the grid
// into a workspace
// [part, row...]; a second launch reduces over the parts.
//
// Bytes moved: the inputs once, as in one launch; the workspace (parts * rows * 4 to 8 bytes, some hundred
// KiB) written and
// read once; one launch more, about 10 us, of a GPU that starts it early 1 to 2.
//
// Of a GPU there are as many parts as give each multiprocessor two CTAs, but none is shorter than one CTA reads at
// once: an expression of the sizes, so one plan serves all that are few.
#include <algorithm>

#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

// Rows; with neighbouring rows in one item a block of them counts as one. Of a GPU: two blocks a multiprocessor.
constexpr int64_t kCpuItems = 64;
constexpr int64_t kItemsOfMultiprocessor = 2;
// Elements reduced into each: below, one launch is as fast.
constexpr int64_t kLongTrips = 16384;
constexpr int64_t kLongTripsGpu = 4096;
constexpr int64_t kUnknownTrips = 65536;
constexpr int64_t kColumnsInItem = 256;
// Of a GPU, along rows: what 128 threads read with one vector of 8 each. And parts begin at such multiples.
constexpr int64_t kShortestPart = 1024;
constexpr int64_t kPartUnit = 64;
// Along columns: 16 rows of threads with 8 vectors each.
constexpr int64_t kShortestPartOfColumns = 128;

// Where a reduction is cut: its longest loop.
size_t LongestLoop(const Phase& phase) {
  size_t longest = 0;
  for (size_t i = 1; i < phase.loops.size(); ++i) {
    if (TripsOf(phase.loops[i], kUnknownTrips) > TripsOf(phase.loops[longest], kUnknownTrips))
      longest = i;
  }
  return longest;
}

int64_t FewItems(const Target& target) {
  return target.kind == Target::Kind::kCpu
             ? kCpuItems
             : std::max(target.multiprocessors, 1) * kItemsOfMultiprocessor;
}

// Whether memory is contiguous along the reduced axes.
bool ReducesInnermost(const NestBuilder& builder) {
  const Reduction& reduction = builder.structure().reductions.front();
  int innermost = -1;
  for (const int axis : builder.classes().Of(reduction.op->operands[0])) {
    if (axis >= 0) innermost = axis;
  }
  return std::ranges::find(reduction.reduced, innermost) != reduction.reduced.end();
}

// Grid items; where rows are contiguous, a block of them is one.
const ir::Expr* BlocksOf(NestBuilder& builder, const Region& region) {
  ir::ExprPool& pool = builder.nest().exprs;
  const bool each = ReducesInnermost(builder);
  const ir::Expr* blocks = pool.Const(1);
  for (size_t i = 0; i < region.grid.size(); ++i) {
    const ir::Expr* end = region.grid[i].end;
    const bool last = !each && i + 1 == region.grid.size();
    blocks = pool.Mul(
        blocks,
        last ? pool.Max(pool.Const(1), pool.FloorDiv(end, pool.Const(kColumnsInItem))) : end);
  }
  return blocks;
}

}  // namespace

bool WantsPartials(NestBuilder& builder, const Region& region) {
  // One phase reduces, and nothing loops after it.
  if (region.phases[0].accumulators.empty() || region.phases.size() > 2) return false;
  if (region.phases.size() == 2 && !region.phases[1].loops.empty()) return false;
  ir::ExprPool& pool = builder.nest().exprs;
  const bool is_cpu = builder.target().kind == Target::Kind::kCpu;
  const ir::Expr* trips = pool.Const(1);
  for (const Loop& loop : region.phases[0].loops) trips = pool.Mul(trips, loop.end);
  SizeFacts& facts = builder.facts();
  // Of a GPU: so few that there are two parts and more.
  const int64_t few = is_cpu ? FewItems(builder.target()) : FewItems(builder.target()) / 2 + 1;
  return !facts.AtLeast(BlocksOf(builder, region), few, true) &&
         facts.AtLeast(trips, is_cpu ? kLongTrips : kLongTripsGpu, true);
}

std::vector<const ir::Value*> MakePartials(NestBuilder& builder, Region& region) {
  ir::ExprPool& pool = builder.nest().exprs;
  fusion::ElementBuilder& elements = builder.nest().elements;
  Phase& phase = region.phases[0];
  Loop& loop = phase.loops[LongestLoop(phase)];
  const int64_t most = FewItems(builder.target());
  const ir::Expr* parts = pool.Const(std::clamp<int64_t>(TripsOf(loop, most), 1, most));
  const ir::Expr* length = nullptr;
  if (builder.target().kind == Target::Kind::kGpu) {
    const bool along_rows = ReducesInnermost(builder);
    const ir::Expr* one = pool.Const(1);
    const ir::Expr* trips = one;
    for (const Loop& each : phase.loops) trips = pool.Mul(trips, each.end);
    const ir::Expr* long_enough =
        pool.FloorDiv(trips, pool.Const(along_rows ? kShortestPart : kShortestPartOfColumns));
    const ir::Expr* fill =
        pool.FloorDiv(pool.Const(most), pool.Max(BlocksOf(builder, region), one));
    parts = pool.Max(one, pool.Min(pool.Min(long_enough, fill), loop.end));
    if (along_rows && phase.loops.size() == 1) {
      const ir::Expr* unit = pool.Const(kPartUnit);
      length = pool.Mul(unit, pool.CeilDiv(pool.CeilDiv(loop.end, parts), unit));
    }
  }
  if (length == nullptr) length = pool.CeilDiv(loop.end, parts);
  const int part = builder.NewVariable();
  const ir::Expr* begin = pool.Mul(pool.Symbol(VariableSymbol(part)), length);
  loop = {loop.variable, begin, pool.Min(pool.Add(begin, length), loop.end)};
  region.grid.insert(region.grid.begin(), {part, pool.Const(0), parts});

  std::vector<const ir::Value*> partials;
  Phase last;
  for (const Accumulator& accumulator : phase.accumulators) {
    std::vector<ir::Axis> axes = ir::ValueAxes(*accumulator.value->type);
    axes.insert(axes.begin(), {ir::AxisKind::kIteration, parts});
    partials.push_back(builder.MakeValue(accumulator.dtype, axes));
    const std::vector<const fusion::Element*> canonical = builder.RowIndex(accumulator.value);
    std::vector<const fusion::Element*> stored = canonical;
    stored.insert(stored.begin(), elements.Index(part));
    last.stores.push_back({builder.AddTensor(Tensor::Role::kWorkspace, partials.back()), stored,
                           elements.MakeLoad(accumulator.value, canonical)});
  }
  region.phases.resize(1);
  region.phases.push_back(std::move(last));
  return partials;
}

void CombinePartials(NestBuilder& builder, Region& region,
                     const std::vector<const ir::Value*>& partials) {
  ir::ExprPool& pool = builder.nest().exprs;
  fusion::ElementBuilder& elements = builder.nest().elements;
  Phase& phase = region.phases[0];
  const int part = builder.NewVariable();
  for (size_t k = 0; k < partials.size(); ++k) {
    Accumulator& accumulator = phase.accumulators[k];
    const ir::Value* partial =
        builder.MakeValue(accumulator.dtype, ir::ValueAxes(*partials[k]->type));
    builder.AddTensor(Tensor::Role::kWorkspace, partial);
    std::vector<const fusion::Element*> index = builder.RowIndex(accumulator.value);
    index.insert(index.begin(), elements.Index(part));
    accumulator.body = elements.MakeLoad(partial, index);
  }
  const ir::Expr* parts = ir::ValueAxes(*partials[0]->type)[0].extent;
  phase.loops = {{part, pool.Const(0), pool.Import(parts)}};
  phase.stores.clear();  // The first launch made them.
}

}  // namespace hir::codegen
