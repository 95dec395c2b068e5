// From an op to the functions of its row.
#include <algorithm>
#include <tuple>

#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

constexpr AxesFn kAxes[] = {
#define POINTWISE(...) AxesPointwise,
#define OP(Name, ...) Axes##Name,
#define COMM(Name, ...) Axes##Name,
#include "csrc/fusion/fusion_ops.def"
};

constexpr DefineFn kDefine[] = {
#define POINTWISE(...) DefinePointwise,
#define OP(Name, ...) Define##Name,
#define COMM(...) nullptr,
#include "csrc/fusion/fusion_ops.def"
};

}  // namespace

std::vector<AxisLink> AxesOf(const ir::Op& op) {
  std::vector<AxisLink> links;
  kAxes[op.info->code](op, links);
  std::ranges::stable_sort(links, {}, [](const AxisLink& link) {
    return std::tuple(link.result, link.result_axis, link.operand, link.operand_axis);
  });
  return links;
}

const Element* Define(ElementBuilder& builder, const ir::Op& op, int result,
                      std::span<const Element* const> index) {
  HIR_CHECK(result == 0 && kDefine[op.info->code] != nullptr);
  const Element* element = kDefine[op.info->code](builder, op, index);
  HIR_CHECK(element->dtype == op.results[0]->type->dtype);
  return element;
}

}  // namespace hir::fusion
