// The loop over lanes, and code behind it.
#include "csrc/codegen/gpu/lanes.h"

#include <algorithm>

#include "csrc/codegen/gpu/scalar.h"

namespace hir::codegen::gpu {

using base::Cat;
using fusion::Prim;

namespace {
constexpr int kSplitsMax = 8;
}  // namespace

void Lanes::Each(const std::function<void()>& body) {
  if (vector_.HasLanes()) {
    code_.Lanes(vector_.lanes(), body);
  } else {
    body();
  }
}

std::vector<Lanes::VectorStore> Lanes::StartVectors(std::span<const Store> stores) {
  std::vector<VectorStore> vectors;
  if (!vector_.HasLanes()) return vectors;
  for (const Store& store : stores) {
    if (!places_.IsVectorStore(store)) continue;
    VectorStore& vector = vectors.emplace_back(VectorStore{&store, stores_.FindCopy(store), {}});
    if (vector.packed.computed == nullptr) continue;
    vector.array = code_.NewName("o");
    code_.Line(TypeText(stores_.DTypeOf(store)), " ", vector.array, "[", vector_.lanes(), "];");
  }
  return vectors;
}

void Lanes::Accumulate(std::span<const Accumulator> accumulators, std::span<const std::string> names,
                       std::span<const Product> products) {
  for (size_t k = 0; k < accumulators.size(); ++k) {
    const std::string value = values_.Text(accumulators[k].body);
    code_.Line(names[k], " = ", InfoOf(accumulators[k].kind).c_name, "::of(", names[k], ", ", value, ");");
  }
  for (const Product& product : products) {
    std::vector<std::string> factors;
    for (const Element* factor : product.factors) factors.push_back(values_.Text(factor));
    code_.Line(product.name, " += ", base::Join(factors, " * "), ";");
  }
}

void Lanes::StoreLane(std::span<const Store> stores, const std::vector<VectorStore>& vectors) {
  // All that is read comes first: one may be stored where another's value is read (Launch::in_place).
  std::vector<std::string> writes;
  for (const Store& store : stores) {
    const auto vector = std::ranges::find(vectors, &store, &VectorStore::store);
    if (vector == vectors.end()) {
      const std::string value = stores_.ValueText(store);
      writes.push_back(stores_.ElementText(store, value));
      continue;
    }
    const Stores::Packed& packed = vector->packed;
    if (packed.computed == nullptr) continue;
    code_.Line(vector->array, "[e] = ", stores_.ValueText(packed.computed, stores_.DTypeOf(store), packed.guard), ";");
  }
  for (const std::string& write : writes) code_.Line(write);
}

bool Lanes::Branches(const VectorStore& vector) {
  const Stores::Packed& packed = vector.packed;
  return packed.computed != nullptr && stores_.FindBranch(packed.computed, packed.guard) != nullptr;
}

// Lane by lane, where `guard` holds; a piece of a concatenation for those vectors alone that lie in it. At most
// `splits` branches: sums of many concatenations have as many cases as the product of their pieces.
void Lanes::Compute(const VectorStore& vector, int guard, int& splits) {
  const Element* select = splits > 0 ? stores_.FindBranch(vector.packed.computed, guard) : nullptr;
  if (select == nullptr) {
    return Each([&] {
      const DType dtype = stores_.DTypeOf(*vector.store);
      code_.Line(vector.array, "[e] = ", stores_.ValueText(vector.packed.computed, dtype, guard), ";");
    });
  }
  --splits;
  values_.PairLoads(select, guard);
  const std::string condition = indices_.ConditionText(select->args[0]);
  std::string sides[2];
  for (const bool holds : {true, false}) {
    code_.Open();
    Compute(vector, guards_.Add(guard, select->args[0], holds), splits);
    sides[holds ? 0 : 1] = code_.Close();
  }
  code_.Line("if (", condition, ") {\n", sides[0], "} else {\n", sides[1], "}");
}

void Lanes::Body(std::span<const Accumulator> accumulators, std::span<const std::string> names,
                 std::span<const Store> stores, std::span<const Product> products) {
  const std::vector<VectorStore> vectors = StartVectors(stores);
  if (accumulators.empty() && products.empty() && stores.size() == 1 && vectors.size() == 1 && Branches(vectors[0])) {
    int splits = kSplitsMax;
    Compute(vectors[0], vectors[0].packed.guard, splits);
  } else {
    Each([&] {
      Accumulate(accumulators, names, products);
      StoreLane(stores, vectors);
    });
  }
  for (const VectorStore& vector : vectors) code_.Line(stores_.PackedText(*vector.store, vector.packed, vector.array));
}

void Lanes::AddExponentials(const Element* x, const std::string& base, const std::string& sum) {
  Each([&] {
    const std::string value = values_.Text(x);
    code_.Line(sum, " += fast_exp(", value, " - ", base, ");");
  });
}

// a + b, a - b or a * b of bf16 vectors, rounded to bf16, two lanes at a time; empty for anything else.
std::string Lanes::PairsText(const Element* element) const {
  if (vector_.lanes() <= 1 || element->kind != Element::Kind::kConvert || element->dtype != DType::kBFloat16) return {};
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
    const std::string* pack = loaded_.PackOf({arg->args[0], 0});
    if (pack == nullptr) return {};
    packs.push_back(*pack);
  }
  return Cat(name, "(", packs[0], ", ", packs[1], ")");
}

std::string Lanes::PackOf(const Element* element, DType dtype) {
  if (std::string pairs = PairsText(element); !pairs.empty()) return pairs;
  const std::string array = code_.NewName("o");
  code_.Line(TypeText(dtype), " ", array, "[", vector_.lanes(), "];");
  code_.Lanes(vector_.lanes(), [&] {
    const std::string value = stores_.ValueText(element, dtype);
    code_.Line(array, "[e] = ", value, ";");
  });
  std::string pack = code_.NewName("p");
  code_.Line("const auto ", pack, " = put_", Suffix(dtype), "(", array, ");");
  return pack;
}

}  // namespace hir::codegen::gpu
