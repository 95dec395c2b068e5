// Few rows, long reductions: the reduced range is cut into parts, each reduced by another piece of the grid into a
// workspace [part, row...]; a second launch reduces over the parts. What then runs over the same range again
// (statistics, and what they normalise) reads the results of that launch: a further reduction in parts and its second
// launch, and at last everything that is stored, point by point.
//
//   sum:         parts of x;  the sum of the parts, and its epilogue
//   batch norm:  parts of x and of squared deviations from a part's mean (paired.h);  theirs;  y, point by point, which
//                reads x again
//   softmax of one long row: parts of the maximum, and of the sum of exp(x - a part's maximum);  theirs;  y, point by
//                point
//
// Bytes moved: the inputs once a reduction that waits for another and is not reduced in the same parts, and once for
// what is stored, from the second-level cache where they fit it; the workspace (parts * rows * 4 to 8 bytes, some
// hundred KiB) written and read once; one launch more each, about 10 us, of a GPU that starts it early 1 to 2.
//
// On a GPU there are as many parts as give each multiprocessor two CTAs, but none is shorter than one CTA reads at
// once: an expression of the sizes, so one plan serves all that are few. Parts that are read twice are more.
#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <unordered_map>

#include "csrc/codegen/paired.h"
#include "csrc/codegen/schedules.h"

namespace hir::codegen {
namespace {

constexpr int64_t kTripsOfUnknown = 65536;
// On a GPU, along rows: what 128 threads read with one vector of 8 each. And parts begin at such multiples.
constexpr int64_t kShortestPart = 1024;
constexpr int64_t kPartUnit = 64;
constexpr int64_t kUnitsOfPiece = 4;
// Along columns: 16 rows of threads with 8 vectors each.
constexpr int64_t kShortestPartOfColumns = 128;
constexpr int64_t kRowElementCost = 8;  // Of what is computed once a row, in instructions: a division, a function.
constexpr size_t kRowElementsMax = 8;
constexpr int64_t kBytesOfVector = 16;
// In the time of a function a CTA reads so much, by PrimCost: the sum of 83040 logarithms of bfloat16 takes 0.0156 ms
// on an H200, of the elements 0.0060.
constexpr int64_t kBytesOfFunction[] = {0, 5, 10, 30};
constexpr int64_t kElementsAbreast = 64;  // Eight vectors of float32 with AVX2.
// The longest part that softmax along columns reads twice: each of a GPU's threads has 4 vectors of it, and a core's
// cache has 1000 columns.
constexpr int64_t kPartOfColumnsAgain = 256;

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

// Grid items; where rows are contiguous, a block of them is one.
const ir::Expr* BlocksOf(NestBuilder& builder, const Region& region) {
  ir::ExprPool& pool = builder.nest().exprs;
  const bool each = ReducesInnermost(builder);
  const ir::Expr* blocks = pool.Const(1);
  for (size_t i = 0; i < region.grid.size(); ++i) {
    const ir::Expr* end = region.grid[i].end;
    const bool last = !each && i + 1 == region.grid.size();
    blocks = pool.Mul(blocks, last ? pool.Max(pool.Const(1), pool.FloorDiv(end, pool.Const(kColumnsOfItem))) : end);
  }
  return blocks;
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

// What the reductions of a phase read of memory for an element; and, with `functions`, what passes in the time of those
// that they compute.
int64_t BytesOfElement(NestBuilder& builder, const Phase& phase, bool functions) {
  const auto& inputs = builder.group().inputs;
  std::set<const fusion::Element*> seen;
  int64_t bytes = 0;
  const auto visit = [&](const auto& self, const fusion::Element* e) -> void {
    if (!seen.insert(e).second) return;
    const bool is_input =
        e->kind == fusion::Element::Kind::kLoad && std::ranges::find(inputs, e->value) != inputs.end();
    if (is_input) bytes += DTypeBytes(e->value->type->dtype);
    if (e->kind == fusion::Element::Kind::kPrim && functions)
      bytes += kBytesOfFunction[static_cast<size_t>(fusion::InfoOf(e->prim).cost)];
    for (const fusion::Element* arg : e->args) self(self, arg);
  };
  for (const Accumulator& accumulator : phase.accumulators) visit(visit, accumulator.body);
  return bytes;
}

}  // namespace

bool ReducesInnermost(const NestBuilder& builder) {
  const Reduction& reduction = builder.structure().reductions.front();
  const std::vector<int> domain = DomainInMemory(builder.group(), builder.classes(), reduction);
  return !domain.empty() && std::ranges::find(reduction.reduced, domain.back()) != reduction.reduced.end();
}

bool WantsParts(NestBuilder& builder, const Region& region) {
  const std::vector<size_t> reducing = ReducingPhases(region);
  if (reducing.empty()) return false;
  ir::ExprPool& pool = builder.nest().exprs;
  const bool again = std::ranges::count_if(region.phases, [](const Phase& p) { return !p.loops.empty(); }) > 1;
  const ir::Expr* longest = LongestOf(pool, region, reducing);
  SizeFacts& facts = builder.facts();
  const ir::Expr* blocks = BlocksOf(builder, region);
  const Walks walks = WalksOf(builder.target());
  int64_t element = 0;
  for (const size_t p : reducing) element += BytesOfElement(builder, region.phases[p], true);
  return !facts.AtLeast(blocks, walks.few_items, true) &&
         facts.AtLeast(longest, LongTrips(walks, ReducesInnermost(builder), again, blocks->IsConst(1), element), true);
}

bool TakesRowsAbreast(NestBuilder& builder) {
  const Walks walks = WalksOf(builder.target());
  if (walks.short_columns == 0) return false;
  const Reduction& reduction = builder.structure().reductions.front();
  const auto is_reduced = [&](int axis) {
    return std::ranges::find(reduction.reduced, axis) != reduction.reduced.end();
  };
  const std::vector<int> domain = DomainInMemory(builder.group(), builder.classes(), reduction);
  for (const ir::Value* input : builder.group().inputs) {
    if (!IsTensor(*input)) continue;
    const std::vector<int> axes = Varying(builder.classes().Of(input));
    if (std::ranges::any_of(axes, is_reduced) && axes != domain) return false;
  }
  ir::ExprPool& pool = builder.nest().exprs;
  const ir::Expr *rows = pool.Const(1), *columns = rows, *others = rows;
  for (size_t i = domain.size(); i-- > 0;) {
    const ir::Expr*& product = is_reduced(domain[i]) ? rows : rows->IsConst(1) ? columns : others;
    product = pool.Mul(product, pool.Import(builder.classes().Extent(domain[i])));
  }
  SizeFacts& facts = builder.facts();
  return !facts.AtLeast(columns, walks.short_columns, true) && !facts.AtLeast(others, walks.few_items, true) &&
         facts.AtLeast(rows, walks.long_trips, true);
}

void ReadPairsOnce(NestBuilder& builder, Region& region) {
  const Walks walks = WalksOf(builder.target());
  if (walks.far_again == 0) return;
  const bool along_rows = ReducesInnermost(builder);
  if (along_rows && builder.facts().AtLeast(BlocksOf(builder, region), walks.few_rows_again, true)) return;
  for (size_t p = 0; p + 1 < region.phases.size(); ++p) {
    const Phase& phase = region.phases[p];
    const Phase& next = region.phases[p + 1];
    if (phase.loops.empty() || phase.accumulators.empty() || next.accumulators.empty()) continue;
    // What else goes over the range behind the first sum would still read it.
    if (!next.stores.empty() || !next.nested.empty() || !phase.nested.empty()) continue;
    if (!PairedOf(builder, region, p, p + 1)) continue;
    const ir::Expr* trips = LongestOf(builder.nest().exprs, region, {p});
    const int64_t bytes = std::max<int64_t>(BytesOfElement(builder, phase, false), 1);
    const int64_t far = along_rows ? walks.far_vectors_again * kBytesOfVector / bytes : walks.far_again;
    if (builder.facts().AtLeast(trips, far, true)) ReadOnce(builder, region, p, p + 1);
  }
}

std::vector<size_t> ReducingPhases(const Region& region) {
  std::vector<size_t> phases;
  for (size_t p = 0; p < region.phases.size(); ++p) {
    if (!region.phases[p].accumulators.empty()) phases.push_back(p);
  }
  return phases;
}

namespace {

// Whether parts of both phases are: sums of exponentials are read behind the maximum.
bool IsReadTwice(NestBuilder& builder, const Region& region, const Together& phases) {
  const auto paired = PairedOf(builder, region, phases.first, *phases.second);
  return std::ranges::any_of(*paired, [](const Paired& pair) { return pair.center == nullptr; });
}

}  // namespace

PartsLaunch::Cut PartsLaunch::CutOf(const Together& phases) {
  ir::ExprPool& pool = builder_.nest().exprs;
  const Phase& phase = region_.phases[phases.first];
  const Walks walks = WalksOf(builder_.target());
  const int64_t most = walks.full_items;
  const size_t number = LoopToCut(builder_, phase, most);
  const Loop& loop = phase.loops[number];
  const bool along_rows = ReducesInnermost(builder_);
  const ir::Expr* trips = pool.Const(1);
  for (const Loop& each : phase.loops) trips = pool.Mul(trips, each.end);
  const int64_t abreast = AbreastOf(phases);
  const ir::Expr* steps = pool.CeilDiv(loop.end, pool.Const(abreast));
  const ir::Expr* parts = pool.Const(std::clamp<int64_t>(steps->IsConst() ? steps->value : most, 1, most));
  if (walks.has_parts_by_size) {
    const ir::Expr* one = pool.Const(1);
    const ir::Expr* long_enough = pool.FloorDiv(trips, pool.Const(along_rows ? kShortestPart : kShortestPartOfColumns));
    const ir::Expr* fill = pool.FloorDiv(pool.Const(most), pool.Max(BlocksOf(builder_, region_), one));
    parts = pool.Max(one, pool.Min(pool.Min(long_enough, fill), loop.end));
  }
  // A part that is read twice is short enough to be near the second time.
  const int64_t longest = along_rows ? walks.long_part_again : kPartOfColumnsAgain;
  if (phases.second && IsReadTwice(builder_, region_, phases))
    parts = pool.Max(parts, pool.Min(pool.CeilDiv(trips, pool.Const(longest)), steps));
  const ir::Expr* length = pool.CeilDiv(steps, parts);
  const ir::Expr* unit = pool.Const(kPartUnit);
  // Each piece of a row begins a vector; that they are a little longer must not leave many fewer of them.
  const bool is_long =
      length->IsConst() && length->value >= kUnitsOfPiece * kPartUnit && number + 1 == phase.loops.size();
  if (walks.has_parts_by_size && along_rows && (phase.loops.size() == 1 || is_long)) {
    length = pool.Mul(unit, pool.CeilDiv(length, unit));
  }
  return {number, parts, length, abreast};
}

// How many trips are taken abreast, that what they read is as long as several vectors: of rows of a few columns.
int64_t PartsLaunch::AbreastOf(const Together& phases) {
  const int64_t short_row = WalksOf(builder_.target()).short_columns;
  if (short_row == 0 || region_.grid.empty() || ReducesInnermost(builder_) || !TakesRowsAbreast(builder_)) return 1;
  for (const size_t p : {phases.first, phases.second.value_or(phases.first)}) {
    const Phase& phase = region_.phases[p];
    const auto is_float = [](const Accumulator& a) { return IsFloat(a.dtype); };
    if (phase.loops.size() != 1 || !phase.stores.empty() || !std::ranges::all_of(phase.accumulators, is_float))
      return 1;
  }
  const ir::Expr* columns = region_.grid.back().end;
  if (!columns->IsConst()) return short_row;
  const auto rows = static_cast<uint64_t>(kElementsAbreast / std::max<int64_t>(columns->value, 1));
  return static_cast<int64_t>(std::bit_floor(rows));
}

PartsLaunch::Part PartsLaunch::NewPart(const Cut& cut) {
  Part part = {builder_.NewVariable(), -1};
  if (cut.abreast > 1) part.of_abreast = builder_.NewVariable();
  return part;
}

std::vector<Loop> PartsLaunch::LoopsOver(const Part& part, const Cut& cut) const {
  ir::ExprPool& pool = builder_.nest().exprs;
  std::vector<Loop> loops = {{part.number, pool.Const(0), cut.parts}};
  if (cut.abreast > 1) loops.push_back({part.of_abreast, pool.Const(0), pool.Const(cut.abreast)});
  return loops;
}

std::vector<const fusion::Element*> PartsLaunch::IndexOf(const Part& part,
                                                         std::vector<const fusion::Element*> index) const {
  fusion::ElementBuilder& elements = builder_.nest().elements;
  if (part.of_abreast >= 0) index.insert(index.begin(), elements.Index(part.of_abreast));
  index.insert(index.begin(), elements.Index(part.number));
  return index;
}

// The loop's variable counts steps of several trips now. The last step of all may be short: its trips are of a phase of
// their own, and those beyond the end add nothing. Whether one is, is asked of where its elements lie, and results have
// no index, so that the loops over trips abreast and over columns can be one.
void PartsLaunch::LayAbreast(const Phase& whole, const Cut& cut, const Part& part, std::vector<Phase>& phases,
                             std::vector<Result>& results) {
  using fusion::Element;
  using fusion::Prim;
  if (cut.abreast == 1) return;
  ir::ExprPool& pool = builder_.nest().exprs;
  fusion::ElementBuilder& elements = builder_.nest().elements;
  const Loop& loop = whole.loops[cut.loop];
  const Loop& column = region_.grid.back();
  const Element* step = elements.Index(loop.variable);
  const Element* trip = elements.Apply(
      Prim::kAdd,
      {elements.Apply(Prim::kMul, {step, elements.Int(DType::kInt64, cut.abreast)}), elements.Index(part.of_abreast)});
  const Element* place = elements.Apply(
      Prim::kAdd, {elements.Apply(Prim::kMul, {trip, elements.Extent(column.end)}), elements.Index(column.variable)});
  const Element* exists = elements.Apply(Prim::kLt, {place, elements.Extent(pool.Mul(loop.end, column.end))});
  const ir::Expr* full = pool.FloorDiv(loop.end, pool.Const(cut.abreast));  // Steps.
  const bool all_exist = loop.end->IsConst() && loop.end->value % cut.abreast == 0;
  std::unordered_map<const ir::Value*, const Element*> made;  // Results, by what they were before.
  const std::string name = VariableSymbol(loop.variable);
  const ir::Expr* trip_expr =
      pool.Add(pool.Mul(pool.Symbol(name), pool.Const(cut.abreast)), pool.Symbol(VariableSymbol(part.of_abreast)));
  const auto leaf = [&](const Element* e) -> const Element* {
    if (e == step) return trip;
    if (std::ranges::count(VariablesOf(*e), loop.variable) > 0)
      return elements.Extent(pool.Substitute(pool.Import(e->extent), {{name, trip_expr}}));
    const auto at = e->kind == Element::Kind::kLoad ? made.find(e->value) : made.end();
    return at == made.end() ? nullptr : at->second;
  };
  std::vector<Phase> laid;
  for (const Phase& phase : phases) {
    Phase steps = phase, rest = phase;
    Loop& of_steps = steps.loops[cut.loop];
    Loop& of_rest = rest.loops[cut.loop];
    if (!all_exist) {
      of_steps.end = pool.Min(of_steps.end, full);
      of_rest.begin = pool.Max(of_rest.begin, full);
    }
    for (size_t k = 0; k < phase.accumulators.size(); ++k) {
      const Accumulator& old = phase.accumulators[k];
      const auto result_of = [&](Accumulator& own) {
        own.value = builder_.MakeValue(own.dtype, {}, "abreast");
        return elements.MakeLoad(own.value, {});
      };
      const Element* body = builder_.Rewrite(old.body, leaf);
      const Element* neutral = elements.Float(old.dtype, fusion::InfoOf(old.kind).neutral);
      steps.accumulators[k].body = body;
      rest.accumulators[k].body = elements.Select(exists, body, neutral);
      const Element* result = result_of(steps.accumulators[k]);
      if (!all_exist)
        result = elements.Apply(fusion::InfoOf(old.kind).combine, {result, result_of(rest.accumulators[k])});
      made[old.value] = result;
    }
    laid.push_back(std::move(steps));
    if (!all_exist) laid.push_back(std::move(rest));
  }
  phases = std::move(laid);
  for (Result& result : results) {
    result.element =
        result.element == nullptr ? made.at(result.accumulator.value) : builder_.Rewrite(result.element, leaf);
  }
}

const fusion::Element* PartsLaunch::CountOfPart(const Phase& phase, const Cut& cut, const Part& part,
                                                const ir::Expr* length, DType dtype) {
  using fusion::Prim;
  fusion::ElementBuilder& elements = builder_.nest().elements;
  ir::ExprPool& pool = builder_.nest().exprs;
  const ir::Expr* end = phase.loops[cut.loop].end;
  const fusion::Element* all = elements.Extent(end);
  if (cut.abreast > 1) {  // By where the first element lies, as in LayAbreast.
    const Loop& column = region_.grid.back();
    const ir::Expr* step = pool.Mul(pool.Const(cut.abreast), column.end);  // Elements from one trip to the next.
    const ir::Expr* beyond = pool.Add(pool.Mul(end, column.end), pool.Sub(step, pool.Const(1)));
    const fusion::Element* place = elements.Apply(
        Prim::kAdd, {elements.Apply(Prim::kMul, {elements.Index(part.of_abreast), elements.Extent(column.end)}),
                     elements.Index(column.variable)});
    all = elements.DividePlace(Prim::kDiv, elements.Apply(Prim::kSub, {elements.Extent(beyond), place}),
                               elements.Extent(step));
  }
  const fusion::Element* begin = elements.Apply(Prim::kMul, {elements.Index(part.number), elements.Extent(cut.length)});
  const fusion::Element* left = elements.Apply(Prim::kSub, {all, begin});
  const fusion::Element* own = elements.Apply(Prim::kMin, {left, elements.Extent(length)});
  const ir::Expr* others = pool.Const(1);
  for (size_t i = 0; i < phase.loops.size(); ++i) {
    if (i != cut.loop) others = pool.Mul(others, phase.loops[i].end);
  }
  own = elements.Apply(Prim::kMax, {own, elements.Int(DType::kInt64, 0)});
  return elements.Convert(dtype, elements.Apply(Prim::kMul, {own, elements.Extent(others)}));
}

void PartsLaunch::ReduceParts(const Together& phases) {
  ir::ExprPool& pool = builder_.nest().exprs;
  const Cut cut = CutOf(phases);
  const Part part = NewPart(cut);
  const ir::Expr* begin = pool.Mul(pool.Symbol(VariableSymbol(part.number)), cut.length);
  const auto cut_to = [&](Phase phase, const ir::Expr* length) {
    Loop& loop = phase.loops[cut.loop];
    const ir::Expr* steps = pool.CeilDiv(loop.end, pool.Const(cut.abreast));
    loop = {loop.variable, begin, pool.Min(pool.Add(begin, length), steps)};
    return phase;
  };
  const Phase& whole = region_.phases[phases.first];
  const ir::Expr* head_length = pool.CeilDiv(cut.length, pool.Const(kHeads));
  Phase first = cut_to(whole, cut.length), head = cut_to(whole, head_length), second;
  head.accumulators.clear();
  head.stores.clear();
  std::vector<Result> results;
  for (const Accumulator& accumulator : whole.accumulators) results.push_back({accumulator, nullptr});
  if (phases.second) {
    second = cut_to(region_.phases[*phases.second], cut.length);
    const auto paired = PairedOf(builder_, region_, phases.first, *phases.second);
    const std::vector<Accumulator> all = std::move(second.accumulators);
    second.accumulators.clear();
    for (size_t k = 0; k < all.size(); ++k) {
      const Paired& pair = (*paired)[k];
      if (pair.center == nullptr) {
        second.accumulators.push_back(all[k]);
        results.push_back({all[k], nullptr});
        continue;
      }
      const DType dtype = all[k].dtype;
      Deviations own =
          DeviationsOfPart(builder_, whole.accumulators[pair.first], CountOfPart(whole, cut, part, head_length, dtype),
                           CountOfPart(whole, cut, part, cut.length, dtype));
      head.accumulators.push_back(own.head);
      first.accumulators.insert(first.accumulators.end(), std::begin(own.shifted), std::end(own.shifted));
      results.push_back({all[k], own.result});
    }
  }
  std::vector<Phase> cut_phases;
  if (!head.accumulators.empty()) cut_phases.push_back(std::move(head));
  cut_phases.push_back(std::move(first));
  if (!second.accumulators.empty() || !second.stores.empty()) cut_phases.push_back(std::move(second));
  LayAbreast(whole, cut, part, cut_phases, results);
  const std::vector<Loop> loops = LoopsOver(part, cut);
  Phase last;
  for (const auto& [accumulator, result] : results) {
    std::vector<ir::Axis> axes = ir::ValueAxes(*accumulator.value->type);
    for (size_t i = loops.size(); i-- > 0;) axes.insert(axes.begin(), {ir::AxisKind::kIteration, loops[i].end});
    last.stores.push_back(
        Make(accumulator, std::move(axes), IndexOf(part, builder_.RowIndex(accumulator.value)), result));
  }
  region_.grid.insert(region_.grid.begin(), loops.begin(), loops.end());
  region_.phases = std::move(cut_phases);
  region_.phases.push_back(std::move(last));
}

void PartsLaunch::CombineParts(const Together& phases, std::span<const Kept> parts, bool is_last, bool keep) {
  fusion::ElementBuilder& elements = builder_.nest().elements;
  const Cut cut = CutOf(phases);
  const Part part = NewPart(cut);
  const auto is_one = [&](size_t p) { return p == phases.first || (phases.second && p == *phases.second); };
  bool read_later = keep;
  for (size_t p = 0; p < region_.phases.size(); ++p) {
    read_later = read_later || (p > phases.first && !is_one(p) && !region_.phases[p].loops.empty());
  }
  std::optional<std::vector<Paired>> paired;
  if (phases.second) paired = PairedOf(builder_, region_, phases.first, *phases.second);
  std::vector<Phase> together;
  Phase last;
  size_t next = 0;
  const auto combine = [&](size_t p, const auto& body_of) {
    Phase phase = region_.phases[p];
    phase.loops = LoopsOver(part, cut);
    phase.stores.clear();  // The first launch made them.
    for (size_t k = 0; k < phase.accumulators.size(); ++k) {
      Accumulator& accumulator = phase.accumulators[k];
      std::vector<const fusion::Element*> index = builder_.RowIndex(accumulator.value);
      if (read_later) last.stores.push_back(Make(accumulator, ir::ValueAxes(*accumulator.value->type), index));
      accumulator.body =
          body_of(k, accumulator, elements.MakeLoad(Use(parts[next++]), IndexOf(part, std::move(index))));
    }
    together.push_back(std::move(phase));
  };
  combine(phases.first, [](size_t, const Accumulator&, const fusion::Element* own) { return own; });
  if (phases.second) {
    combine(*phases.second, [&](size_t k, const Accumulator& accumulator, const fusion::Element* own) {
      const Paired& pair = (*paired)[k];
      const fusion::Element* elements_of_part =
          CountOfPart(region_.phases[phases.first], cut, part, cut.length, accumulator.dtype);
      return TermOfPart(builder_, pair, accumulator, together[0].accumulators[pair.first].body, own, elements_of_part);
    });
  }
  if (is_last) {
    const Accumulator& of_row = region_.phases[phases.first].accumulators[0];
    int number = 0;
    for (const fusion::Element* element : RowElements()) {
      last.stores.push_back(
          Make(of_row, ir::ValueAxes(*of_row.value->type), builder_.RowIndex(of_row.value), element, number++));
    }
  }
  for (const Phase& other : region_.phases) {
    if (is_last && other.loops.empty()) last.stores.insert(last.stores.end(), other.stores.begin(), other.stores.end());
  }
  region_.phases = std::move(together);
  if (!last.stores.empty()) region_.phases.push_back(std::move(last));
}

void PartsLaunch::StoreRows() {
  std::erase_if(region_.phases, [](const Phase& phase) { return !phase.loops.empty(); });
}

void PartsLaunch::StorePoints(size_t p, bool reads_row_elements) {
  if (reads_row_elements) row_elements_ = RowElements();
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
  std::set<const ir::Value*> own;
  for (const Phase& phase : region_.phases) {
    for (const Accumulator& accumulator : phase.accumulators) own.insert(accumulator.value);
  }
  std::map<NestBuilder::Source, std::vector<const Kept*>> by_source;
  for (const Kept& kept : results) by_source[kept.source].push_back(&kept);
  std::unordered_map<const ir::Value*, const Kept*> known;
  std::unordered_map<const fusion::Element*, std::pair<const Kept*, const ir::Value*>> of_rows;
  for (const auto& [phase, accumulators] : builder_.accumulators()) {
    for (const Accumulator& accumulator : accumulators) {
      const auto found = by_source.find(builder_.SourceOf(accumulator.value));
      if (found == by_source.end()) continue;
      for (const Kept* kept : found->second) {
        const auto number = static_cast<size_t>(kept->row_element);
        if (kept->row_element < 0 && !own.contains(accumulator.value)) known[accumulator.value] = kept;
        if (kept->row_element >= 0 && number < row_elements_.size())
          of_rows[row_elements_[number]] = {kept, accumulator.value};
      }
    }
  }
  const auto read = [&](const fusion::Element*& element) {
    element = builder_.Rewrite(element, [&](const fusion::Element* e) -> const fusion::Element* {
      if (const auto at = of_rows.find(e); at != of_rows.end())
        return builder_.nest().elements.MakeLoad(Use(*at->second.first), builder_.RowIndex(at->second.second));
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

std::vector<const fusion::Element*> PartsLaunch::RowElements() const {
  using fusion::Element;
  std::set<const ir::Value*> results;
  for (const auto& [phase, accumulators] : builder_.accumulators()) {
    for (const Accumulator& accumulator : accumulators) results.insert(accumulator.value);
  }
  // Whether an element is made of results and constants alone, whether it loads anything, and its cost.
  struct Made {
    bool of_results = false, reads = false;
    int64_t cost = 0;
  };
  std::unordered_map<const Element*, Made> known;
  const auto visit = [&](const auto& self, const Element* e) -> const Made& {
    if (const auto at = known.find(e); at != known.end()) return at->second;
    Made made;
    if (e->kind == Element::Kind::kLoad) {
      made = {results.contains(e->value), true, 0};
      return known[e] = made;
    }
    made.of_results = VariablesOf(*e).empty();
    if (e->kind == Element::Kind::kPrim)
      made.cost = fusion::IsFunction(e->prim) || e->prim == fusion::Prim::kDiv ? kRowElementCost : 1;
    for (const Element* arg : e->args) {
      const Made& of_arg = self(self, arg);
      made.of_results = made.of_results && of_arg.of_results;
      made.reads = made.reads || of_arg.reads;
      made.cost = std::min(made.cost + of_arg.cost, kRowElementCost);  // That it is enough is all that is asked.
    }
    return known[e] = made;
  };
  std::vector<const Element*> found;
  std::set<const Element*> seen;
  const auto collect = [&](const auto& self, const Element* e) -> void {
    if (!seen.insert(e).second || found.size() == kRowElementsMax) return;
    const Made& made = visit(visit, e);
    if (!made.of_results) {
      for (const Element* arg : e->args) self(self, arg);
    } else if (made.reads && made.cost >= kRowElementCost) {
      found.push_back(e);
    }
  };
  for (const Phase& phase : region_.phases) {
    if (phase.loops.empty() || !phase.accumulators.empty()) continue;
    for (const Store& store : phase.stores) collect(collect, store.value);
  }
  return found;
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
                        std::vector<const fusion::Element*> index, const fusion::Element* result, int row_element) {
  const ir::Value* value = builder_.MakeValue(result == nullptr ? accumulator.dtype : result->dtype, std::move(axes));
  const int number = first_workspace_ + static_cast<int>(made_.size());
  made_.push_back({builder_.SourceOf(accumulator.value), row_element, value, number});
  used_.numbers.push_back(number);
  used_.values.push_back(value);
  if (result == nullptr)
    result = builder_.nest().elements.MakeLoad(accumulator.value, builder_.RowIndex(accumulator.value));
  return {builder_.AddTensor(Tensor::Role::kWorkspace, value), std::move(index), result};
}

}  // namespace hir::codegen
