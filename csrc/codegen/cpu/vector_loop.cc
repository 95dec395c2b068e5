#include "csrc/codegen/cpu/vector_loop.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

namespace hir::codegen::cpu {

namespace {

V Constant(int64_t value) { return IntConstant(Ty::kI64, value); }

}  // namespace

void VectorLoops::Open(std::span<const Loop> loops, const std::function<void()>& body) {
  if (loops.empty()) {
    body();
    return;
  }
  const Loop& loop = loops[0];
  const V begin = elements_.EmitExpr(elements_.pool().Import(loop.begin));
  const V end = elements_.EmitExpr(elements_.pool().Import(loop.end));
  scopes_.EmitLoop(begin, end, Constant(1), [&](const V& at) {
    scopes_.Define(loop.variable, at);
    Open(loops.subspan(1), body);
  });
}

void VectorLoops::EmitPhase(const Phase& phase, const Loop& loop, Vectors vectors, const Body& body) {
  ir::ExprPool& pool = elements_.pool();
  const ir::Expr* first = pool.Import(loop.begin);
  const ir::Expr* last = pool.Import(loop.end);
  const std::vector<int64_t> cuts = widths_.CutsOf(phase, loop, vectors.lanes);
  // Where later phases read the row again, it has been asked for, in one place or in shares of neighbours. Sums alone,
  // and what is stored of a row that earlier phases read, go by what the core does best (layer norm of float32 in four
  // places .84 to .85 of triad, in order .87 to .90; Zen 4).
  const bool is_alone = LastLoops(elements_.region()) == 0;
  const bool in_order =
      vectors.in_shares || (ReadsBestInOrder(elements_.target()) && is_alone != phase.accumulators.empty());
  if (in_order) vectors.own_way_min = INT64_MAX;
  if (cuts.size() <= 2) {
    vectors.paired = widths_.IsPaired(phase, loop);
    Emit(loop.variable, first, last, vectors, body);
    return;
  }
  // Between two cuts every condition is decided by the range. A block of an axis has a part of it, or none.
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const ir::Expr* from = pool.Const(cuts[i]);
    const ir::Expr* to = pool.Const(cuts[i + 1]);
    elements_.dependences().EnterRange(loop.variable, from, to);
    from = i == 0 ? first : pool.Max(first, from);
    to = i + 2 == cuts.size() ? last : pool.Min(last, to);
    Emit(loop.variable, from, to, vectors, body);
  }
  elements_.dependences().LeaveRange(loop.variable);
}

void VectorLoops::Enter(int variable, const Vectors& vectors, const V& first) {
  scopes_.Define(variable, first);
  scopes_.ForgetBody();
  Lanes lanes;
  lanes.variable = variable;
  lanes.count = vectors.lanes;
  lanes.first = first;
  lanes.paired = vectors.paired;
  elements_.SetLanes(std::move(lanes));
}

// No more lanes than there are matter, and 32 bits hold their number: a compare of all lanes is one instruction then.
void VectorLoops::Mask(const Vectors& vectors, const V& end) {
  std::string& code = scopes_.Here();
  Lanes lanes = elements_.lanes();
  V rest = writer_.Binary(code, "sub", end, lanes.first);
  if (vectors.masked) rest = writer_.Intrinsic(code, "smin", {rest, Constant(vectors.lanes)});
  const V count = writer_.CastTo(code, "trunc", rest, Ty::kI32);
  lanes.masked = true;
  lanes.mask =
      writer_.Compare(code, "ult", writer_.Iota(vectors.lanes, Ty::kI32), writer_.Splat(code, count, vectors.lanes));
  elements_.SetLanes(std::move(lanes));
}

void VectorLoops::Emit(const Loop& loop, const Vectors& vectors, const Body& body) {
  ir::ExprPool& pool = elements_.pool();
  Emit(loop.variable, pool.Import(loop.begin), pool.Import(loop.end), vectors, body);
}

void VectorLoops::Emit(int variable, const ir::Expr* first, const ir::Expr* last, const Vectors& vectors,
                       const Body& body) {
  ir::ExprPool& pool = elements_.pool();
  const int lanes = vectors.lanes;
  const ir::Expr* trips = pool.Sub(last, first);
  const V begin = elements_.EmitExpr(first);
  const V end = elements_.EmitExpr(last);
  const int copies = LoopWidths::CopiesIn(trips, lanes, vectors.copies);
  const bool whole = pool.Mod(trips, pool.Const(int64_t{lanes} * copies))->IsConst(0);
  if (!whole && (is_short_ || vectors.masked)) {
    const int all = is_short_ ? widths_.RestLanes(lanes) : lanes;
    EmitRest(variable, begin, end, {.lanes = all, .masked = !is_short_}, all > 1, body);
  } else {
    const Steps steps = StepsOf(first, trips, {.begin = begin, .end = end}, vectors);
    scopes_.EmitLoop(begin, steps.stop, steps.stride, [&](const V& at) {
      V from = at;
      for (int copy = 0; copy < copies; ++copy) {
        if (copy > 0) from = writer_.Binary(scopes_.Here(), "add", from, steps.distance);
        Enter(variable, vectors, from);
        body(copy);
      }
    });
    // Of a long loop a mask is little, and a body written several times is not.
    const bool in_pieces = vectors.any_lanes && !widths_.HasMasks() && trips->IsConst() && trips->value < 4 * lanes;
    if (!whole && in_pieces) {
      const int64_t in_steps = std::max<int64_t>(trips->value, 0) / (int64_t{lanes} * copies) * lanes * copies;
      EmitPieces(variable, pool.Add(first, pool.Const(in_steps)), trips->value - in_steps, vectors, body);
    } else if (!whole) {
      const Vectors rest = {.lanes = widths_.RestLanes(lanes)};  // One register at a time.
      const bool whole_vectors = pool.Mod(trips, pool.Const(rest.lanes))->IsConst(0);
      EmitRest(variable, steps.middle, end, rest, rest.lanes > 1 && !whole_vectors, body);
    }
  }
  elements_.SetLanes({});
}

void VectorLoops::EmitRest(int variable, const V& begin, const V& end, const Vectors& vectors, bool masked,
                           const Body& body) {
  scopes_.EmitLoop(begin, end, Constant(vectors.lanes), [&](const V& at) {
    Enter(variable, vectors, at);
    if (masked) Mask(vectors, end);
    body(0);
  });
}

void VectorLoops::EmitPieces(int variable, const ir::Expr* first, int64_t count, const Vectors& vectors,
                             const Body& body) {
  ir::ExprPool& pool = elements_.pool();
  for (int64_t at = 0; at < count;) {
    const auto left = std::bit_floor(static_cast<uint64_t>(count - at));
    const int lanes = std::min(widths_.RestLanes(vectors.lanes), static_cast<int>(left));
    Enter(variable, {.lanes = lanes}, elements_.EmitExpr(pool.Add(first, pool.Const(at))));
    body(0);
    at += lanes;
  }
}

VectorLoops::Steps VectorLoops::StepsOf(const ir::Expr* first, const ir::Expr* trips, const Range& range,
                                        const Vectors& vectors) {
  ir::ExprPool& pool = elements_.pool();
  const int copies = LoopWidths::CopiesIn(trips, vectors.lanes, vectors.copies);
  const int64_t step = int64_t{vectors.lanes} * copies;
  const bool whole = pool.Mod(trips, pool.Const(step))->IsConst(0);
  Steps steps = {.middle = range.end, .distance = Constant(vectors.lanes), .stride = Constant(step), .stop = range.end};
  if (trips->IsConst()) {
    const int64_t in_steps = std::max<int64_t>(trips->value, 0) / step * step;
    if (!whole) steps.middle = elements_.EmitExpr(pool.Add(first, pool.Const(in_steps)));
    steps.stop = steps.middle;
    if (copies > 1 && in_steps / copies >= vectors.own_way_min) {
      steps.distance = Constant(in_steps / copies);
      steps.stride = Constant(vectors.lanes);
      steps.stop = elements_.EmitExpr(pool.Add(first, pool.Const(in_steps / copies)));
    }
    return steps;
  }
  std::string& code = scopes_.Here();
  const V zero = Constant(0);
  V in_steps = writer_.Intrinsic(code, "smax", {writer_.Binary(code, "sub", range.end, range.begin), zero});
  if (!whole) {
    const V rest = writer_.Binary(code, "urem", in_steps, Constant(step));
    in_steps = writer_.Binary(code, "sub", in_steps, rest);
    steps.middle = writer_.Binary(code, "add", range.begin, in_steps);
  }
  steps.stop = steps.middle;
  if (copies > 1 && vectors.own_way_min < INT64_MAX) {
    const V own = writer_.Binary(code, "udiv", in_steps, Constant(copies));
    const V is_long = writer_.Compare(code, "sge", own, Constant(vectors.own_way_min));
    steps.distance = writer_.Select(code, is_long, own, steps.distance);
    steps.stride = writer_.Select(code, is_long, Constant(vectors.lanes), steps.stride);
    steps.stop = writer_.Select(code, is_long, writer_.Binary(code, "add", range.begin, own), steps.middle);
  }
  return steps;
}

}  // namespace hir::codegen::cpu
