// Few rows, long reductions: the reduced range is cut into parts, each reduced by another piece of the grid into a
// workspace [part, row...]; a second launch reduces over the parts. What then runs over the same range again
// (statistics, and what they normalise) reads the results of that launch: a further reduction in parts and its second
// launch, and at last everything that is stored, point by point.
//
//   sum:         parts of x;  the sum of the parts, and its epilogue
//   batch norm:  parts of x and x * x;  their sums;  y, point by point, which reads x again
//   softmax of one long row: parts of the maximum;  it;  parts of the sum of exp(x - maximum);  it;  y, point by point
//
// Bytes moved: the inputs once a reduction that waits for another and once for what is stored, from the second-level
// cache where they fit it; the workspace (parts * rows * 4 to 8 bytes, some hundred KiB) written and read once; one
// launch more each, about 10 us, of a GPU that starts it early 1 to 2.
//
// On a GPU there are as many parts as give each multiprocessor two CTAs, but none is shorter than one CTA reads at
// once: an expression of the sizes, so one plan serves all that are few.
#include <algorithm>
#include <set>

#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

constexpr int64_t kTripsOfUnknown = 65536;
constexpr int64_t kColumnsOfPartials = 256;
// On a GPU, along rows: what 128 threads read with one vector of 8 each. And parts begin at such multiples.
constexpr int64_t kShortestPart = 1024;
constexpr int64_t kPartUnit = 64;
// Along columns: 16 rows of threads with 8 vectors each.
constexpr int64_t kShortestPartOfColumns = 128;

// Where a reduction is cut: at the outermost loop that has enough trips, so that each part reads what lies side by
// side; else at the longest.
size_t LoopToCut(NestBuilder& builder, const Phase& phase, int64_t parts) {
  for (size_t i = 0; i < phase.loops.size(); ++i) {
    if (builder.facts().AtLeast(phase.loops[i].end, parts, false)) return i;
  }
  size_t longest = 0;
  for (size_t i = 1; i < phase.loops.size(); ++i) {
    if (TripsOf(phase.loops[i], kTripsOfUnknown) > TripsOf(phase.loops[longest], kTripsOfUnknown)) longest = i;
  }
  return longest;
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
    blocks = pool.Mul(blocks, last ? pool.Max(pool.Const(1), pool.FloorDiv(end, pool.Const(kColumnsOfPartials))) : end);
  }
  return blocks;
}

// From how many elements reduced into one result on. `again`: other loops over the same range follow; `is_alone`: it is
// the one row.
int64_t LongTrips(const NestBuilder& builder, bool again, bool is_alone) {
  const Walks walks = WalksOf(builder.target());
  const bool along_rows = ReducesInnermost(builder);
  if (!again) return along_rows ? walks.long_row : walks.long_trips;
  if (!along_rows) return walks.long_trips_again;
  return is_alone ? walks.long_row_alone : walks.long_row_again;
}

// The most elements that one of the phases reduces into a result. In halves: hundreds of sums, each of a tensor of its
// own, would nest too deep one by one.
const ir::Expr* LongestOf(ir::ExprPool& pool, const Region& region, const std::vector<size_t>& reducing) {
  std::vector<const ir::Expr*> longest;
  for (const size_t p : reducing) {
    const ir::Expr* trips = pool.Const(1);
    for (const Loop& loop : region.phases[p].loops) trips = pool.Mul(trips, loop.end);
    if (std::ranges::find(longest, trips) == longest.end()) longest.push_back(trips);
  }
  while (longest.size() > 1) {
    const size_t half = (longest.size() + 1) / 2;
    for (size_t i = half; i < longest.size(); ++i) longest[i - half] = pool.Max(longest[i - half], longest[i]);
    longest.resize(half);
  }
  return longest.front();
}

}  // namespace

bool WantsParts(NestBuilder& builder, const Region& region) {
  const std::vector<size_t> reducing = ReducingPhases(region);
  if (reducing.empty()) return false;
  ir::ExprPool& pool = builder.nest().exprs;
  const bool again = std::ranges::count_if(region.phases, [](const Phase& p) { return !p.loops.empty(); }) > 1;
  const ir::Expr* longest = LongestOf(pool, region, reducing);
  SizeFacts& facts = builder.facts();
  const ir::Expr* blocks = BlocksOf(builder, region);
  return !facts.AtLeast(blocks, WalksOf(builder.target()).few_items, true) &&
         facts.AtLeast(longest, LongTrips(builder, again, blocks->IsConst(1)), true);
}

std::vector<size_t> ReducingPhases(const Region& region) {
  std::vector<size_t> phases;
  for (size_t p = 0; p < region.phases.size(); ++p) {
    if (!region.phases[p].accumulators.empty()) phases.push_back(p);
  }
  return phases;
}

void PartsLaunch::ReduceParts(size_t p) {
  ir::ExprPool& pool = builder_.nest().exprs;
  fusion::ElementBuilder& elements = builder_.nest().elements;
  Phase phase = std::move(region_.phases[p]);
  const Walks walks = WalksOf(builder_.target());
  const int64_t most = walks.full_items;
  Loop& loop = phase.loops[LoopToCut(builder_, phase, most)];
  const ir::Expr* parts = pool.Const(std::clamp<int64_t>(TripsOf(loop, most), 1, most));
  const ir::Expr* length = nullptr;
  if (walks.has_parts_by_size) {
    const bool along_rows = ReducesInnermost(builder_);
    const ir::Expr* one = pool.Const(1);
    const ir::Expr* trips = one;
    for (const Loop& each : phase.loops) trips = pool.Mul(trips, each.end);
    const ir::Expr* long_enough = pool.FloorDiv(trips, pool.Const(along_rows ? kShortestPart : kShortestPartOfColumns));
    const ir::Expr* fill = pool.FloorDiv(pool.Const(most), pool.Max(BlocksOf(builder_, region_), one));
    parts = pool.Max(one, pool.Min(pool.Min(long_enough, fill), loop.end));
    if (along_rows && phase.loops.size() == 1) {
      const ir::Expr* unit = pool.Const(kPartUnit);
      length = pool.Mul(unit, pool.CeilDiv(pool.CeilDiv(loop.end, parts), unit));
    }
  }
  if (length == nullptr) length = pool.CeilDiv(loop.end, parts);
  const int part = builder_.NewVariable();
  const ir::Expr* begin = pool.Mul(pool.Symbol(VariableSymbol(part)), length);
  loop = {loop.variable, begin, pool.Min(pool.Add(begin, length), loop.end)};
  region_.grid.insert(region_.grid.begin(), {part, pool.Const(0), parts});

  Phase last;
  for (const Accumulator& accumulator : phase.accumulators) {
    std::vector<ir::Axis> axes = ir::ValueAxes(*accumulator.value->type);
    axes.insert(axes.begin(), {ir::AxisKind::kIteration, parts});
    std::vector<const fusion::Element*> index = builder_.RowIndex(accumulator.value);
    index.insert(index.begin(), elements.Index(part));
    last.stores.push_back(Make(accumulator, std::move(axes), std::move(index)));
  }
  region_.phases.clear();
  region_.phases.push_back(std::move(phase));
  region_.phases.push_back(std::move(last));
}

void PartsLaunch::CombineParts(size_t p, std::span<const Kept> parts, bool is_last, bool keep) {
  ir::ExprPool& pool = builder_.nest().exprs;
  fusion::ElementBuilder& elements = builder_.nest().elements;
  Phase phase = std::move(region_.phases[p]);
  const int part = builder_.NewVariable();
  const ir::Expr* count = ir::ValueAxes(*parts[0].value->type)[0].extent;
  phase.loops = {{part, pool.Const(0), pool.Import(count)}};
  phase.stores.clear();  // The first launch made them.
  Phase last;
  const bool read_later = keep || std::ranges::any_of(region_.phases, [&](const Phase& other) {
                            return &other > &region_.phases[p] && !other.loops.empty();
                          });
  for (size_t k = 0; k < parts.size(); ++k) {
    Accumulator& accumulator = phase.accumulators[k];
    std::vector<const fusion::Element*> index = builder_.RowIndex(accumulator.value);
    if (read_later) last.stores.push_back(Make(accumulator, ir::ValueAxes(*accumulator.value->type), index));
    index.insert(index.begin(), elements.Index(part));
    accumulator.body = elements.MakeLoad(Use(parts[k]), index);
  }
  for (const Phase& other : region_.phases) {
    if (is_last && other.loops.empty()) last.stores.insert(last.stores.end(), other.stores.begin(), other.stores.end());
  }
  region_.phases.clear();
  region_.phases.push_back(std::move(phase));
  if (!last.stores.empty()) region_.phases.push_back(std::move(last));
}

void PartsLaunch::StoreRows() {
  std::erase_if(region_.phases, [](const Phase& phase) { return !phase.loops.empty(); });
}

void PartsLaunch::StorePoints(size_t p) {
  Phase phase = std::move(region_.phases[p]);
  std::vector<Loop> loops = std::move(phase.loops);
  loops.insert(loops.begin(), region_.grid.begin(), region_.grid.end());
  // As the first output lies.
  const auto& index = phase.stores[0].index;
  std::ranges::stable_sort(loops, {}, [&](const Loop& loop) {
    const auto at = std::ranges::find_if(index, [&](const fusion::Element* e) {
      return e->kind == fusion::Element::Kind::kIndex && e->integer == loop.variable;
    });
    return at - index.begin();
  });
  region_.grid = std::move(loops);
  phase.loops.clear();
  region_.phases.clear();
  region_.phases.push_back(std::move(phase));
}

Region PartsLaunch::Finish(std::span<const Kept> results) {
  std::unordered_map<const ir::Value*, const Kept*> known;
  std::set<const ir::Value*> own;
  for (const Phase& phase : region_.phases) {
    for (const Accumulator& accumulator : phase.accumulators) own.insert(accumulator.value);
  }
  for (const auto& [phase, accumulators] : builder_.accumulators()) {
    for (const Accumulator& accumulator : accumulators) {
      if (own.contains(accumulator.value)) continue;
      const auto kept = std::ranges::find(results, builder_.SourceOf(accumulator.value), &Kept::source);
      if (kept != results.end()) known[accumulator.value] = &*kept;
    }
  }
  const auto read = [&](const fusion::Element*& element) {
    element = builder_.Rewrite(element, [&](const fusion::Element* e) -> const fusion::Element* {
      if (e->kind != fusion::Element::Kind::kLoad || !known.contains(e->value)) return nullptr;
      return builder_.nest().elements.MakeLoad(Use(*known.at(e->value)), e->args);
    });
  };
  for (Phase& phase : region_.phases) {
    for (Accumulator& accumulator : phase.accumulators) read(accumulator.body);
    for (Store& store : phase.stores) read(store.value);
  }
  return std::move(region_);
}

const ir::Value* PartsLaunch::Use(const Kept& kept) {
  const auto at = std::ranges::find(used_.numbers, kept.workspace);
  if (at != used_.numbers.end()) return used_.values[static_cast<size_t>(at - used_.numbers.begin())];
  const ir::Value* value = builder_.MakeValue(kept.value->type->dtype, ir::ValueAxes(*kept.value->type));
  builder_.AddTensor(Tensor::Role::kWorkspace, value);
  used_.numbers.push_back(kept.workspace);
  used_.values.push_back(value);
  return value;
}

Store PartsLaunch::Make(const Accumulator& accumulator, std::vector<ir::Axis> axes,
                        std::vector<const fusion::Element*> index) {
  const ir::Value* value = builder_.MakeValue(accumulator.dtype, std::move(axes));
  const int number = first_workspace_ + static_cast<int>(made_.size());
  made_.push_back({builder_.SourceOf(accumulator.value), value, number});
  used_.numbers.push_back(number);
  used_.values.push_back(value);
  return {builder_.AddTensor(Tensor::Role::kWorkspace, value), std::move(index),
          builder_.nest().elements.MakeLoad(accumulator.value, builder_.RowIndex(accumulator.value))};
}

}  // namespace hir::codegen
