// Reductions over outer axes: vectors lie along a kept axis, threads of a CTA share the reduced ones.
//
//   thread (x, y) of `width` by threads / width:  for trips y, y + height, ...: accumulate its columns
//   the rows of threads together through shared memory, the results for every thread
//
// Bytes: the inputs once. 512 threads with 8 vectors in flight are 64 KiB a CTA, 128 KiB a multiprocessor of two; a
// narrower reduction has fewer rows of threads. Where the columns do not fill the machine, partials.cc has cut the
// reduced range into parts before.
#include <algorithm>

#include "csrc/codegen/gpu/scalar.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {
constexpr int kThreads = 512;
constexpr int kWidth = 32;
constexpr int kWidthMin = 8;
constexpr int kWidthMinInCache = 2;  // 32 bytes, a sector.
constexpr int64_t kLongTrips = 64;   // Below, narrow blocks have nothing to share.
constexpr int kVectorsInFlight = 8;
constexpr int64_t kUnknown = 4096;
}  // namespace

void ChooseColumns(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& s) {
  s.kind = Schedule::Kind::kColumns;
  int64_t trips = 1;
  size_t loads = 1;
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) continue;
    trips = std::max(trips, SizeOf(em.TripsOf(phase.loops), plan.sizes, kUnknown));
    loads = std::max(loads, em.VectorLoads(RootsOf(phase)).size());
  }
  s.vectors = trips;
  // Narrower where the columns would not fill the machine.
  const Loop* column = nullptr;
  int64_t others = 1;
  for (const Loop& loop : region.grid) {
    if (loop.variable == s.vector) {
      column = &loop;
    } else {
      others = std::min(others * SizeOf(em.TripsOf(std::span(&loop, 1)), plan.sizes, 1),
                        int64_t{1} << 30);
    }
  }
  const int64_t vectors = SizeOf(em.TripsOf(std::span(column, 1)), plan.sizes, kUnknown);
  s.width = kWidth;
  const int width_min = s.adds_parts && s.lanes > 1 ? kWidthMinInCache : kWidthMin;
  while (trips >= kLongTrips && s.width > width_min &&
         (vectors + s.width - 1) / s.width * others < plan.target.multiprocessors)
    s.width /= 2;
  const bool is_constant =
      column->end->IsConst() && std::ranges::all_of(region.phases, [&](const Phase& phase) {
        return IsConstant(em.TripsOf(phase.loops));
      });
  if (!is_constant && s.width < kWidth) s.width = width_min;  // Few variants, each compiled once.
  int height = kThreads / s.width;
  while (is_constant && height > 1 && height / 2 >= trips && s.width * height > 64) height /= 2;
  s.threads = s.width * height;
  s.unroll = static_cast<int>(std::clamp<int64_t>(kVectorsInFlight / static_cast<int64_t>(loads), 1,
                                                  std::max<int64_t>(trips / height, 1)));
  const int most =
      static_cast<int>(std::max<int64_t>(kVectorsInFlight / static_cast<int64_t>(loads), 1));
  if (!is_constant) s.unroll = s.unroll < most ? 1 : most;
  s.stream = LoopingPhases(region) == 1;
  s.ctas_per_sm = s.lanes > 1 ? std::clamp(1024 / s.threads, 1, 16) : 1;
  s.items_per_cta = int64_t{s.width} * s.lanes;
  s.is_exact =
      column->end->IsConst() && column->end->value % s.items_per_cta == 0 && s.items_per_cta > 0;
}

const ir::Expr* EmitColumns(Emitter& em, const Region& region, const Schedule& s) {
  ir::ExprPool& pool = em.pool();
  em.SetVector(s.vector, s.lanes);
  const std::vector<Loop> loops = WithLast(region.grid, s.vector);
  const Loop& column = loops.back();
  const std::span<const Loop> outer = std::span(loops).first(loops.size() - 1);
  const ir::Expr* columns = em.TripsOf(std::span(&column, 1));  // Vectors of them.
  const ir::Expr* blocks = pool.CeilDiv(columns, pool.Const(s.width));
  const int height = s.threads / s.width;
  em.Line("const ix block = (ix)unit % ", em.Expr(pool.Max(blocks, pool.Const(1))), ";");
  em.Line("const ix item = (ix)unit / ", em.Expr(pool.Max(blocks, pool.Const(1))), ";");
  em.Line("const ix cv = block * ", s.width, " + t % ", s.width, ";");
  em.Line("const bool live = cv < ", em.Expr(columns), ";");
  em.Line("const int y = t / ", s.width, ";");
  em.Open();  // Variables of the row.
  em.Decode(outer, "item");
  em.Line("const ix c = live ? cv * ", s.lanes, " : 0;");
  em.Define(column.variable, "c");
  em.SetRowScope();
  int64_t shared = 0;
  for (const Phase& phase : region.phases) {
    for (const Accumulator& accumulator : phase.accumulators)
      shared = std::max(shared, int64_t{s.threads} * s.lanes *
                                    std::max<int64_t>(DTypeBytes(accumulator.dtype), 4));
  }
  if (shared > 0) em.Line("SHARED double scratch[", (shared + 7) / 8, "];");
  for (const Phase& phase : region.phases) {
    if (phase.loops.empty()) {
      em.Open();
      em.Body({}, {}, phase.stores);
      const std::string body = em.Close();
      em.Line("if (live && y == 0) {\n", body, "}");
      continue;
    }
    std::vector<std::string> arrays, names;
    for (const Accumulator& accumulator : phase.accumulators) {
      arrays.push_back(em.NewName("acc"));
      names.push_back(Cat(arrays.back(), s.lanes > 1 ? "[e]" : "[0]"));
      em.Line(TypeText(accumulator.dtype), " ", arrays.back(), "[", s.lanes, "];");
      em.Line("#pragma unroll\nfor (int e = 0; e < ", s.lanes, "; ++e) ", arrays.back(),
              "[e] = ", NeutralText(accumulator.kind, accumulator.dtype), ";");
    }
    const std::string count = em.NewName("n");
    em.Line("const ix ", count, " = live ? ", em.Expr(em.TripsOf(phase.loops)), " : 0;");
    const Walk walk = {.start = "y",
                       .step = height,
                       .count = count,
                       .unroll = s.unroll,
                       .rolled = s.rolled,
                       .is_whole = false,
                       .stream = s.stream};
    EmitWalk(em, walk, phase.loops, phase.loops, RootsOf(phase), nullptr,
             [&] { em.Body(phase.accumulators, names, phase.stores); });
    for (size_t k = 0; k < phase.accumulators.size(); ++k) {
      const Accumulator& accumulator = phase.accumulators[k];
      em.Line("collect_columns<", ReduceName(accumulator.kind), ", ", s.width, ", ", height, ", ",
              s.lanes, ">(", arrays[k], ", (", TypeText(accumulator.dtype), "*)scratch);");
      em.SetResult(accumulator.value, names[k], s.lanes > 1);
    }
  }
  const std::string body = em.Close();
  em.Line("{\n", body, "}");
  return pool.Mul(em.TripsOf(outer), blocks);
}

}  // namespace hir::codegen::gpu
