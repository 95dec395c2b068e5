#include "csrc/codegen/cpu/emitter.h"

#include <functional>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/prims.h"

namespace hir::codegen::cpu {

using base::Append;
using base::Cat;

Emitter::Emitter(const LoopNest& nest, const Target& target, bool in_place)
    : elements_(nest, target, *this),
      scopes_(elements_.scopes()),
      stores_(elements_, in_place),
      widths_(elements_),
      loops_(elements_, widths_),
      prefetches_(elements_, widths_),
      saved_(elements_, widths_, loops_),
      transposed_(elements_),
      sums_(elements_, widths_),
      carried_(elements_, widths_, loops_, sums_, stores_) {}

Result<std::string> Emitter::Run(const std::string& name) {
  Writer& writer = elements_.writer();
  ir::ExprPool& pool = elements_.pool();
  const std::string arguments = elements_.EmitArguments();
  const ir::Expr* offset = pool.Const(0);
  for (const Region& region : elements_.nest().regions) {
    const ir::Expr* items = GridOf(pool, region);
    const V from = elements_.EmitExpr(offset);
    const V count = elements_.EmitExpr(items);
    std::string& code = scopes_.Here();
    // The part of [begin, end) that is this region's, from its own first item on.
    const V zero = IntConstant(Ty::kI64, 0);
    const V begin = writer.Intrinsic(code, "smax", {writer.Binary(code, "sub", {"%begin", Ty::kI64, 1}, from), zero});
    const V end = writer.Intrinsic(code, "smin", {writer.Binary(code, "sub", {"%end", Ty::kI64, 1}, from), count});
    HIR_TRY(EmitRegion(region, begin, end));
    offset = pool.Add(offset, items);
  }
  HIR_TRY(pool.status().WithContext("index arithmetic of a kernel"));
  // Stores past the caches are seen by nobody before this.
  if (stores_.streams()) scopes_.Here() += "  fence seq_cst\n";
  return Cat(transposed_.Functions(), "define void @", name, "(ptr %args, i64 %begin, i64 %end) #0 {\n", arguments,
             writer.entry, scopes_.Here(), "  ret void\n}\n\n");
}

Status Emitter::EmitRegion(const Region& region, const V& begin, const V& end) {
  HIR_TRY(elements_.StartRegion(region));
  loops_.StartRegion(region);
  saved_.Choose(region);
  prefetches_.Choose(region);
  transposed_.Choose(region);
  scopes_.EmitLoop(begin, end, IntConstant(Ty::kI64, 1), [&](const V& item) {
    DefineItem(region.grid, item);
    OpenSerial(0, [&] {
      scopes_.MarkRow();
      for (phase_ = 0; phase_ < region.phases.size(); ++phase_) {
        const Phase& phase = region.phases[phase_];
        if (region.columns) {
          EmitColumnPhase(phase);
        } else {
          EmitRowPhase(phase);
        }
      }
    });
  });
  return Status();
}

void Emitter::DefineItem(std::span<const Loop> grid, const V& item) {
  Writer& writer = elements_.writer();
  V rest = item;
  for (size_t i = grid.size(); i-- > 1;) {
    const V trips = elements_.EmitExpr(elements_.pool().Import(grid[i].end));
    scopes_.Define(grid[i].variable, writer.Binary(scopes_.Here(), "urem", rest, trips));
    rest = writer.Binary(scopes_.Here(), "udiv", rest, trips);
  }
  if (!grid.empty()) scopes_.Define(grid[0].variable, rest);
}

void Emitter::OpenSerial(size_t depth, const std::function<void()>& body) {
  const Region& region = elements_.region();
  for (const Phase& phase : region.phases) carried_.EmitNeutral(phase, static_cast<int>(depth));
  if (depth == region.serial.size()) {
    body();
    return;
  }
  if (region.tile_rows_max > 0) transposed_.Emit();
  const bool is_innermost = depth + 1 == region.serial.size();
  if (is_innermost) EmitAhead(region.ahead);
  const int rows = is_innermost ? widths_.RowsTogether(region) : 1;
  if (rows > 1) {
    carried_.OpenRows(rows, body);
  } else {
    loops_.Open(std::span(&region.serial[depth], 1), [&] { OpenSerial(depth + 1, body); });
  }
  for (const Phase& phase : region.phases) carried_.EmitMemoryOrder(phase, static_cast<int>(depth));
}

void Emitter::EmitAhead(const Phase& ahead) {
  if (ahead.loops.empty()) return;
  phase_ = 0;  // None has saved anything yet.
  const Loop& inner = ahead.loops.back();
  loops_.Open(std::span(ahead.loops).first(ahead.loops.size() - 1), [&] {
    loops_.Emit(inner, {.lanes = widths_.LanesFor(inner), .masked = widths_.HasMasks()},
                [&](int) { stores_.Emit(ahead.stores); });
  });
}

void Emitter::EmitRowPhase(const Phase& phase) {
  if (phase.loops.empty()) {
    elements_.SetLanes({});
    stores_.Emit(phase.stores);
    return;
  }
  const Loop& inner = phase.loops.back();
  Sums::Widths widths = {.lanes = widths_.LanesFor(phase, inner), .in_shares = prefetches_.shares_rows()};
  if (!carried_.HasRows()) widths.copies = widths_.CopiesFor(phase, inner, widths.lanes, widths.in_shares);
  const int64_t step = int64_t{widths.lanes} * widths.copies;
  const bool whole = inner.begin->IsConst(0) && inner.end->IsConst() && inner.end->value % step == 0 &&
                     widths_.CutsOf(phase, inner, widths.lanes).size() <= 2;
  widths.has_rest = widths_.RestLanes(widths.lanes) < widths.lanes && !whole;
  std::vector<Sums::Slots> slots;
  for (const Accumulator& accumulator : phase.accumulators) slots.push_back(sums_.EmitSlots(accumulator, widths));
  EmitRowLoops(phase, widths, [&](int copy) {
    for (size_t k = 0; k < slots.size(); ++k) sums_.AccumulateIn(slots[k], phase.accumulators[k], widths, copy);
  });
  for (size_t k = 0; k < slots.size(); ++k) {
    const Accumulator& accumulator = phase.accumulators[k];
    const V sum = sums_.Collapse(accumulator, slots[k], widths);
    elements_.SetResult(accumulator.value, {.dtype = accumulator.dtype, .scalar = sum, .array = {}});
  }
}

void Emitter::EmitRowLoops(const Phase& phase, const Sums::Widths& widths, const std::function<void(int copy)>& add) {
  loops_.Open(std::span(phase.loops).first(phase.nested_loops), [&] {
    std::vector<Sums::Slots> slots;
    for (const Nested& nested : phase.nested) slots.push_back(sums_.EmitSlots(nested.accumulator, widths));
    const size_t others = phase.loops.size() - 1 - phase.nested_loops;
    loops_.Open(std::span(phase.loops).subspan(phase.nested_loops, others), [&] {
      loops_.EmitPhase(phase, phase.loops.back(),
                       {.lanes = widths.lanes, .copies = widths.copies, .in_shares = widths.in_shares}, [&](int copy) {
                         add(copy);
                         for (size_t k = 0; k < slots.size(); ++k)
                           sums_.AccumulateIn(slots[k], phase.nested[k].accumulator, widths, copy);
                         carried_.Emit(phase, [&] { prefetches_.Emit(phase_, 0, 1); });
                         saved_.Emit(phase_);
                         // With rows taken together that is done, for each.
                         if (!carried_.HasRows()) prefetches_.Emit(phase_, copy, widths.copies);
                         stores_.Emit(phase.stores);
                       });
    });
    for (size_t k = 0; k < slots.size(); ++k) {
      const Nested& nested = phase.nested[k];
      stores_.EmitAt(nested.tensor, nested.index, sums_.Collapse(nested.accumulator, slots[k], widths));
    }
  });
}

void Emitter::EmitColumnPhase(const Phase& phase) {
  ir::ExprPool& pool = elements_.pool();
  const Loop& columns = *elements_.region().columns;
  const int lanes = widths_.LanesFor(phase, columns);
  const int copies = phase.accumulators.empty() ? widths_.CopiesFor(phase, columns, lanes) : 1;
  const std::vector<std::string> arrays = EmitColumnArrays(phase, lanes);
  const ir::Expr* offset = pool.Sub(pool.Symbol(VariableSymbol(columns.variable)), pool.Import(columns.begin));
  loops_.Open(phase.loops, [&] {
    loops_.EmitPhase(phase, columns, {.lanes = lanes, .copies = copies, .any_lanes = true}, [&](int copy) {
      for (size_t k = 0; k < phase.accumulators.size(); ++k) {
        const V address = AddressIn(arrays[k], phase.accumulators[k], elements_.EmitExpr(offset));
        sums_.Accumulate(phase.accumulators[k], address.name);
      }
      if (!loops_.is_short()) prefetches_.Emit(phase_, copy, copies);
      stores_.Emit(phase.stores);
    });
  });
  for (size_t k = 0; k < phase.accumulators.size(); ++k) {
    const Accumulator& accumulator = phase.accumulators[k];
    elements_.SetResult(accumulator.value, {.dtype = accumulator.dtype, .scalar = {}, .array = arrays[k]});
  }
  saved_.EmitColumns(phase_);
}

std::vector<std::string> Emitter::EmitColumnArrays(const Phase& phase, int lanes) {
  std::vector<std::string> arrays;
  const int64_t size = (elements_.region().columns_max + lanes - 1) / lanes * lanes;
  for (const Accumulator& accumulator : phase.accumulators)
    arrays.push_back(elements_.writer().Alloca(TypeOf(accumulator.dtype), size));
  if (arrays.empty()) return arrays;
  const auto neutral = [&](const V& at) {
    for (size_t k = 0; k < arrays.size(); ++k) {
      const Accumulator& accumulator = phase.accumulators[k];
      const V address = AddressIn(arrays[k], accumulator, at);
      Append(scopes_.Here(), "  store ", Typed(NeutralOf(accumulator.kind, accumulator.dtype, lanes)), ", ptr ",
             address.name, ", align ", BytesOf(TypeOf(accumulator.dtype)), "\n");
    }
  };
  scopes_.EmitLoop(IntConstant(Ty::kI64, 0), IntConstant(Ty::kI64, size), IntConstant(Ty::kI64, lanes), neutral);
  return arrays;
}

V Emitter::AddressIn(const std::string& array, const Accumulator& accumulator, const V& at) {
  return elements_.writer().Address(scopes_.Here(), array, TypeOf(accumulator.dtype), at);
}

}  // namespace hir::codegen::cpu
