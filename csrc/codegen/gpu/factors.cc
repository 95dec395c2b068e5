#include "csrc/codegen/gpu/factors.h"

#include <algorithm>
#include <cmath>

namespace hir::codegen::gpu {

using fusion::Element;
using fusion::Prim;

namespace {

bool IsPowerOfTwo(const Element* element) {
  int exponent = 0;
  return element->kind == Element::Kind::kFloat && std::isnormal(element->number) &&
         std::fabs(std::frexp(element->number, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

}  // namespace

// What is multiplied as it is: no product, or one that does not vary with rows and columns both.
bool Factors::IsAtom(const Element* element) const {
  if (element->kind != Element::Kind::kPrim || element->dtype != DType::kFloat32) return true;
  if (!dependences_.VariesWith(element, columns_) || !dependences_.DependsOn(element, rows_)) return true;
  if (element->prim == Prim::kDiv) return !IsPowerOfTwo(element->args[1]);
  return element->prim != Prim::kMul && element->prim != Prim::kNeg;
}

void Factors::Flatten(const Element* element, Parts& parts) {
  if (element->kind == Element::Kind::kFloat) {
    parts.constant *= element->number;
    return;
  }
  if (!IsAtom(element)) {
    Flatten(element->args[0], parts);
    if (element->prim == Prim::kMul) Flatten(element->args[1], parts);
    if (element->prim == Prim::kDiv) parts.constant /= element->args[1]->number;
    if (element->prim == Prim::kNeg) parts.constant = -parts.constant;
    return;
  }
  const bool by_column = dependences_.VariesWith(element, columns_);
  const bool by_row = dependences_.DependsOn(element, rows_);
  const Element* own = by_column && by_row ? Ordered(element) : element;
  order_.emplace(own, static_cast<int>(order_.size()));
  (by_column ? by_row ? parts.both : parts.column : parts.row).push_back(own);
}

const Element* Factors::Chain(std::vector<const Element*>& factors) {
  if (factors.empty()) return nullptr;
  std::ranges::sort(factors, {}, [&](const Element* e) { return order_.at(e); });
  const Element* product = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) product = elements_.Apply(Prim::kMul, {product, factors[i]});
  return product;
}

const Element* Factors::OfRow(Parts& parts) {
  const Element* product = Chain(parts.row);
  if (parts.constant == 1) return product;
  const Element* constant = elements_.Float(DType::kFloat32, parts.constant);
  if (product == nullptr) return constant;
  return parts.constant == -1 ? elements_.Apply(Prim::kNeg, {product})
                              : elements_.Apply(Prim::kMul, {product, constant});
}

const Element* Factors::OfElement(Parts& parts) {
  const Element* both = Chain(parts.both);
  const Element* column = Chain(parts.column);
  if (both == nullptr || column == nullptr) return both == nullptr ? column : both;
  return elements_.Apply(Prim::kMul, {both, column});
}

const Element* Factors::Joined(Parts& parts) {
  if (parts.row.empty() && parts.constant == -1) {
    parts.constant = 1;
    const Element* positive = OfElement(parts);
    return positive == nullptr ? elements_.Float(DType::kFloat32, -1) : elements_.Apply(Prim::kNeg, {positive});
  }
  const Element* own = OfElement(parts);
  const Element* row = OfRow(parts);
  if (own == nullptr) return row == nullptr ? elements_.Float(DType::kFloat32, 1) : row;
  return row == nullptr ? own : elements_.Apply(Prim::kMul, {own, row});
}

const Element* Factors::Ordered(const Element* element) {
  if (element->kind != Element::Kind::kPrim && element->kind != Element::Kind::kConvert) return element;
  if (!dependences_.DependsOn(element, rows_) || !dependences_.VariesWith(element, columns_)) return element;
  if (const auto known = ordered_.find(element); known != ordered_.end()) return known->second;
  const Element* result = element;
  if (!IsAtom(element)) {
    Parts parts;
    Flatten(element, parts);
    result = Joined(parts);
  } else if (element->kind == Element::Kind::kConvert) {
    result = elements_.Convert(element->dtype, Ordered(element->args[0]));
  } else if (element->dtype == DType::kFloat32 && element->prim != Prim::kSelect) {
    std::vector<const Element*> args;
    for (const Element* arg : element->args) args.push_back(Ordered(arg));
    if (!std::ranges::equal(args, element->args)) result = elements_.Apply(element->prim, args);
  }
  return ordered_[element] = result;
}

const Element* Factors::Product(std::span<const Element* const> factors) {
  Parts parts;
  for (const Element* factor : factors) Flatten(factor, parts);
  return Joined(parts);
}

Factors::Split Factors::SplitRow(const Element* element) {
  if (IsAtom(element)) return {nullptr, Ordered(element)};
  Parts parts;
  Flatten(element, parts);
  return {OfRow(parts), OfElement(parts)};
}

}  // namespace hir::codegen::gpu
