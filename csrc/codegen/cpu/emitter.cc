// Functions, regions and loops.
#include "csrc/codegen/cpu/emitter.h"

#include <algorithm>
#include <utility>

#include "csrc/base/text.h"

namespace hir::codegen::cpu {

using base::Append;
using base::Cat;

namespace {

constexpr size_t kRegionVariablesMax = 62;  // Sets of them are bits of a word; one is taken.

bool IsOneTrip(const V& begin, const V& end, const V& step) {
  for (const V* bound : {&begin, &end, &step}) {
    if (bound->name[0] == '%') return false;
  }
  const int64_t first = std::stoll(begin.name), last = std::stoll(end.name);
  return first < last && last - first <= std::stoll(step.name);
}

}  // namespace

Emitter::Emitter(const LoopNest& nest, const Target& target, bool in_place)
    : nest_(nest), target_(target), in_place_(in_place), math_(pool_) {
  writer_.fma = target.fma;
  writer_.half = target.half;
  writer_.avx512 = target.vector_bytes == 64;
  guards_.emplace_back();
}

Result<std::string> Emitter::Run(const std::string& name) {
  std::string arguments;
  int slot = 0;
  const auto load = [&](const std::string& name, std::string_view type) {
    Append(arguments, "  %p", slot, " = getelementptr i64, ptr %args, i64 ", slot, "\n  ", name, " = load ", type,
           ", ptr %p", slot, ", align 8\n");
    ++slot;
  };
  for (size_t i = 0; i < nest_.tensors.size(); ++i) {
    if (nest_.tensors[i].role == Tensor::Role::kInput) slots_[nest_.tensors[i].value] = static_cast<int>(i);
    if (nest_.tensors[i].role == Tensor::Role::kWorkspace) slots_[nest_.tensors[i].value] = static_cast<int>(i);
    load(Cat("%t", i), "ptr");
  }
  levels_.resize(1);
  for (size_t i = 0; i < nest_.symbols.size(); ++i) {
    symbols_[nest_.symbols[i]] = {Cat("%s", i), Ty::kI64, 1};
    load(Cat("%s", i), "i64");
  }
  for (size_t i = 0; i < nest_.scalars.size(); ++i) {
    const DType dtype = nest_.scalars[i]->type->dtype;
    const bool real = IsFloat(dtype);
    load(Cat("%x", i), real ? "double" : "i64");
    scalars_[nest_.scalars[i]] = EmitConvert(writer_, levels_[0].body, real ? DType::kFloat64 : DType::kInt64, dtype,
                                             {Cat("%x", i), real ? Ty::kF64 : Ty::kI64, 1});
  }
  zero_ = writer_.Alloca(Ty::kI64, 1);
  Append(levels_[0].body, "  store i64 0, ptr ", zero_, ", align 8\n");

  variable_level_.assign(static_cast<size_t>(nest_.num_variables), -1);
  variable_bit_.assign(static_cast<size_t>(nest_.num_variables), 0);
  const ir::Expr* offset = pool_.Const(0);
  for (const Region& region : nest_.regions) {
    const ir::Expr* items = GridOf(pool_, region);
    const V from = EmitExpr(offset);
    const V count = EmitExpr(items);
    std::string& code = Here();
    // The part of [begin, end) that is this region's, from its own first item on.
    const V zero = IntConstant(Ty::kI64, 0);
    const V begin = writer_.Intrinsic(code, "smax", {writer_.Binary(code, "sub", {"%begin", Ty::kI64, 1}, from), zero});
    const V end = writer_.Intrinsic(code, "smin", {writer_.Binary(code, "sub", {"%end", Ty::kI64, 1}, from), count});
    EmitRegion(region, begin, end);
    offset = pool_.Add(offset, items);
  }
  HIR_TRY(error_);
  HIR_TRY(pool_.status().WithContext("index arithmetic of a kernel"));
  // Stores past the caches are seen by nobody before this.
  if (streams_) Here() += "  fence seq_cst\n";
  std::string functions;
  for (const auto& [function, text] : functions_) functions += text;
  return Cat(functions, "define void @", name, "(ptr %args, i64 %begin, i64 %end) #0 {\n", arguments, writer_.entry,
             levels_[0].body, "  ret void\n}\n\n");
}

void Emitter::EmitRegion(const Region& region, const V& begin, const V& end) {
  region_ = &region;
  region_variables_.clear();
  expr_variables_.clear();
  element_variables_.clear();
  results_.clear();
  has_short_payload_.clear();
  for (const Loop& loop : region.grid) AddVariable(loop);
  for (const Loop& loop : region.serial) AddVariable(loop);
  if (region.columns) AddVariable(*region.columns);
  for (const Phase& phase : region.phases) {
    for (const Loop& loop : phase.loops) AddVariable(loop);
  }
  for (const Loop& loop : region.ahead.loops) AddVariable(loop);
  if (region_variables_.size() > kRegionVariablesMax) {
    error_ =
        Unimplemented(Cat("a kernel with ", region_variables_.size(), " loops; the limit is ", kRegionVariablesMax));
    return;
  }
  is_short_ = IsShort(region);
  ChooseSaved(region);
  ChoosePrefetched(region);
  ChooseTurned(region);
  EmitLoop(begin, end, IntConstant(Ty::kI64, 1), [&](const V& item) {
    V rest = item;
    for (size_t i = region.grid.size(); i-- > 0;) {
      const int variable = region.grid[i].variable;
      variable_level_[static_cast<size_t>(variable)] = static_cast<int>(levels_.size()) - 1;
      if (i == 0) {
        variable_value_[variable] = rest;
        break;
      }
      const V trips = EmitExpr(pool_.Import(region.grid[i].end));
      variable_value_[variable] = writer_.Binary(Here(), "urem", rest, trips);
      rest = writer_.Binary(Here(), "udiv", rest, trips);
    }
    OpenSerial(0, [&] {
      row_level_ = levels_.size() - 1;
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
}

void Emitter::OpenSerial(size_t depth, const std::function<void()>& body) {
  for (const Phase& phase : region_->phases) EmitNeutral(phase, static_cast<int>(depth));
  if (depth == region_->serial.size()) {
    body();
    return;
  }
  if (region_->tile_rows_max > 0) EmitTurned();
  const bool is_innermost = depth + 1 == region_->serial.size();
  if (is_innermost) EmitAhead(region_->ahead);
  const int rows = is_innermost ? RowsTogether() : 1;
  if (rows > 1) {
    OpenRowsTogether(rows, body);
  } else {
    OpenLoops(std::span(&region_->serial[depth], 1), [&] { OpenSerial(depth + 1, body); });
  }
  for (const Phase& phase : region_->phases) EmitMemoryOrder(phase, static_cast<int>(depth));
}

void Emitter::EmitAhead(const Phase& ahead) {
  if (ahead.loops.empty()) return;
  phase_ = 0;  // None has saved anything yet.
  const Loop& inner = ahead.loops.back();
  OpenLoops(std::span(ahead.loops).first(ahead.loops.size() - 1), [&] {
    EmitVectors(inner.variable, pool_.Import(inner.begin), pool_.Import(inner.end),
                {.lanes = LanesFor(inner), .masked = HasMasks()}, [&](int) { EmitStores(ahead.stores); });
  });
}

void Emitter::AddVariable(const Loop& loop) {
  if (std::ranges::find(region_variables_, loop.variable) != region_variables_.end()) return;  // Another phase's.
  variable_bit_[static_cast<size_t>(loop.variable)] = static_cast<int>(region_variables_.size() & 63);
  region_variables_.push_back(loop.variable);
  const ir::Expr* last = pool_.Sub(pool_.Import(loop.end), pool_.Const(1));
  math_.SetRange(loop.variable, pool_.Import(loop.begin), last);
}

void Emitter::OpenLoops(std::span<const Loop> loops, const std::function<void()>& body) {
  if (loops.empty()) {
    body();
    return;
  }
  const Loop& loop = loops[0];
  const V begin = EmitExpr(pool_.Import(loop.begin));
  const V end = EmitExpr(pool_.Import(loop.end));
  EmitLoop(begin, end, IntConstant(Ty::kI64, 1), [&](const V& at) {
    variable_level_[static_cast<size_t>(loop.variable)] = static_cast<int>(levels_.size()) - 1;
    variable_value_[loop.variable] = at;
    OpenLoops(loops.subspan(1), body);
  });
}

void Emitter::EmitLoop(const V& begin, const V& end, const V& step, const std::function<void(const V&)>& body) {
  if (IsOneTrip(begin, end, step)) {  // What is known of its variable is known in this loop alone.
    levels_.back().body_memo.clear();
    body(begin);
    levels_.back().body_memo.clear();
    return;
  }
  const V at = {writer_.NewName(), Ty::kI64, 1};
  levels_.emplace_back();
  body(at);
  const Level inner = std::move(levels_.back());
  levels_.pop_back();
  std::string& code = Here();
  const std::string before = writer_.NewLabel(), ready = writer_.NewLabel(), top = writer_.NewLabel(),
                    latch = writer_.NewLabel(), exit = writer_.NewLabel();
  const std::string next = writer_.NewName();
  const V any = writer_.Compare(code, "slt", begin, end);
  Append(code, "  br i1 ", any.name, ", label %", before, ", label %", exit, "\n", before, ":\n", inner.before,
         "  br label %", ready, "\n", ready, ":\n  br label %", top, "\n", top, ":\n  ", at.name, " = phi i64 [ ",
         begin.name, ", %", ready, " ], [ ", next, ", %", latch, " ]\n", inner.body, "  br label %", latch, "\n", latch,
         ":\n  ", next, " = add nsw i64 ", at.name, ", ", step.name, "\n");
  const V more = writer_.Compare(code, "slt", {next, Ty::kI64, 1}, end);
  Append(code, "  br i1 ", more.name, ", label %", top, ", label %", exit, "\n", exit, ":\n");
}

void Emitter::EmitRowPhase(const Phase& phase) {
  if (phase.loops.empty()) {
    lanes_ = {};
    EmitStores(phase.stores);
    return;
  }
  const Loop& inner = phase.loops.back();
  const int lanes = LanesFor(phase, inner);
  const int copies = rows_together_.empty() ? CopiesFor(phase, inner, lanes) : 1;
  std::vector<std::vector<std::string>> slots;
  std::vector<std::string> rests(phase.accumulators.size());
  // Vectors of a loop's rest have slots of their own: one that is read in two sizes stays in memory.
  const int64_t step = int64_t{lanes} * copies;
  const bool whole = inner.begin->IsConst(0) && inner.end->IsConst() && inner.end->value % step == 0 &&
                     CutsOf(phase, inner, lanes).size() <= 2;
  const bool has_rest = RestLanes(lanes) < lanes && !whole;
  for (const Accumulator& accumulator : phase.accumulators) {
    const Ty type = TypeOf(accumulator.dtype);
    const V neutral = NeutralOf(accumulator.kind, accumulator.dtype, lanes);
    std::vector<std::string>& own = slots.emplace_back();
    for (int copy = 0; copy < copies; ++copy) {
      own.push_back(writer_.Alloca(type, lanes));
      Append(Here(), "  store ", Typed(neutral), ", ptr ", own.back(), ", align 64\n");
    }
    if (!has_rest) continue;
    std::string& rest = rests[slots.size() - 1];
    rest = writer_.Alloca(type, RestLanes(lanes));
    const V few = NeutralOf(accumulator.kind, accumulator.dtype, RestLanes(lanes));
    Append(Here(), "  store ", Typed(few), ", ptr ", rest, ", align 64\n");
  }
  OpenLoops(std::span(phase.loops).first(phase.loops.size() - 1), [&] {
    EmitVectorLoop(inner, phase, lanes, copies, [&](int copy) {
      for (size_t k = 0; k < phase.accumulators.size(); ++k) {
        const bool is_rest = lanes_.count < lanes;
        Accumulate(phase.accumulators[k], is_rest ? rests[k] : slots[k][static_cast<size_t>(copy)]);
      }
      EmitCarried(phase);
      EmitSaves();
      if (rows_together_.empty()) EmitPrefetches(copy, copies);  // Else done, for each.
      EmitStores(phase.stores);
    });
  });
  for (size_t k = 0; k < phase.accumulators.size(); ++k) {
    results_[phase.accumulators[k].value] = {
        &phase.accumulators[k], Collapse(phase.accumulators[k], slots[k], lanes, rests[k]), {}};
  }
}

void Emitter::EmitColumnPhase(const Phase& phase) {
  const Loop& columns = *region_->columns;
  const int lanes = LanesFor(phase, columns);
  const int copies = phase.accumulators.empty() ? CopiesFor(phase, columns, lanes) : 1;
  const int64_t size = (region_->columns_max + lanes - 1) / lanes * lanes;
  std::vector<std::string> arrays;
  for (const Accumulator& accumulator : phase.accumulators) {
    const Ty type = TypeOf(accumulator.dtype);
    arrays.push_back(writer_.Alloca(type, size));
  }
  const auto neutral = [&](const V& at) {
    for (size_t k = 0; k < arrays.size(); ++k) {
      const Accumulator& accumulator = phase.accumulators[k];
      const Ty type = TypeOf(accumulator.dtype);
      const V address = AddressOf(arrays[k], type, at, Here());
      Append(Here(), "  store ", Typed(NeutralOf(accumulator.kind, accumulator.dtype, lanes)), ", ptr ", address.name,
             ", align ", BytesOf(type), "\n");
    }
  };
  if (!arrays.empty())
    EmitLoop(IntConstant(Ty::kI64, 0), IntConstant(Ty::kI64, size), IntConstant(Ty::kI64, lanes), neutral);
  const ir::Expr* offset = pool_.Sub(pool_.Symbol(VariableSymbol(columns.variable)), pool_.Import(columns.begin));
  OpenLoops(phase.loops, [&] {
    EmitVectorLoop(columns, phase, lanes, copies, [&](int copy) {
      for (size_t k = 0; k < phase.accumulators.size(); ++k) {
        const V address = AddressOf(arrays[k], TypeOf(phase.accumulators[k].dtype), EmitExpr(offset), Here());
        Accumulate(phase.accumulators[k], address.name);
      }
      EmitPrefetches(copy, copies);
      EmitStores(phase.stores);
    });
  });
  for (size_t k = 0; k < phase.accumulators.size(); ++k) {
    results_[phase.accumulators[k].value] = {&phase.accumulators[k], {}, arrays[k]};
  }
  EmitSavedColumns();
}

}  // namespace hir::codegen::cpu
