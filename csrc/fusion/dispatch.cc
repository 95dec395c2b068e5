// From an op to the functions of its row.
#include <algorithm>
#include <tuple>

#include "csrc/fusion/decompose.h"
#include "csrc/fusion/op_functions.h"

namespace hir::fusion {
namespace {

constexpr AxesFn kAxes[] = {
#define POINTWISE(...) AxesPointwise,
#define OP(Name, ...) Axes##Name,
#define COMPOSITE(...) nullptr,
#define COMM(Name, ...) Axes##Name,
#define PLANNED(Name, ...) Axes##Name,
#include "csrc/fusion/fusion_ops.def"
};

constexpr DefineFn kDefine[] = {
#define POINTWISE(...) DefinePointwise,
#define OP(Name, ...) Define##Name,
#define COMPOSITE(Name, ...) Define##Name,
#define COMM(...) nullptr,
#define PLANNED(...) nullptr,
#include "csrc/fusion/fusion_ops.def"
};

constexpr DecomposeFn kDecompose[] = {
#define POINTWISE(...) nullptr,
#define OP(...) nullptr,
#define COMPOSITE(Name, ...) Decompose##Name,
#define COMM(...) nullptr,
#define PLANNED(...) nullptr,
#include "csrc/fusion/fusion_ops.def"
};

}  // namespace

std::vector<AxisLink> AxesOf(const ir::Op& op) {
  std::vector<AxisLink> links;
  HIR_CHECK(kAxes[op.info->code] != nullptr);
  kAxes[op.info->code](op, links);
  std::ranges::stable_sort(links, {}, [](const AxisLink& link) {
    return std::tuple(link.result, link.result_axis, link.operand, link.operand_axis);
  });
  return links;
}

const Element* Define(ElementBuilder& builder, const ir::Op& op, int result, std::span<const Element* const> index) {
  HIR_CHECK(result == 0 && kDefine[op.info->code] != nullptr);
  const Element* element = kDefine[op.info->code](builder, op, index);
  HIR_CHECK(element->dtype == op.results[0]->type->dtype);
  return element;
}

ir::Value* Decompose(ir::Builder& builder, const ir::Op& op) {
  HIR_CHECK(kDecompose[op.info->code] != nullptr);
  return kDecompose[op.info->code](builder, op);
}

}  // namespace hir::fusion
