#include "csrc/codegen/cpu/carried_sums.h"

#include <algorithm>
#include <array>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/pairs.h"
#include "csrc/codegen/cpu/prims.h"

namespace hir::codegen::cpu {

namespace {

bool HasAtDepth(const Phase& phase, int depth) {
  return std::ranges::any_of(phase.carried, [&](const Carried& carried) { return carried.depth == depth; });
}

std::span<const Loop> Outer(const Phase& phase) { return std::span(phase.loops).first(phase.loops.size() - 1); }

}  // namespace

void CarriedSums::EmitNeutral(const Phase& phase, int depth) {
  if (!HasAtDepth(phase, depth)) return;
  const Loop& inner = phase.loops.back();
  const int lanes = widths_.LanesFor(inner);
  loops_.Open(Outer(phase), [&] {
    loops_.Emit(inner, {.lanes = lanes, .masked = widths_.HasMasks()}, [&](int) {
      for (const Carried& carried : phase.carried) {
        if (carried.depth != depth) continue;
        const Accumulator& accumulator = carried.accumulator;
        stores_.EmitAt(carried.tensor, carried.index, NeutralOf(accumulator.kind, accumulator.dtype, lanes));
      }
    });
  });
}

// Sums made in pairs, vector by vector, are put into memory's order when they are complete: not in each row.
void CarriedSums::EmitMemoryOrder(const Phase& phase, int depth) {
  if (!HasAtDepth(phase, depth)) return;
  ir::ExprPool& pool = elements_.pool();
  const Loop& inner = phase.loops.back();
  const int lanes = widths_.LanesFor(phase, inner);
  if (!widths_.IsPaired(phase, inner) || widths_.CutsOf(phase, inner, lanes).size() > 2) return;
  const ir::Expr* begin = pool.Import(inner.begin);
  const ir::Expr* trips = pool.Sub(pool.Import(inner.end), begin);
  const int copies = widths_.RowsTogether(elements_.region()) > 1 ? 1 : widths_.CopiesFor(phase, inner, lanes);
  const ir::Expr* step = pool.Const(int64_t{lanes} * LoopWidths::CopiesIn(trips, lanes, copies));
  const ir::Expr* steps = pool.FloorDiv(pool.Max(trips, pool.Const(0)), step);
  const ir::Expr* in_pairs = pool.Mul(steps, step);
  loops_.Open(Outer(phase), [&] {
    loops_.Emit(inner.variable, begin, pool.Add(begin, in_pairs), {.lanes = lanes}, [&](int) {
      if (elements_.lanes().count < lanes) return;  // There is no rest.
      for (const Carried& carried : phase.carried) {
        if (carried.depth != depth) continue;
        const V sum = EmitLoad(carried);
        stores_.EmitAt(carried.tensor, carried.index,
                       EmitInMemoryOrder(elements_.writer(), elements_.scopes().Here(), sum));
      }
    });
  });
}

void CarriedSums::Emit(const Phase& phase, const std::function<void()>& before_row) {
  if (rows_.empty()) {
    for (const Carried& carried : phase.carried) Add(carried, std::array{sums_.EmitAddend(carried.accumulator)});
    return;
  }
  // All that depends on the row is computed here for each; what is the same in all vectors leaves the loop by LLVM's
  // hand.
  Scopes& scopes = elements_.scopes();
  std::vector<std::vector<Sums::Addend>> addends(phase.carried.size());
  const size_t row_level = scopes.LevelOf(scopes.BitOf(RowVariable()));
  for (const V& row : rows_) {
    EnterRow(row, scopes.Innermost());
    before_row();
    for (size_t k = 0; k < addends.size(); ++k) addends[k].push_back(sums_.EmitAddend(phase.carried[k].accumulator));
  }
  EnterRow(rows_[0], row_level);
  for (size_t k = 0; k < addends.size(); ++k) Add(phase.carried[k], addends[k]);
}

V CarriedSums::EmitLoad(const Carried& carried) {
  Scopes& scopes = elements_.scopes();
  const Tensor& tensor = elements_.TensorAt(carried.tensor);
  const ir::Expr* offset = elements_.OffsetOf(carried.index, tensor);
  const V loaded = elements_.LoadFrom(base::Cat("%t", carried.tensor), tensor.dtype, offset, 0, scopes.Innermost());
  // The offset does not vary along an axis without elements.
  return elements_.writer().Splat(scopes.Here(), loaded, elements_.lanes().count);
}

void CarriedSums::Add(const Carried& carried, std::span<const Sums::Addend> addends) {
  const Lanes lanes = elements_.lanes();
  Lanes in_memory_order = lanes;  // See EmitMemoryOrder.
  in_memory_order.paired = false;
  elements_.SetLanes(in_memory_order);
  V sum = EmitLoad(carried);
  for (const Sums::Addend& addend : addends) sum = sums_.EmitAdded(carried.accumulator, sum, addend);
  stores_.EmitAt(carried.tensor, carried.index, sum);
  elements_.SetLanes(lanes);
}

void CarriedSums::OpenRows(int rows, const std::function<void()>& body) {
  const Loop& loop = elements_.region().serial.back();
  Writer& writer = elements_.writer();
  Scopes& scopes = elements_.scopes();
  const V begin = elements_.EmitExpr(elements_.pool().Import(loop.begin));
  const V end = elements_.EmitExpr(elements_.pool().Import(loop.end));
  std::string& code = scopes.Here();
  const V trips = writer.Intrinsic(code, "smax", {writer.Binary(code, "sub", end, begin), IntConstant(Ty::kI64, 0)});
  const V left = writer.Binary(code, "urem", trips, IntConstant(Ty::kI64, rows));
  const V middle = writer.Binary(code, "sub", end, left);
  const auto open = [&](const V& from, const V& to, int count) {
    scopes.EmitLoop(from, to, IntConstant(Ty::kI64, count), [&](const V& at) {
      rows_ = {at};
      while (std::ssize(rows_) < count)
        rows_.push_back(writer.Binary(scopes.Here(), "add", rows_.back(), IntConstant(Ty::kI64, 1)));
      EnterRow(at, scopes.Innermost());
      body();
    });
    rows_.clear();
  };
  open(begin, middle, rows);
  open(middle, end, 1);
}

void CarriedSums::EnterRow(const V& row, size_t level) {
  elements_.scopes().Define(RowVariable(), row, level);
  elements_.scopes().ForgetBody();
}

}  // namespace hir::codegen::cpu
