#include "csrc/segment/price.h"

#include <vector>

#include "csrc/fusion/element.h"

namespace hir::segment {
namespace {

// About the same on CPUs and GPUs: cores have so much arithmetic that the plain kind costs nothing.
int64_t PriceOfPrim(fusion::Prim prim) {
  switch (InfoOf(prim).cost) {
    case fusion::PrimCost::kPlain: return 0;
    case fusion::PrimCost::kRoot:
    case fusion::PrimCost::kShort: return 4;
    case fusion::PrimCost::kLong: return 16;
  }
  return 0;
}

std::optional<int64_t> PriceOf(const fusion::Element* element) {
  if (element->kind == fusion::Element::Kind::kReduce) return std::nullopt;
  int64_t bytes = element->kind == fusion::Element::Kind::kPrim ? PriceOfPrim(element->prim) : 0;
  for (const fusion::Element* arg : element->args) {
    const std::optional<int64_t> of_arg = PriceOf(arg);
    if (!of_arg) return std::nullopt;
    bytes += *of_arg;
  }
  return bytes;
}

}  // namespace

std::optional<int64_t> PriceOfElement(const ir::Op& op) {
  fusion::ElementBuilder builder;
  std::vector<const fusion::Element*> index;
  for (size_t i = 0; i < ir::ValueAxes(*op.results[0]->type).size(); ++i)
    index.push_back(builder.Index(static_cast<int>(i)));
  return PriceOf(fusion::Define(builder, op, 0, index));
}

}  // namespace hir::segment
