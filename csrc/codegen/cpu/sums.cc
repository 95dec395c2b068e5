// What is added up: in lanes of registers within a row, and in a workspace from row to row.
#include <algorithm>
#include <array>
#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/emitter.h"

namespace hir::codegen::cpu {

using base::Append;
using base::Cat;

namespace {

constexpr int kRowsTogether[] = {8, 4};

}  // namespace

// slot = slot combined with the body's lanes that exist.
void Emitter::Accumulate(const Accumulator& accumulator, const std::string& slot) {
  const Addend addend = EmitAddend(accumulator);
  std::string& code = Here();
  const std::string type = TypeText(addend.value.type, lanes_.count);
  const std::string align = Cat(", align ", BytesOf(addend.value.type));
  const V before = writer_.Let(code, addend.value.type, lanes_.count, Cat("load ", type, ", ptr ", slot, align));
  V after = EmitAdded(accumulator, before, addend);
  if (lanes_.masked) after = writer_.Select(code, lanes_.mask, after, before);
  Append(code, "  store ", Typed(after), ", ptr ", slot, align, "\n");
}

// A product, also a negated one, stays two factors where the core multiplies and adds in one instruction: of a sum of
// many, whose last bits go by the order of its terms anyhow, that rounds once where the interpreter does twice.
Emitter::Addend Emitter::EmitAddend(const Accumulator& accumulator) {
  const auto is = [](const Element* element, fusion::Prim prim) {
    return element->kind == Element::Kind::kPrim && element->prim == prim;
  };
  const auto lanes_of = [&](const Element* element) {
    return writer_.Splat(Here(), EmitElement(element, 0), lanes_.count);
  };
  const Element* body = accumulator.body;
  const bool is_negated = is(body, fusion::Prim::kNeg);
  const Element* product = is_negated ? body->args[0] : body;
  const DType dtype = accumulator.dtype;
  if (!target_.fma || accumulator.kind != fusion::ReduceKind::kSum || !is(product, fusion::Prim::kMul) ||
      product->dtype != dtype || IsSaved(body) || IsSaved(product) ||
      (dtype != DType::kFloat32 && dtype != DType::kFloat64)) {
    return {lanes_of(body), std::nullopt};
  }
  V value = lanes_of(product->args[0]);
  if (is_negated) value = EmitPrim(writer_, Here(), fusion::Prim::kNeg, dtype, {value});
  return {value, lanes_of(product->args[1])};
}

V Emitter::EmitAdded(const Accumulator& accumulator, const V& before, const Addend& addend) {
  if (addend.times) return writer_.Intrinsic(Here(), "fma", {addend.value, *addend.times, before});
  return EmitCombine(writer_, Here(), accumulator.kind, accumulator.dtype, before, addend.value);
}

V Emitter::Collapse(const Accumulator& accumulator, const std::vector<std::string>& slots, int lanes,
                    const std::string& rest) {
  std::string& code = Here();
  const Ty type = TypeOf(accumulator.dtype);
  std::vector<V> parts;
  const auto load = [&](const std::string& slot, int count) {
    return writer_.Let(code, type, count, Cat("load ", TypeText(type, count), ", ptr ", slot, ", align 64"));
  };
  for (const std::string& slot : slots) parts.push_back(load(slot, lanes));
  const auto combine = [&](const V& a, const V& b) {
    return EmitCombine(writer_, code, accumulator.kind, accumulator.dtype, a, b);
  };
  while (parts.size() > 1) {
    std::vector<V> fewer;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) fewer.push_back(combine(parts[i], parts[i + 1]));
    if (parts.size() % 2 == 1) fewer.push_back(parts.back());
    parts = std::move(fewer);
  }
  V total = parts[0];
  for (int half = lanes / 2; half >= 1; half /= 2) {
    if (!rest.empty() && total.lanes == RestLanes(lanes)) total = combine(total, load(rest, total.lanes));
    const auto part = [&](int first) {
      return half == 1 ? writer_.Lane(code, total, first)
                       : writer_.Shuffle(code, total, half, [&](int i) { return first + i; });
    };
    const V low = part(0);
    total = combine(low, part(half));
  }
  return total;
}

// Carried accumulators add up in their workspace: a row of it stays in the first- or second-level cache.
void Emitter::EmitNeutral(const Phase& phase, int depth) {
  const auto starts = [&](const Carried& carried) { return carried.depth == depth; };
  if (std::ranges::none_of(phase.carried, starts)) return;
  const Loop& inner = phase.loops.back();
  const int lanes = LanesFor(inner);
  OpenLoops(std::span(phase.loops).first(phase.loops.size() - 1), [&] {
    EmitVectors(inner.variable, pool_.Import(inner.begin), pool_.Import(inner.end),
                {.lanes = lanes, .masked = HasMasks()}, [&](int) {
                  for (const Carried& carried : phase.carried) {
                    if (!starts(carried)) continue;
                    const Accumulator& accumulator = carried.accumulator;
                    EmitStoreOf(carried.tensor, carried.index, NeutralOf(accumulator.kind, accumulator.dtype, lanes));
                  }
                });
  });
}

// What was added up in pairs, vector by vector, is put into memory's order when it is complete: not in each row.
void Emitter::EmitMemoryOrder(const Phase& phase, int depth) {
  const auto starts = [&](const Carried& carried) { return carried.depth == depth; };
  if (std::ranges::none_of(phase.carried, starts)) return;
  const Loop& inner = phase.loops.back();
  const int lanes = LanesFor(phase, inner);
  if (!IsPaired(phase, inner) || CutsOf(phase, inner, lanes).size() > 2) return;
  const ir::Expr* begin = pool_.Import(inner.begin);
  const ir::Expr* trips = pool_.Sub(pool_.Import(inner.end), begin);
  const int copies = RowsTogether() > 1 ? 1 : CopiesFor(phase, inner, lanes);
  const ir::Expr* step = pool_.Const(int64_t{lanes} * CopiesIn(trips, lanes, copies));
  const ir::Expr* steps = pool_.FloorDiv(pool_.Max(trips, pool_.Const(0)), step);
  const ir::Expr* in_pairs = pool_.Mul(steps, step);
  OpenLoops(std::span(phase.loops).first(phase.loops.size() - 1), [&] {
    EmitVectors(inner.variable, begin, pool_.Add(begin, in_pairs), {.lanes = lanes}, [&](int) {
      if (lanes_.count < lanes) return;  // There is no rest.
      for (const Carried& carried : phase.carried) {
        if (starts(carried)) EmitStoreOf(carried.tensor, carried.index, EmitInMemoryOrder(EmitCarriedLoad(carried)));
      }
    });
  });
}

void Emitter::EmitCarried(const Phase& phase) {
  if (rows_together_.empty()) {
    for (const Carried& carried : phase.carried) EmitCarried(carried, std::array{EmitAddend(carried.accumulator)});
    return;
  }
  // What depends on the row is computed here for each; what is the same in all vectors leaves the loop by LLVM's hand.
  std::vector<std::vector<Addend>> addends(phase.carried.size());
  const auto row_level = static_cast<size_t>(variable_level_[static_cast<size_t>(region_->serial.back().variable)]);
  for (const V& row : rows_together_) {
    EnterRow(row, levels_.size() - 1);
    EmitPrefetches(0, 1);
    for (size_t k = 0; k < addends.size(); ++k) addends[k].push_back(EmitAddend(phase.carried[k].accumulator));
  }
  EnterRow(rows_together_[0], row_level);
  for (size_t k = 0; k < addends.size(); ++k) EmitCarried(phase.carried[k], addends[k]);
}

V Emitter::EmitCarriedLoad(const Carried& carried) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(carried.tensor)];
  const ir::Expr* offset = OffsetOf(carried.index, tensor, 0);
  // The offset does not vary along an axis without elements.
  return writer_.Splat(Here(), LoadFrom(tensor, Cat("%t", carried.tensor), offset, 0, levels_.size() - 1),
                       lanes_.count);
}

void Emitter::EmitCarried(const Carried& carried, std::span<const Addend> addends) {
  const bool paired = std::exchange(lanes_.paired, false);  // See EmitMemoryOrder.
  V sum = EmitCarriedLoad(carried);
  for (const Addend& addend : addends) sum = EmitAdded(carried.accumulator, sum, addend);
  EmitStoreOf(carried.tensor, carried.index, sum);
  lanes_.paired = paired;
}

int Emitter::RowsTogether() const {
  const Phase& phase = region_->phases.front();
  const bool carries_alone =
      region_->phases.size() == 1 && phase.accumulators.empty() && phase.stores.empty() && !phase.carried.empty();
  if (!carries_alone || !ReadsBestInOrder(target_)) return 1;
  std::unordered_map<const Element*, bool> seen;
  const size_t size = InstructionsOf(phase, seen);
  for (const int rows : kRowsTogether) {
    if (static_cast<size_t>(rows) * size <= kLargeBody) return rows;
  }
  return 1;
}

void Emitter::OpenRowsTogether(int rows, const std::function<void()>& body) {
  const Loop& loop = region_->serial.back();
  const V begin = EmitExpr(pool_.Import(loop.begin));
  const V end = EmitExpr(pool_.Import(loop.end));
  std::string& code = Here();
  const V trips = writer_.Intrinsic(code, "smax", {writer_.Binary(code, "sub", end, begin), IntConstant(Ty::kI64, 0)});
  const V left = writer_.Binary(code, "urem", trips, IntConstant(Ty::kI64, rows));
  const V middle = writer_.Binary(code, "sub", end, left);
  const auto open = [&](const V& from, const V& to, int count) {
    EmitLoop(from, to, IntConstant(Ty::kI64, count), [&](const V& at) {
      rows_together_ = {at};
      while (std::ssize(rows_together_) < count)
        rows_together_.push_back(writer_.Binary(Here(), "add", rows_together_.back(), IntConstant(Ty::kI64, 1)));
      EnterRow(at, levels_.size() - 1);
      body();
    });
    rows_together_.clear();
  };
  open(begin, middle, rows);
  open(middle, end, 1);
}

void Emitter::EnterRow(const V& row, size_t level) {
  const int variable = region_->serial.back().variable;
  variable_level_[static_cast<size_t>(variable)] = static_cast<int>(level);
  variable_value_[variable] = row;
  levels_.back().body_memo.clear();
}

}  // namespace hir::codegen::cpu
