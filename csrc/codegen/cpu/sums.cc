#include "csrc/codegen/cpu/sums.h"

#include <utility>

#include "csrc/base/text.h"
#include "csrc/codegen/cpu/prims.h"

namespace hir::codegen::cpu {

using base::Cat;

void Sums::Accumulate(const Accumulator& accumulator, const std::string& slot) {
  const Addend addend = EmitAddend(accumulator);
  const Lanes& lanes = elements_.lanes();
  std::string& code = scopes_.Here();
  const std::string type = TypeText(addend.value.type, lanes.count);
  const std::string align = Cat(", align ", BytesOf(addend.value.type));
  const V before = writer_.Let(code, addend.value.type, lanes.count, Cat("load ", type, ", ptr ", slot, align));
  V after = EmitAdded(accumulator, before, addend);
  if (lanes.masked) after = writer_.Select(code, lanes.mask, after, before);
  base::Append(code, "  store ", Typed(after), ", ptr ", slot, align, "\n");
}

// A product, also a negated one, stays two factors where the core multiplies and adds in one instruction: of a sum of
// many, whose last bits go by the order of its terms anyhow, that rounds once where the interpreter does twice.
Sums::Addend Sums::EmitAddend(const Accumulator& accumulator) {
  const auto is = [](const fusion::Element* element, fusion::Prim prim) {
    return element->kind == fusion::Element::Kind::kPrim && element->prim == prim;
  };
  const auto lanes_of = [&](const fusion::Element* element) {
    return writer_.Splat(scopes_.Here(), elements_.EmitElement(element), elements_.lanes().count);
  };
  const fusion::Element* body = accumulator.body;
  const bool is_negated = is(body, fusion::Prim::kNeg);
  const fusion::Element* product = is_negated ? body->args[0] : body;
  const DType dtype = accumulator.dtype;
  if (!elements_.target().fma || accumulator.kind != fusion::ReduceKind::kSum || !is(product, fusion::Prim::kMul) ||
      product->dtype != dtype || elements_.IsSaved(body) || elements_.IsSaved(product) ||
      (dtype != DType::kFloat32 && dtype != DType::kFloat64)) {
    return {lanes_of(body), std::nullopt};
  }
  V value = lanes_of(product->args[0]);
  if (is_negated) value = EmitPrim(writer_, scopes_.Here(), fusion::Prim::kNeg, dtype, {value});
  return {value, lanes_of(product->args[1])};
}

V Sums::EmitAdded(const Accumulator& accumulator, const V& before, const Addend& addend) {
  if (addend.times) return writer_.Intrinsic(scopes_.Here(), "fma", {addend.value, *addend.times, before});
  return EmitCombine(writer_, scopes_.Here(), accumulator.kind, accumulator.dtype, before, addend.value);
}

std::string Sums::EmitSlot(const Accumulator& accumulator, int lanes) {
  const std::string slot = writer_.Alloca(TypeOf(accumulator.dtype), lanes);
  const V neutral = NeutralOf(accumulator.kind, accumulator.dtype, lanes);
  base::Append(scopes_.Here(), "  store ", Typed(neutral), ", ptr ", slot, ", align 64\n");
  return slot;
}

Sums::Slots Sums::EmitSlots(const Accumulator& accumulator, const Widths& widths) {
  Slots slots;
  for (int copy = 0; copy < widths.copies; ++copy) slots.of_copies.push_back(EmitSlot(accumulator, widths.lanes));
  if (widths.has_rest) slots.rest = EmitSlot(accumulator, widths_.RestLanes(widths.lanes));
  return slots;
}

void Sums::AccumulateIn(const Slots& slots, const Accumulator& accumulator, const Widths& widths, int copy) {
  const bool is_rest = elements_.lanes().count < widths.lanes;
  Accumulate(accumulator, is_rest ? slots.rest : slots.of_copies[static_cast<size_t>(copy)]);
}

V Sums::Collapse(const Accumulator& accumulator, const Slots& slots, const Widths& widths) {
  const auto& [of_copies, rest] = slots;
  const int lanes = widths.lanes;
  std::string& code = scopes_.Here();
  const Ty type = TypeOf(accumulator.dtype);
  std::vector<V> parts;
  const auto load = [&](const std::string& slot, int count) {
    return writer_.Let(code, type, count, Cat("load ", TypeText(type, count), ", ptr ", slot, ", align 64"));
  };
  for (const std::string& slot : of_copies) parts.push_back(load(slot, lanes));
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
    if (!rest.empty() && total.lanes == widths_.RestLanes(lanes)) total = combine(total, load(rest, total.lanes));
    const auto part = [&](int first) {
      return half == 1 ? writer_.Lane(code, total, first)
                       : writer_.Shuffle(code, total, half, [&](int i) { return first + i; });
    };
    const V low = part(0);
    total = combine(low, part(half));
  }
  return total;
}

}  // namespace hir::codegen::cpu
