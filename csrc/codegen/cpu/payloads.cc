#include "csrc/codegen/cpu/payloads.h"

#include <algorithm>

namespace hir::codegen::cpu {

using fusion::Element;

namespace {

// Whether a NaN that it makes on floats is hardware's, or has the payload of an operand: no call of the C library.
bool KeepsPayloads(fusion::Prim prim) {
  using fusion::Prim;
  static constexpr Prim kSuch[] = {Prim::kAdd,  Prim::kSub, Prim::kMul,  Prim::kDiv,  Prim::kMin,
                                   Prim::kMax,  Prim::kNeg, Prim::kAbs,  Prim::kExp,  Prim::kLog,
                                   Prim::kTanh, Prim::kErf, Prim::kSqrt, Prim::kRsqrt};
  return std::ranges::find(kSuch, prim) != std::end(kSuch);
}

}  // namespace

bool IsWidened(const Element* element, DType dtype) {
  if (element->kind == Element::Kind::kConvert) return element->args[0]->dtype == dtype;
  if (element->kind == Element::Kind::kFloat) return RoundTo(dtype, element->number) == element->number;
  return element->kind == Element::Kind::kPrim && element->prim == fusion::Prim::kSelect &&
         IsWidened(element->args[1], dtype) && IsWidened(element->args[2], dtype);
}

void Payloads::StartRegion(const Region& region) {
  bodies_.clear();
  is_short_.clear();
  for (const Phase& phase : region.phases) {
    for (const Accumulator& accumulator : phase.accumulators) bodies_[accumulator.value] = accumulator.body;
  }
}

bool Payloads::IsShort(const Element* element) {
  const auto known = is_short_.find(element);
  if (known != is_short_.end()) return known->second;
  bool is_short = false;
  const auto all = [&](size_t first) {
    return std::ranges::all_of(element->args.subspan(first), [&](const Element* arg) { return IsShort(arg); });
  };
  if (element->kind == Element::Kind::kFloat) {
    is_short = element->number == element->number;
  } else if (element->kind == Element::Kind::kConvert) {
    const DType from = element->args[0]->dtype;
    is_short = from == DType::kBFloat16 || !IsFloat(from);
  } else if (element->kind == Element::Kind::kLoad) {
    const auto body = bodies_.find(element->value);
    is_short = body != bodies_.end() && IsShort(body->second);
  } else if (element->kind == Element::Kind::kPrim && element->dtype == DType::kFloat32) {
    is_short = KeepsPayloads(element->prim) ? all(0) : element->prim == fusion::Prim::kSelect && all(1);
  }
  return is_short_[element] = is_short;
}

}  // namespace hir::codegen::cpu
