// Reductions over outer axes: vectors lie along a kept axis, threads of a CTA share the reduced ones.
//
//   thread (x, y) of `width` by threads / width:  for trips y, y + height, ...: accumulate its columns
//   the rows of threads together through shared memory, the results for every thread
//
// What is reduced and then read again (a normalisation over outer axes) stays in registers where a thread's vectors of
// it are few, so it is read once; the columns of a CTA are then only as many as make whole lines.
//
// Bytes: the inputs once. 512 threads with 8 vectors in flight are 64 KiB a CTA, 128 KiB a multiprocessor of two; a
// narrower reduction has fewer rows of threads. Where the columns do not fill the machine, partials.cc has cut the
// reduced range into parts before.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"
#include "csrc/codegen/gpu/staged_rows.h"
#include "csrc/codegen/walks.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {
constexpr int kColumnThreads = 512;
constexpr int kThreadsOfTwo = 2 * kColumnThreads;  // Of the CTAs of a multiprocessor, for whom there are registers.
constexpr int kWidth = 32;
constexpr int kWidthMin = 8;
constexpr int kWidthOfScalars = 128;
constexpr int64_t kWidthsOfLongRow = 4;  // As many widths are a long row.
constexpr int kWidthMinInCache = 2;      // 32 bytes, a sector.
constexpr int kThreadsOfShortRows = 128;
constexpr int64_t kLoadsAtOnce = 16, kElementsAtOnce = 48, kElementsStaged = 32;
constexpr int64_t kLongTrips = 64;  // Below, narrow blocks have nothing to share.
constexpr int kVectorsInFlight = 8;
constexpr int64_t kBytesInFlight = 16 * kVectorsInFlight;
constexpr int64_t kBytesOfNarrow = 32768;  // Of a CTA: half of what it has on its way in vectors of 16 bytes.
// Up to so many rows: softmax over 20 of 15 million bfloat16 takes 0.021 ms on an H200, by narrow blocks 0.081; over 40
// 0.022 and 0.047, over 80 0.025 and 0.041, over 128 0.033 and 0.031.
constexpr int64_t kTripsOfWide = 96;
constexpr int64_t kBytesOfLine = 128;
constexpr int kRowsOfThread = 8;
constexpr int kVectorsHeld = 12;                                        // Of 4 registers each.
static_assert(kColumnThreads / kWidthMin * kVectorsHeld == kRowsHeld);  // As plans and costs take it.
constexpr int64_t kBytesStaged = 32768;                                 // Of a CTA, at most: it has 48 KiB.
constexpr int64_t kStagedSquares = 12800;  // Of the lengths of a multiprocessor's rows: 512 rows of 5.
constexpr int64_t kFewSteps = 4;           // Of a thread: behind more of them latencies are hidden.

// CTAs of `width` threads along the columns, by what is known of sizes.
struct Blocks {
  int64_t vectors = 1, others = 1;  // Of one row; its rows.
  int64_t enough = 1;               // That fill three quarters of the machine.
  int64_t all = 1;                  // One on each multiprocessor.
  bool is_long = false;             // Threads walk over many rows.

  int64_t Apart(int width) const { return (vectors + width - 1) / width * others; }
  int64_t Packed(int width) const { return (vectors * others + width - 1) / width; }
  // Whether one row's columns leave half of the threads without work, and going on into the next rows leaves enough.
  bool Packs(int width) const { return others > 1 && vectors * 2 <= width && Packed(width) >= all; }
  // At most so many threads, and no more than there is work for: with blocks of equal widths where few are needed.
  int Fitting(int width) const {
    if (Packs(width)) return width;
    // Threads that each read many rows read whole cache lines where there is one for each vector of columns.
    if (vectors <= width)
      return static_cast<int>(is_long ? vectors : std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(vectors, 1))));
    const int64_t count = (vectors + width - 1) / width;
    return vectors * 4 < count * width * 3 ? static_cast<int>((vectors + count - 1) / count) : width;
  }
  int64_t Of(int width) const { return Packs(width) ? Packed(width) : Apart(width); }
};

Blocks BlocksOf(Emitter& em, const Region& region, const KernelPlan& plan, int vector) {
  Blocks blocks;
  blocks.all = std::max(plan.target.multiprocessors, 1);
  blocks.enough = std::max<int64_t>(blocks.all * 3 / 4, 1);
  for (const Loop& loop : region.grid) {
    const bool is_column = loop.variable == vector;
    const int64_t trips = SizeOf(em.indices.TripsOf(std::span(&loop, 1)), plan.sizes, is_column ? kUnknown : 1);
    int64_t& product = is_column ? blocks.vectors : blocks.others;
    product = std::min(product * trips, int64_t{1} << 30);
  }
  return blocks;
}

// Elements of columns that no vector fits, likewise: each thread up to so many of all that it loads, by blocks of whole
// lines if they can be (softmax over 40 of [b, 40, 1001], 30 MB, 0.025 ms on an H200, read three times 0.041; over 200
// 0.025 and 0.047).
void TryHoldingElements(Emitter& em, const Region& region, const Blocks& blocks, Schedule& s) {
  size_t loads = 1;
  int64_t bytes = 8;
  for (const Phase& phase : region.phases) {
    std::vector<Access> scalars = em.loads.Scalars(RootsOf(phase), region.grid, {});
    std::erase_if(scalars, [&](const Access& a) { return !em.dependences.VariesWith(a.load, phase.loops); });
    loads = std::max(loads, scalars.size());
    for (const Access& access : scalars) bytes = std::min(bytes, DTypeBytes(access.load->dtype));
  }
  constexpr struct { int64_t elements, bytes; } kBlocks[] = {{24, kBytesOfLine}, {32, kBytesOfLine}, {32, 0}};
  for (const auto& block : kBlocks) {
    const int64_t each = std::max<int64_t>(block.elements / static_cast<int64_t>(loads), 1);
    const auto rows = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((s.vectors + each - 1) / each)));
    const int width = static_cast<int>(std::min<int64_t>(kWidthOfScalars, kColumnThreads / rows));
    if (width < kWidth || width * bytes < block.bytes) continue;
    if (blocks.vectors < width || blocks.Of(width) < blocks.all) return;
    s.held = true;
    s.width = width;
    s.threads = width * static_cast<int>(rows);
    s.unroll = static_cast<int>((s.vectors + rows - 1) / rows);
    return;
  }
}

}  // namespace

void ChooseColumns(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kColumns;
  int64_t trips = 1;
  int64_t loads = 1, bytes = 16;  // Vectors of a step, and what they take.
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    trips = std::max(trips, SizeOf(em.indices.TripsOf(phase.loops), plan.sizes, kUnknown));
    const std::vector<Access> vectors = em.loads.Vectors(RootsOf(phase));
    if (static_cast<int64_t>(vectors.size()) < loads) continue;
    loads = static_cast<int64_t>(vectors.size());
    bytes = 0;
    for (const Access& access : vectors) bytes += em.places.BytesOf(access);
  }
  s.vectors = trips;
  // Narrower where the columns would not fill the machine; three quarters of it do (2048 x 16384: 128 CTAs 0.0248 ms,
  // 256 of half the width 0.0285).
  const auto column = std::ranges::find(region.grid, s.vector, &Loop::variable);
  Blocks blocks = BlocksOf(em, region, plan, s.vector);
  blocks.is_long = blocks.vectors > 1 && trips * blocks.vectors >= kLongTrips * kColumnThreads;
  // Long rows that are read by elements: as many threads as fill lines of memory.
  const bool by_elements = s.lanes == 1 && !s.adds_parts && blocks.vectors >= kWidthsOfLongRow * kWidthOfScalars;
  const int wider = by_elements ? kWidthOfScalars / kWidth : 1;
  s.width = kWidth * wider;
  const int width_min = s.adds_parts && s.lanes > 1 ? kWidthMinInCache : kWidthMin * wider;
  while (trips >= kLongTrips && s.width > width_min && blocks.Of(s.width) < blocks.enough) s.width /= 2;
  const bool is_constant = column->end->IsConst() && std::ranges::all_of(region.phases, [&](const Phase& phase) {
                             return IsConstant(em.indices.TripsOf(phase.loops));
                           });
  if (!is_constant && (s.width < kWidth || s.adds_parts)) s.width = kWidthMin;  // Few variants, each compiled once.
  const int fitting = blocks.Fitting(s.width);
  const bool is_pair = !is_constant && fitting <= kWidthMinInCache && !s.adds_parts;
  if (is_constant || is_pair) {
    s.width = is_pair ? kWidthMinInCache : fitting;
  } else if (fitting <= kWidthMin) {
    s.width = blocks.is_long ? fitting : kWidthMin;
  }
  // One CTA on each of few multiprocessors: all threads it can have (2048 x 1000: 0.0094 ms, 512 threads 0.0102).
  const bool few = s.width <= kWidthMin && is_constant && blocks.Of(s.width) * 2 < plan.target.multiprocessors;
  int height = (few ? 2 * kColumnThreads : kColumnThreads) / s.width;
  while (is_constant && height > 1 && height / 2 >= trips && s.width * height > 64) height /= 2;
  // In run_any rows of threads are wider, by the lanes.
  if (!std::has_single_bit(static_cast<unsigned>(s.width))) {
    const auto count = static_cast<unsigned>(height);
    height = height >= kLanesMax ? height / kLanesMax * kLanesMax
                                 : static_cast<int>(height >= trips ? std::bit_ceil(count) : std::bit_floor(count));
  }
  s.threads = s.width * height;
  // Where vectors are short, twice as many; four of them are as many bytes.
  const int64_t vectors = std::clamp<int64_t>(kBytesInFlight * loads / bytes, kVectorsInFlight, 2 * kVectorsInFlight);
  const int most = static_cast<int>(std::max<int64_t>(vectors / loads, 1));
  s.unroll = static_cast<int>(std::clamp<int64_t>(most, 1, std::max<int64_t>(trips / height, 1)));
  if (!is_constant) s.unroll = s.unroll < most && !is_pair ? 1 : most;
  s.ahead = is_constant && s.lanes == 1 && trips <= kFewSteps * height * s.unroll;
  s.stream = LoopingPhases(region) == 1;
  // Read once, where few vectors a thread hold all rows and where that is known.
  const int64_t rows_of_threads = kColumnThreads / kWidthMin;
  const bool is_known = is_constant && std::ranges::all_of(region.phases, [&](const Phase& phase) {
                          return em.indices.TripsOf(phase.loops)->IsConst();
                        });
  if (LoopingPhases(region) > 1 && is_known && s.lanes > 1 && trips > height &&
      trips <= rows_of_threads * kVectorsHeld) {
    s.held = true;
    s.width = kWidthMin;
    s.threads = kColumnThreads;
    // Where columns are many a CTA has more of them, and fewer rows of threads, so that none is idle.
    if (trips <= kTripsOfWide && blocks.Of(kWidth) >= blocks.all) {
      const auto rows =
          static_cast<int>(std::bit_ceil(static_cast<uint64_t>((trips + kRowsOfThread - 1) / kRowsOfThread)));
      s.width = rows > 16 ? kWidth / 2 : kWidth;
      s.threads = s.width * rows;
    }
    const int64_t rows = s.threads / s.width;
    s.unroll = static_cast<int>((trips + rows - 1) / rows);
  }
  if (LoopingPhases(region) > 1 && is_known && s.lanes == 1 && !s.adds_parts) TryHoldingElements(em, region, blocks, s);
  // Narrow vectors: as many bytes on their way by more threads.
  if (is_constant && !few && !s.held && 2 * s.threads <= kThreadsOfTwo && trips >= kLongTrips * height &&
      s.threads * s.unroll * bytes <= kBytesOfNarrow)
    s.threads *= 2;
  s.ctas_per_sm = s.held ? 1 : std::clamp(kThreadsOfTwo / s.threads, 1, 16);
  s.items_per_cta = int64_t{s.width} * s.lanes;
  s.is_packed = !s.held && (is_pair || blocks.Packs(s.width));
  s.is_exact =
      !s.is_packed && column->end->IsConst() && column->end->value % s.items_per_cta == 0 && s.items_per_cta > 0;
}

bool IsOneStep(const ir::Expr* trips, int lanes) {
  return trips->IsConst() && trips->value <= kLoadsAtOnce && trips->value * lanes <= kElementsAtOnce;
}

namespace {

std::vector<StagedTensor> StagedOf(Emitter& em, const Region& region, const Schedule& s) {
  return StagedTensorsOf(em, region, WithLast(region.grid, s.vector), s.width, kBytesStaged);
}

// By as many threads, or half of them, as have room.
void TryStaging(Emitter& em, const Region& region, Schedule& s) {
  for (int threads = s.width; !s.is_staged && threads >= std::max(s.width / 2, kWarp); threads /= 2) {
    Schedule half = s;
    half.width = half.threads = threads;
    half.is_staged = !StagedOf(em, region, half).empty();
    if (half.is_staged) s = half;
  }
}

}  // namespace

// Rows of few elements, contiguous or not: a thread for each, or for a vector of kept columns, and neighbours read what
// lies side by side.
void ChooseShortRows(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kColumns;
  const Blocks blocks = BlocksOf(em, region, plan, s.vector);
  s.width = kThreadsOfShortRows;
  const bool is_constant = IsConstant(em.indices.TripsOf(region.grid));  // Of symbols one text serves all.
  while (s.width > kWarp && blocks.Packed(s.width) < blocks.enough)
    s.width /= is_constant ? 2 : 4;  // Of symbols two texts.
  s.threads = s.width;
  s.unroll = kVectorsInFlight / 2;
  int64_t longest = 0;
  bool is_known = true;
  for (const Phase& phase : region.phases) {
    const ir::Expr* trips = em.indices.TripsOf(phase.loops);
    longest = std::max(longest, SizeOf(trips, plan.sizes, kUnknown));
    is_known = is_known && trips->IsConst();
  }
  // Where all rows are under way at once, waiting for each other costs more, unless they are longer.
  const bool are_many =
      longest > 0 && blocks.vectors * blocks.others >= kStagedSquares * blocks.all / (longest * longest);
  if (are_many && is_known && s.lanes == 1) TryStaging(em, region, s);
  s.ctas_per_sm = kThreadsOfTwo / s.threads;
  s.items_per_cta = int64_t{s.width} * s.lanes;
  s.is_packed = s.is_staged || (blocks.others > 1 && blocks.vectors * 2 <= s.width);
  // A row of known length is one step, without a loop: what several phases read is loaded once.
  const bool is_step = s.is_staged ? longest <= kElementsStaged : IsOneStep(em.pool.Const(longest), s.lanes);
  if (is_known && longest > 1 && is_step) s.unroll = static_cast<int>(longest);
  s.ahead = s.lanes == 1 && longest >= s.unroll;
  const auto column = std::ranges::find(region.grid, s.vector, &Loop::variable);
  s.is_exact = !s.is_packed && column->end->IsConst() && column->end->value % s.items_per_cta == 0;
}

namespace {

// One reading of the rows: each thread its trips, then the threads of a column together. `held`: what it keeps of them.
void EmitReading(Emitter& em, const Phase& phase, const Schedule& s, Held& held) {
  const int height = s.threads / s.width;
  std::vector<std::string> arrays, names;
  for (const Accumulator& accumulator : phase.accumulators) {
    arrays.push_back(em.code.NewName("acc"));
    names.push_back(Cat(arrays.back(), s.lanes > 1 ? "[e]" : "[0]"));
    em.code.Line(TypeText(accumulator.dtype), " ", arrays.back(), "[", s.lanes, "];");
    em.code.Line("#pragma unroll\nfor (int e = 0; e < ", s.lanes, "; ++e) ", arrays.back(),
                 "[e] = ", NeutralText(accumulator.kind, accumulator.dtype), ";");
  }
  const std::string count = em.code.NewName("n");
  em.code.Line("const ix ", count, " = live ? ", em.indices.Text(em.indices.TripsOf(phase.loops)), " : 0;");
  const ir::Expr* all = em.indices.TripsOf(phase.loops);
  const int unroll =
      all->IsConst() && !s.held ? static_cast<int>(std::clamp<int64_t>(all->value, 1, s.unroll)) : s.unroll;
  const bool is_single = height == 1 && !s.held && all->IsConst(unroll);
  const Walk walk = {.start = "y",
                     .step = height,
                     .count = count,
                     .unroll = unroll,
                     .rolled = s.rolled,
                     .is_whole = s.held,
                     .is_exact = is_single,
                     .is_single = is_single,
                     .reading = s.stream ? Values::Reading::kLast : Values::Reading::kPlain,
                     .ahead = s.ahead};
  Held* keep = s.held ? &held : nullptr;
  if (s.held) {
    const ir::Expr* trips = em.indices.TripsOf(phase.loops);
    em.conditions.Require(Cat(em.arguments.SymbolText(trips), " <= ", s.unroll * height));
  }
  EmitWalk(em, walk, phase.loops, phase.loops, RootsOf(phase), keep,
           [&] { em.lanes.Body(phase.accumulators, names, phase.stores); });
  if (keep != nullptr) KeepPacks(em.code, held.arrays, s.unroll);
  for (size_t k = 0; k < phase.accumulators.size(); ++k) {
    const Accumulator& accumulator = phase.accumulators[k];
    if (height > 1)
      em.code.Line("collect_columns<", InfoOf(accumulator.kind).c_name, ", ", s.width, ", ", height, ", ", s.lanes,
                   ">(", arrays[k], ", (", TypeText(accumulator.dtype), "*)scratch);");
    em.dependences.SetResult(accumulator.value, names[k], s.lanes > 1);
  }
}

// Shared memory in which threads of a column meet.
void DeclareScratch(Emitter& em, const Region& region, const Schedule& s) {
  int64_t shared = 0;
  for (const Phase& phase : region.phases) {
    for (const Accumulator& accumulator : phase.accumulators)
      shared = std::max(shared, int64_t{s.threads} * s.lanes * std::max<int64_t>(DTypeBytes(accumulator.dtype), 4));
  }
  if (shared > 0 && s.threads > s.width) em.code.Line("SHARED double scratch[", (shared + 7) / 8, "];");
}

// Defines `item` and `cv`, the row and the vector of columns of a thread, and whether there are any, `live`. Returns
// the grid.
const ir::Expr* EmitPlace(Emitter& em, std::span<const Loop> outer, const ir::Expr* columns, const Schedule& s) {
  ir::ExprPool& pool = em.pool;
  if (s.is_packed) {
    const ir::Expr* all = pool.Mul(em.indices.TripsOf(outer), columns);
    em.code.Line("const ix place = (ix)unit * ", s.width, " + t % ", s.width, ";");
    em.code.Line("const bool live = place < ", em.indices.Text(all), ";");
    em.code.Line("const ix cv = place % ", em.indices.Text(pool.Max(columns, pool.Const(1))), ";");
    em.code.Line("const ix item = live ? place / ", em.indices.Text(pool.Max(columns, pool.Const(1))), " : 0;");
    return pool.CeilDiv(all, pool.Const(s.width));
  }
  const ir::Expr* blocks = pool.CeilDiv(columns, pool.Const(s.width));
  em.code.Line("const ix block = (ix)unit % ", em.indices.Text(pool.Max(blocks, pool.Const(1))), ";");
  em.code.Line("const ix item = (ix)unit / ", em.indices.Text(pool.Max(blocks, pool.Const(1))), ";");
  em.code.Line("const ix cv = block * ", s.width, " + t % ", s.width, ";");
  em.code.Line("const bool live = cv < ", em.indices.Text(columns), ";");
  return pool.Mul(em.indices.TripsOf(outer), blocks);
}

}  // namespace

const ir::Expr* EmitColumns(Emitter& em, const Region& region, const Schedule& s) {
  em.vector.Set(s.vector, s.lanes);
  const std::vector<Loop> loops = WithLast(region.grid, s.vector);
  const Loop& column = loops.back();
  const std::span<const Loop> outer = std::span(loops).first(loops.size() - 1);
  const ir::Expr* units = EmitPlace(em, outer, em.indices.TripsOf(std::span(&column, 1)), s);
  em.code.Line("const int y = t / ", s.width, ";");
  const std::vector<StagedTensor> staged = s.is_staged ? StagedOf(em, region, s) : std::vector<StagedTensor>();
  if (s.is_staged) BeginStaging(em, staged, em.indices.Text(em.indices.TripsOf(loops)), s.width, s.threads);
  em.code.Open();  // Variables of the row.
  em.indices.Decode(outer, "item");
  em.code.Line("const ix c = live ? cv * ", s.lanes, " : 0;");
  em.code.Define(column.variable, "c");
  em.code.SetRowScope();
  if (s.lanes == 1) LoadWithRows(em, region);
  DeclareScratch(em, region, s);
  Held held;
  for (const Phase& phase : region.phases) {
    if (!phase.loops.empty()) {
      EmitReading(em, phase, s, held);
      continue;
    }
    em.code.Open();
    em.lanes.Body({}, {}, phase.stores);
    const std::string body = em.code.Close();
    em.code.Line("if (live && y == 0) {\n", body, "}");
  }
  const std::string body = em.code.Close();
  em.code.Line("{\n", body, "}");
  if (s.is_staged) EndStaging(em, staged, s.threads);
  return units;
}

}  // namespace hir::codegen::gpu
