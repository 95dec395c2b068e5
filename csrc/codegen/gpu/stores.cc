// Addresses, elements and copies.
#include "csrc/codegen/gpu/stores.h"

#include <algorithm>
#include <set>

#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Element;

namespace {

bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// `value` without conversions between f32 and a half type `dtype` to which the store rounds it anyway.
const Element* Unrounded(const Element* value, DType dtype) {
  const auto is_either = [&](DType other) { return other == dtype || other == DType::kFloat32; };
  while (IsHalf(dtype) && value->kind == Element::Kind::kConvert && is_either(value->dtype) &&
         is_either(value->args[0]->dtype))
    value = value->args[0];
  return value;
}

}  // namespace

std::string Stores::AddressOf(int tensor, std::span<const Element* const> index) {
  const Places::Offset offset = places_.OffsetOf(tensor, index);
  const bool is_lane = code_.lane_level() != 0 && places_.IsLane(offset);
  return Cat(arguments_.AddressOf(tensor), " + (", values_.OffsetText(offset, is_lane), ")");
}

std::string Stores::ElementText(const Store& store, const std::string& text) {
  return Cat("st_", Suffix(DTypeOf(store)), "(", AddressOf(store.tensor, store.index), ", ", text, ");");
}

const Element* Stores::ValueOf(const Store& store) const { return Unrounded(store.value, DTypeOf(store)); }

std::string Stores::ValueText(const Element* value, DType dtype, int guard) {
  return values_.Text(Unrounded(value, dtype), guard);
}

Stores::Packed Stores::FindCopy(const Store& store) {
  const DType dtype = DTypeOf(store);
  const auto is_copy = [&](const Element* from, int guard) {
    return from->kind == Element::Kind::kLoad && from->dtype == dtype && places_.IsVectorLoad({from, guard});
  };
  const Element* value = Unrounded(store.value, dtype);
  if (is_copy(value, 0)) return {.copy = values_.PackText({value, 0})};
  const bool selects = value->kind == Element::Kind::kPrim && value->prim == fusion::Prim::kSelect;
  if (!selects || !math_.IsIndexCondition(value->args[0]) || !guards_.IsUniform(value->args[0]))
    return {.computed = store.value};
  const Element* condition = value->args[0];
  const auto guard_of = [&](bool holds) {
    const Element* side = value->args[holds ? 1 : 2];
    return side->has_load ? guards_.Add(0, condition, holds) : 0;
  };
  for (const bool holds : {true, false}) {
    const Element* copied = Unrounded(value->args[holds ? 1 : 2], dtype);
    if (!is_copy(copied, guard_of(holds))) continue;
    values_.PairLoads(value, 0);
    return {.copy = values_.PackText({copied, guard_of(holds)}),
            .condition = Cat(holds ? "" : "!", indices_.ConditionText(condition)),
            .computed = value->args[holds ? 2 : 1],
            .guard = guard_of(!holds)};
  }
  return {.computed = store.value};
}

const Element* Stores::FindBranch(const Element* value, int guard) {
  std::set<const Element*> seen, cheap;  // `cheap`: it and all below it.
  const auto is_costly = [&](const auto& self, const Element* e) -> bool {
    if (!e->has_load || e->kind == Element::Kind::kLoad || cheap.contains(e)) return false;
    const bool is_prim = e->kind == Element::Kind::kPrim;
    if (is_prim && (fusion::IsFunction(e->prim) || e->prim == fusion::Prim::kDiv)) return true;
    if (std::ranges::any_of(e->args, [&](const Element* arg) { return self(self, arg); })) return true;
    cheap.insert(e);
    return false;
  };
  const auto find = [&](const auto& self, const Element* e) -> const Element* {
    if (!e->has_load || e->kind == Element::Kind::kLoad || !seen.insert(e).second) return nullptr;
    if (e->kind == Element::Kind::kPrim && e->prim == fusion::Prim::kSelect) {
      const Element* condition = e->args[0];
      if (const auto known = guards_.Known(guard, condition)) return self(self, e->args[*known ? 1 : 2]);
      if (math_.IsIndexCondition(condition) && !math_.Decide(condition) &&
          (is_costly(is_costly, e->args[1]) || is_costly(is_costly, e->args[2])) && guards_.IsUniform(condition))
        return e;
    }
    for (const Element* arg : e->args) {
      if (const Element* found = self(self, arg)) return found;
    }
    return nullptr;
  };
  return find(find, value);
}

std::string Stores::PackedText(const Store& store, const Packed& packed, const std::string& array) {
  const std::string put = Cat("put_", Suffix(DTypeOf(store)), "(", array, ")");
  return Cat("stv(", AddressOf(store.tensor, store.index), ", ",
             packed.copy.empty()        ? put
             : packed.condition.empty() ? packed.copy
                                        : Cat(packed.condition, " ? ", packed.copy, " : ", put),
             ");");
}

}  // namespace hir::codegen::gpu
