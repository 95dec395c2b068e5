// What is done with a vector: its lanes one by one, sums, and stores.
#include <algorithm>

#include "csrc/codegen/gpu/emitter.h"
#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Prim;

std::string Emitter::AddressOf(int tensor, std::span<const Element* const> index) {
  const Offset offset = OffsetOf(index, nest_.tensors[static_cast<size_t>(tensor)], 0);
  const bool is_lane = lane_level_ != 0 && IsLane(VarsOf(offset));
  return Cat("a.t", tensor, " + (", OffsetText(offset, is_lane), ")");
}

bool Emitter::IsVectorStore(const Store& store) {
  const Tensor& tensor = nest_.tensors[static_cast<size_t>(store.tensor)];
  return IsVectorOffset(OffsetOf(store.index, tensor, 0), tensor.dtype, Cat("a.t", store.tensor));
}

namespace {

using fusion::Element;

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

// What is stored for a vector. Where indices alone tell that it is a copy, it stays packed: taking it apart and
// rounding it again is a fifth of the instructions of a rotary embedding that copies most of each head.
struct Emitter::Packed {
  std::string copy = {};              // A pack; empty: nothing is copied.
  std::string condition = {};         // Whether it is copied; empty: always.
  const Element* computed = nullptr;  // What is stored otherwise, lane by lane,
  int guard = 0;                      // where this holds.
};

Emitter::Packed Emitter::FindCopy(const Element* stored, DType dtype) {
  const auto is_copy = [&](const Element* from, int guard) {
    return from->kind == Element::Kind::kLoad && from->dtype == dtype && IsVectorLoad(from, guard);
  };
  const Element* value = Unrounded(stored, dtype);
  if (is_copy(value, 0)) return {.copy = PackText({value, 0})};
  const bool selects = value->kind == Element::Kind::kPrim && value->prim == fusion::Prim::kSelect;
  if (!selects || !math_.IsIndexCondition(value->args[0]) || !IsUniform(value->args[0])) return {.computed = stored};
  const Element* condition = value->args[0];
  const auto guard_of = [&](bool holds) {
    const Element* side = value->args[holds ? 1 : 2];
    return side->has_load ? AddGuard(0, condition, holds) : 0;
  };
  for (const bool holds : {true, false}) {
    const Element* copied = Unrounded(value->args[holds ? 1 : 2], dtype);
    if (!is_copy(copied, guard_of(holds))) continue;
    PairLoads(value, 0);
    return {.copy = PackText({copied, guard_of(holds)}),
            .condition = Cat(holds ? "" : "!", ConditionText(condition)),
            .computed = value->args[holds ? 2 : 1],
            .guard = guard_of(!holds)};
  }
  return {.computed = stored};
}

// The value to store in registers: packing rounds to 16 bits.
std::string Emitter::StoredText(const Element* value, DType dtype, int guard) {
  return ValueText(Unrounded(value, dtype), guard);
}

std::string Emitter::Stored(const Store& store) {
  return StoredText(store.value, nest_.tensors[static_cast<size_t>(store.tensor)].dtype);
}

void Emitter::StoreElement(const Store& store, const std::string& text) {
  const DType dtype = nest_.tensors[static_cast<size_t>(store.tensor)].dtype;
  Line("st_", Suffix(dtype), "(", AddressOf(store.tensor, store.index), ", ", text, ");");
}

void Emitter::Lanes(const std::function<void()>& body) {
  if (lanes_ <= 1 || vector_ < 0) {
    body();
    return;
  }
  Open();
  lane_level_ = levels_.size() - 1;
  body();
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
}

bool Emitter::DependsOn(const Element* element, std::span<const Loop> loops) {
  return (VarsOf(element) & kRowBit) != 0 || VariesWith(element, loops);
}

bool Emitter::VariesWith(const Element* element, std::span<const Loop> loops) {
  const uint64_t vars = VarsOf(element);
  return std::ranges::any_of(loops, [&](const Loop& loop) { return (vars & BitOf(loop.variable)) != 0; });
}

void Emitter::Body(std::span<const Accumulator> accumulators, std::span<const std::string> names,
                   std::span<const Store> stores, std::span<const Product> products) {
  struct Vector {
    const Store* store;
    Packed packed;
    std::string array;
  };
  std::vector<Vector> vectors;
  const bool has_lanes = lanes_ > 1 && vector_ >= 0;
  if (has_lanes) {
    for (const Store& store : stores) {
      if (!IsVectorStore(store)) continue;
      const DType dtype = nest_.tensors[static_cast<size_t>(store.tensor)].dtype;
      Vector& vector = vectors.emplace_back(Vector{&store, FindCopy(store.value, dtype), {}});
      if (vector.packed.computed == nullptr) continue;
      vector.array = NewName("o");
      Line(TypeText(dtype), " ", vector.array, "[", lanes_, "];");
    }
    Open();
    lane_level_ = levels_.size() - 1;
  }
  for (size_t k = 0; k < accumulators.size(); ++k) {
    const std::string value = ValueText(accumulators[k].body, 0);
    Line(names[k], " = ", InfoOf(accumulators[k].kind).c_name, "::of(", names[k], ", ", value, ");");
  }
  for (const Product& product : products) {
    std::vector<std::string> factors;
    for (const Element* factor : product.factors) factors.push_back(ValueText(factor, 0));
    Line(product.name, " += ", base::Join(factors, " * "), ";");
  }
  // All that is read comes first: one may be stored where another's value is read (Launch::in_place).
  std::vector<std::string> writes;
  for (const Store& store : stores) {
    const DType dtype = nest_.tensors[static_cast<size_t>(store.tensor)].dtype;
    const auto vector = std::ranges::find(vectors, &store, &Vector::store);
    if (vector != vectors.end()) {
      const Packed& packed = vector->packed;
      if (packed.computed == nullptr) continue;
      Line(vector->array, "[e] = ", StoredText(packed.computed, dtype, packed.guard), ";");
      continue;
    }
    const std::string value = StoredText(store.value, dtype);
    writes.push_back(Cat("st_", Suffix(dtype), "(", AddressOf(store.tensor, store.index), ", ", value, ");"));
  }
  for (const std::string& write : writes) Line(write);
  if (!has_lanes) return;
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
  for (const Vector& vector : vectors) {
    const DType dtype = nest_.tensors[static_cast<size_t>(vector.store->tensor)].dtype;
    const Packed& packed = vector.packed;
    const std::string put = Cat("put_", Suffix(dtype), "(", vector.array, ")");
    Line("stv(", AddressOf(vector.store->tensor, vector.store->index), ", ",
         packed.copy.empty()        ? put
         : packed.condition.empty() ? packed.copy
                                    : Cat(packed.condition, " ? ", packed.copy, " : ", put),
         ");");
  }
}

void Emitter::AddExponentials(const Element* x, const std::string& base, const std::string& sum) {
  const bool has_lanes = lanes_ > 1 && vector_ >= 0;
  if (has_lanes) {
    Open();
    lane_level_ = levels_.size() - 1;
  }
  const std::string value = ValueText(x, 0);
  Line(sum, " += fast_exp(", value, " - ", base, ");");
  if (!has_lanes) return;
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
}

void Emitter::KeepPacks(std::span<const std::pair<Access, std::string>> arrays, int count) {
  for (const auto& [access, name] : arrays)
    Line("#pragma unroll\nfor (int u = 0; u < ", count, "; ++u) keep(", name, "[u]);");
}

// a + b, a - b or a * b of bf16 vectors, rounded to bf16, two lanes at a time; empty for anything else.
std::string Emitter::PairsText(const Element* element) {
  if (lanes_ <= 1 || element->kind != Element::Kind::kConvert || element->dtype != DType::kBFloat16) return {};
  const Element* op = element->args[0];
  if (op->kind != Element::Kind::kPrim || op->dtype != DType::kFloat32) return {};
  const std::string_view name = op->prim == Prim::kAdd   ? "add_bf16"
                                : op->prim == Prim::kSub ? "sub_bf16"
                                : op->prim == Prim::kMul ? "mul_bf16"
                                                         : "";
  if (name.empty()) return {};
  std::vector<std::string> packs;
  for (const Element* arg : op->args) {
    if (arg->kind != Element::Kind::kConvert || arg->args[0]->dtype != DType::kBFloat16) return {};
    const auto known = packs_.find({arg->args[0], 0});
    if (known == packs_.end()) return {};
    packs.push_back(known->second);
  }
  return Cat(name, "(", packs[0], ", ", packs[1], ")");
}

std::string Emitter::PackOf(const Element* element, DType dtype) {
  if (const std::string pairs = PairsText(element); !pairs.empty()) return pairs;
  const std::string array = NewName("o");
  Line(TypeText(dtype), " ", array, "[", lanes_, "];");
  Open();
  lane_level_ = levels_.size() - 1;
  const std::string value = StoredText(element, dtype);
  Line(array, "[e] = ", value, ";");
  const std::string lane = Close();
  lane_level_ = 0;
  Line("#pragma unroll\nfor (int e = 0; e < ", lanes_, "; ++e) {\n", lane, "}");
  const std::string pack = NewName("p");
  Line("const auto ", pack, " = put_", Suffix(dtype), "(", array, ");");
  return pack;
}

}  // namespace hir::codegen::gpu
