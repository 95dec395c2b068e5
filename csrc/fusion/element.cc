#include "csrc/fusion/element.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "csrc/fusion/fold.h"
#include "csrc/fusion/prim_eval.h"

namespace hir::fusion {
namespace {

size_t Mix(size_t hash, size_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29); }

size_t Hash(const Element& e) {
  size_t hash = Mix(static_cast<size_t>(e.kind), static_cast<size_t>(e.dtype));
  hash = Mix(hash, static_cast<size_t>(e.prim));
  hash = Mix(hash, static_cast<size_t>(e.reduce) + (e.of_place ? 8 : 0));
  hash = Mix(hash, std::bit_cast<uint64_t>(e.number));
  hash = Mix(hash, static_cast<size_t>(e.integer));
  hash = Mix(hash, reinterpret_cast<size_t>(e.extent));
  hash = Mix(hash, reinterpret_cast<size_t>(e.value));
  for (const Element* arg : e.args) hash = Mix(hash, reinterpret_cast<size_t>(arg));
  for (const ir::Expr* extent : e.extents) hash = Mix(hash, reinterpret_cast<size_t>(extent));
  return hash;
}

bool SameContents(const Element& a, const Element& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.prim == b.prim && a.reduce == b.reduce &&
         a.of_place == b.of_place && std::bit_cast<uint64_t>(a.number) == std::bit_cast<uint64_t>(b.number) &&
         a.integer == b.integer && a.extent == b.extent && a.value == b.value && std::ranges::equal(a.args, b.args) &&
         std::ranges::equal(a.extents, b.extents);
}

}  // namespace

ElementBuilder::ElementBuilder()
    : load_([this](const ir::Value* value, std::span<const Element* const> index) { return MakeLoad(value, index); }) {}

const Element* ElementBuilder::Intern(Element element) {
  const size_t hash = Hash(element);
  const auto [first, last] = interned_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (SameContents(*it->second, element)) return it->second;
  }
  const auto copy = [this]<typename T>(std::span<const T> values) -> std::span<const T> {
    auto* memory = static_cast<T*>(arena_.allocate((values.size() + 1) * sizeof(T), alignof(T)));
    std::copy(values.begin(), values.end(), memory);
    return {memory, values.size()};
  };
  element.args = copy(element.args);
  element.extents = copy(element.extents);
  element.id = num_elements_++;
  const bool from_loads = std::ranges::any_of(element.args, &Element::has_load);
  const bool is_load = element.kind == Element::Kind::kLoad;
  element.has_load = is_load || from_loads;
  element.has_data_index = (is_load && from_loads) || std::ranges::any_of(element.args, &Element::has_data_index);
  auto* made = new (arena_.allocate(sizeof(Element), alignof(Element))) Element(element);
  interned_.emplace(hash, made);
  return made;
}

const Element* ElementBuilder::Float(DType dtype, double value) {
  HIR_CHECK(dtype == DType::kFloat32 || dtype == DType::kFloat64);
  return Intern({.kind = Element::Kind::kFloat, .dtype = dtype, .number = value});
}

const Element* ElementBuilder::Int(DType dtype, int64_t value) {
  HIR_CHECK(!IsFloat(dtype));
  return Intern({.kind = Element::Kind::kInt, .dtype = dtype, .integer = Wrap(dtype, value)});
}

const Element* ElementBuilder::Index(int axis) {
  return Intern({.kind = Element::Kind::kIndex, .dtype = DType::kInt64, .integer = axis});
}

const Element* ElementBuilder::Extent(const ir::Expr* extent) {
  if (extent->IsConst()) return Int(DType::kInt64, extent->value);
  return Intern({.kind = Element::Kind::kExtent, .dtype = DType::kInt64, .extent = extent});
}

const Element* ElementBuilder::Scalar(const ir::Value* value) {
  // Without recursion: a program may hold a chain of scalar ops as long as itself.
  std::vector<const ir::Value*> pending = {value};
  while (!pending.empty()) {
    const ir::Value* next = pending.back();
    HIR_CHECK(next->type->kind == ir::TypeKind::kScalar);
    const size_t before = pending.size();
    if (!scalars_.contains(next) && next->def != nullptr) {
      for (const ir::Value* operand : next->def->operands) {
        const bool is_scalar = operand->type->kind == ir::TypeKind::kScalar;  // size reads a tensor.
        if (is_scalar && !scalars_.contains(operand)) pending.push_back(operand);
      }
    }
    if (pending.size() > before) continue;
    pending.pop_back();
    if (scalars_.contains(next)) continue;
    scalars_[next] = next->def != nullptr
                         ? Define(*this, *next->def, next->index, {})
                         : Intern({.kind = Element::Kind::kScalar, .dtype = next->type->dtype, .value = next});
  }
  return scalars_.at(value);
}

const Element* ElementBuilder::Load(const ir::Value* value, std::span<const Element* const> index) {
  return load_(value, index);
}

const Element* ElementBuilder::MakeLoad(const ir::Value* value, std::span<const Element* const> index) {
  HIR_CHECK(value->type->kind == ir::TypeKind::kTensor && ir::ValueAxes(*value->type).size() == index.size());
  return Intern({.kind = Element::Kind::kLoad, .dtype = value->type->dtype, .value = value, .args = index});
}

const Element* ElementBuilder::Convert(DType dtype, const Element* x) {
  if (x->dtype == dtype) return x;
  if (const Element* folded = FoldConvert(*this, dtype, x)) return folded;
  const Element* args[] = {x};
  return Intern({.kind = Element::Kind::kConvert, .dtype = dtype, .args = args});
}

const Element* ElementBuilder::Apply(Prim prim, std::span<const Element* const> args) {
  return ApplyTo(prim, args, false);
}

const Element* ElementBuilder::DividePlace(Prim prim, const Element* place, const Element* extent) {
  HIR_CHECK(prim == Prim::kDiv || prim == Prim::kRem);
  const Element* args[] = {place, extent};
  return ApplyTo(prim, args, true);
}

const Element* ElementBuilder::ApplyTo(Prim prim, std::span<const Element* const> args, bool of_place) {
  HIR_CHECK(static_cast<int>(args.size()) == InfoOf(prim).operands);
  const DType operand = args.back()->dtype;
  HIR_CHECK(prim == Prim::kSelect ? args[0]->dtype == DType::kBool && args[1]->dtype == operand
                                  : args[0]->dtype == operand);
  HIR_CHECK(ComputeDType(operand) == operand);
  if (const Element* folded = Fold(*this, prim, args)) return folded;
  const DType dtype = MakesBool(prim) ? DType::kBool : operand;
  return Intern({.kind = Element::Kind::kPrim, .dtype = dtype, .prim = prim, .args = args, .of_place = of_place});
}

const Element* ElementBuilder::Select(const Element* condition, const Element* yes, const Element* no) {
  return Apply(Prim::kSelect, {condition, yes, no});
}

int ElementBuilder::NewReduceVariables(int count) {
  const int first = num_variables_;
  num_variables_ += count;
  return first;
}

const Element* ElementBuilder::ReduceIndex(int variable) {
  return Intern({.kind = Element::Kind::kReduceIndex, .dtype = DType::kInt64, .integer = variable});
}

const Element* ElementBuilder::Reduce(ReduceKind kind, int first_variable, std::span<const ir::Expr* const> extents,
                                      const Element* body) {
  if (extents.empty()) return body;
  const Element* args[] = {body};
  return Intern({.kind = Element::Kind::kReduce,
                 .dtype = body->dtype,
                 .reduce = kind,
                 .integer = first_variable,
                 .args = args,
                 .extents = extents});
}

}  // namespace hir::fusion
