// Pointwise: one thread computes one vector of the grid, every output at it.
//
// Bytes: 16 a thread and operand. A multiprocessor that holds 2048 threads with one vector each has 32 KiB in flight,
// which saturates the memory of an H200; so the CTAs are small (they come and go without waiting for each other),
// never persistent, and nothing is unrolled: measured, 128 threads with one vector are first or within 3 % of it at
// every size. Operands that vary along fewer axes are read again from the first-level cache. Indices are divided once
// a vector.
#include "csrc/codegen/gpu/schedule.h"

namespace hir::codegen::gpu {

void ChoosePointwise(Schedule& schedule) {
  schedule.kind = Schedule::Kind::kPointwise;
  schedule.threads = 128;
  schedule.unroll = schedule.lanes > 1 ? 1 : 4;
  schedule.items_per_cta = int64_t{schedule.threads} * schedule.unroll * schedule.lanes;
}

const ir::Expr* EmitPointwise(Emitter& em, const Region& region, const Schedule& s) {
  em.SetVector(s.vector, s.lanes);
  const std::vector<Loop> loops = WithLast(region.grid, s.vector);
  const ir::Expr* count = em.TripsOf(loops);
  const int64_t vectors = int64_t{s.threads} * s.unroll;
  const std::string first = em.NewName("k");
  em.Line("const ix ", first, " = (ix)unit * ", vectors, " + t;");
  const Walk walk = {.start = first,
                     .step = s.threads,
                     .count = em.Expr(count),
                     .unroll = s.unroll,
                     .rolled = s.rolled,
                     .is_whole = true,
                     .stream = false};
  EmitWalk(em, walk, loops, {}, {}, nullptr, [&] { em.Body({}, {}, region.phases[0].stores); });
  return em.pool().CeilDiv(count, em.pool().Const(vectors));
}

}  // namespace hir::codegen::gpu
