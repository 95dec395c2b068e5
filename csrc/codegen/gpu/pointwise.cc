// Pointwise: one thread computes one vector of the grid, every output at it.
//
// Bytes: 16 a thread and operand. A multiprocessor that holds 2048 threads with one vector each has 32 KiB in flight,
// which saturates the memory of an H200; so the CTAs are small (they come and go without waiting for each other),
// never persistent, and nothing is unrolled: measured, 128 threads with one vector are first or within 3 % of it at
// every size. Where all of them run at once and there are many, starting CTAs takes its share of a few microseconds:
// half as many of 256 threads take 1 to 2 % off a small rotary embedding. Where nothing as large as outputs is read,
// threads have up to four vectors each. Operands that vary along fewer axes are read again from the first-level cache.
// Indices are divided once a vector.
#include <algorithm>
#include <set>

#include "csrc/base/checked.h"
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

using base::Cat;

namespace {

constexpr int64_t kSegmentBytes = 128;  // Neighbours that are written together whatever the order.
constexpr int64_t kUnknownInner = 64;
constexpr int kUnrollAcross = 2;  // 128 of 256 rows of 633422 float32: 0.165 ms on an H200, one vector a thread 0.180.
constexpr int64_t kItemsOfRows = 4;  // Rows of as many CTAs waste an eighth of one, in the mean.

// Loops in the order in which the tensor that is read most widely lies: what several outputs read is then read by
// neighbours. Where outputs lie otherwise they are still written in segments of the innermost loop.
std::vector<Loop> InOrderOfLoads(Emitter& em, const Region& region, const Schedule& s) {
  std::vector<Loop> loops = WithLast(region.grid, s.vector);
  if (s.lanes == 1 || loops.size() < 3 || loops.back().variable != s.vector) return loops;
  if (!loops.back().end->IsConst() || loops.back().end->value * 16 / s.lanes < kSegmentBytes) return loops;
  std::vector<int64_t> widest;
  for (const Access& access : em.loads.Vectors(RootsOf(region.phases[0]))) {
    const ir::Expr* offset = em.places.AffineOf(access);
    if (offset == nullptr) return loops;
    std::vector<int64_t> steps;  // By how far each loop's second trip is from its first.
    const auto at = [&](int variable) {
      const auto value = ir::Evaluate(offset, [&](std::string_view symbol) -> std::optional<int64_t> {
        const int v = VariableOf(symbol);
        return v < 0 ? kUnknownInner : v == variable ? 1 : 0;
      });
      return value.ok() ? *value : 0;
    };
    const int64_t origin = at(-1);
    bool all = true;
    for (const Loop& loop : loops) {
      steps.push_back(at(loop.variable) - origin);
      all = all && (steps.back() != 0 || loop.end->IsConst(1));
    }
    if (!all) continue;
    if (widest.empty()) widest = steps;
  }
  if (widest.empty()) return loops;
  std::vector<size_t> order(loops.size() - 1);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return widest[i]; });
  std::vector<Loop> sorted;
  for (const size_t i : order) sorted.push_back(loops[i]);
  sorted.push_back(loops.back());
  return sorted;
}

// Whether a tensor as large as the grid is read. Where none is, nearly all that moves is written, and a thread of one
// vector is over before it has much on its way.
bool ReadsWhole(Emitter& em, const Region& region) {
  std::set<const fusion::Element*> seen;
  const auto reads = [&](const auto& self, const fusion::Element* e) -> bool {
    if (!e->has_load || !seen.insert(e).second) return false;
    const auto varies = [&](const Loop& loop) { return em.dependences.VariesWith(e, std::span(&loop, 1)); };
    if (e->kind == fusion::Element::Kind::kLoad &&
        std::ranges::all_of(region.grid, [&](const Loop& loop) { return loop.end->IsConst(1) || varies(loop); }))
      return true;
    return std::ranges::any_of(e->args, [&](const fusion::Element* arg) { return self(self, arg); });
  };
  return std::ranges::any_of(RootsOf(region.phases[0]), [&](const auto* root) { return reads(reads, root); });
}

// Whether the rows of an input, the last of `loops`, begin at other places of a vector than those that are stored: each
// vector of it is made of two.
bool ReadsAcross(Emitter& em, const Region& region, std::span<const Loop> loops) {
  bool across = false;
  em.conditions.Probe([&] {
    across =
        std::ranges::any_of(em.loads.Scalars(RootsOf(region.phases[0]), loops.last(1), {}), [&](const Access& read) {
          const bool is_row = em.places.Varies(read, loops.first(loops.size() - 1));
          return is_row && !em.places.IsVectorLoad(read) && em.places.IsAcrossVectors(read);
        });
  });
  return across;
}

// The loop over the vectors of a thread. Single elements are all loaded before the first is stored, which may lie where
// the compiler cannot tell.
void EmitVectors(Emitter& em, const Region& region, const Schedule& s, Walk walk, std::span<const Loop> loops) {
  walk.ahead = s.lanes == 1 && s.unroll > 1 && !s.rolled;
  const Phase& phase = region.phases[0];
  const std::vector<const fusion::Element*> roots = walk.ahead ? RootsOf(phase) : std::vector<const fusion::Element*>();
  EmitWalk(em, walk, loops, region.grid, roots, nullptr, [&] { em.lanes.Body({}, {}, phase.stores); });
}

// Elements of one row a CTA: with sizes that are symbols a division is as long as many an op, and rows begin anywhere.
const ir::Expr* EmitInRows(Emitter& em, const Region& region, const Schedule& s, std::span<const Loop> loops) {
  ir::ExprPool& pool = em.pool;
  const std::span<const Loop> outer = loops.first(loops.size() - 1);
  const Loop& row = loops.back();
  const int items = s.threads * s.unroll;
  // By the vectors that the longest row may have.
  const ir::Expr* vectors = pool.CeilDiv(pool.Import(row.end), pool.Const(s.lanes));
  const ir::Expr* blocks = pool.CeilDiv(vectors, pool.Const(items));
  const std::string by = em.indices.Text(pool.Max(blocks, pool.Const(1)));
  em.code.Line("const ix block = (ix)unit % ", by, ", item = (ix)unit / ", by, ";");
  em.code.Open();
  em.indices.Decode(outer, "item");
  Loop inner = row;
  inner.begin = FirstVector(em, row, s);
  const std::string count = em.code.NewName("n");
  em.code.Line("const ix ", count, " = ", em.indices.Text(em.indices.TripsOf(std::span(&inner, 1))), ";");
  const Walk walk = {.start = Cat("block * ", items, " + t"),
                     .step = s.threads,
                     .count = count,
                     .unroll = s.unroll,
                     .rolled = s.rolled,
                     .is_whole = true};
  EmitVectors(em, region, s, walk, std::span(&inner, 1));
  if (s.is_ragged) EmitRest(em, row, s, "t", "block == 0", [&] { em.lanes.Body({}, {}, region.phases[0].stores); });
  const std::string text = em.code.Close();
  em.code.Line("{\n", text, "}");
  return pool.Mul(em.indices.TripsOf(outer), blocks);
}

}  // namespace

void ChoosePointwise(Emitter& em, const Region& region, const KernelPlan& plan, Schedule& schedule) {
  schedule.kind = Schedule::Kind::kPointwise;
  schedule.threads = 128;
  schedule.unroll = schedule.lanes > 1 ? 1 : 4;
  if (schedule.lanes > 1 && !ReadsWhole(em, region)) {
    const int64_t vectors = SizeOf(GridOf(em.pool, region), plan.sizes, 0) / schedule.lanes;
    const int64_t each = vectors / std::max<int64_t>(kThreadsOfMultiprocessor * plan.target.multiprocessors, 1);
    // Products of 1000 by 4004 bfloat16, of any size: 0.0062 ms by four, 0.0072 by two, 0.0090.
    schedule.unroll = each >= 3 ? 4 : each >= 2 ? 2 : 1;
  }
  const std::vector<Loop> loops = WithLast(region.grid, schedule.vector);
  schedule.in_rows = schedule.is_skewed;
  if (schedule.is_skewed && ReadsAcross(em, region, loops)) schedule.unroll *= kUnrollAcross;
  schedule.items_per_cta = int64_t{schedule.threads} * schedule.unroll * schedule.lanes;
  if (schedule.in_rows) {
    schedule.is_exact = false;
    return;
  }
  if (schedule.lanes == 1 && loops.size() > 1) {
    const int64_t row = SizeOf(loops.back().end, plan.sizes, 0);
    schedule.in_rows = row >= kItemsOfRows * schedule.items_per_cta;
    if (schedule.in_rows) {
      schedule.is_exact = false;
      return;
    }
  }
  // Where a multiprocessor could hold all of its CTAs at once but for their registers, it does: no second wave.
  const ir::Expr* items = GridOf(em.pool, region);
  if (!IsConstant(items)) return;
  const int64_t ctas = base::CeilDiv(SizeOf(items, {}, 0), schedule.items_per_cta);
  const int64_t share = base::CeilDiv(ctas, std::max<int64_t>(plan.target.multiprocessors, 1));
  const int64_t most = kThreadsOfMultiprocessor / schedule.threads;
  if (share > most) return;
  schedule.ctas_per_sm = static_cast<int>(std::max<int64_t>(share, 1));
  if (share <= most / 2) return;
  schedule.threads *= 2;
  schedule.items_per_cta *= 2;
  schedule.ctas_per_sm = static_cast<int>(base::CeilDiv(share, 2));
}

const ir::Expr* EmitPointwise(Emitter& em, const Region& region, const Schedule& s) {
  em.vector.Set(s.vector, s.lanes);
  em.vector.SetRagged(s.is_ragged);
  if (s.is_skewed) em.vector.SetSkew(em.loads.RowOffset(region, s.vector));
  const std::vector<Loop> loops = InOrderOfLoads(em, region, s);
  if (s.in_rows) {
    const ir::Expr* units = EmitInRows(em, region, s, loops);
    em.vector.SetRagged(false);
    em.vector.SetSkew(nullptr);
    return units;
  }
  const ir::Expr* count = em.indices.TripsOf(loops);
  const int64_t vectors = int64_t{s.threads} * s.unroll;
  const std::string first = em.code.NewName("k");
  em.code.Line("const ix ", first, " = (ix)unit * ", vectors, " + t;");
  const Walk walk = {.start = first,
                     .step = s.threads,
                     .count = em.indices.Text(count),
                     .unroll = s.unroll,
                     .rolled = s.rolled,
                     .is_whole = true};
  EmitVectors(em, region, s, walk, loops);
  em.vector.SetRagged(false);
  if (!s.is_ragged) return em.pool.CeilDiv(count, em.pool.Const(vectors));
  const ir::Expr* end = em.pool.Import(loops[0].end);
  // By threads of the CTA that would have the next vector.
  const ir::Expr* last = em.pool.FloorDiv(count, em.pool.Const(vectors));
  EmitRest(em, region.grid[0], s, "t", Cat("unit == ", em.indices.Text(last)),
           [&] { em.lanes.Body({}, {}, region.phases[0].stores); });
  return em.pool.CeilDiv(end, em.pool.Const(vectors * s.lanes));
}

}  // namespace hir::codegen::gpu
