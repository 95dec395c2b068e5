// Inference, axes and definition of all POINTWISE rows, expanded from the table.
#include <cmath>

#include "csrc/base/text.h"
#include "csrc/fusion/formula.h"
#include "csrc/fusion/infer.h"
#include "csrc/fusion/op_functions.h"
#include "csrc/fusion/promote.h"

namespace hir::fusion {
namespace {

TypeRule RuleOf(FusionOp op) {
  constexpr TypeRule kRules[] = {
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc) TypeRule::rule,
#define OP(...) TypeRule::kAny,
#define COMPOSITE(...) TypeRule::kAny,
#define COMM(...) TypeRule::kAny,
#define PLANNED(...) TypeRule::kAny,
#include "csrc/fusion/fusion_ops.def"
  };
  return kRules[static_cast<size_t>(op)];
}

using Formula = S (*)(const S& x, const S& y, const S& z, const S& w);
constexpr Formula kFormulas[] = {
#define POINTWISE(Name, mnemonic, operands, rule, formula, doc)                             \
  [](const S& x [[maybe_unused]], const S& y [[maybe_unused]], const S& z [[maybe_unused]], \
     const S& w [[maybe_unused]]) -> S { return formula; },
#define OP(...) nullptr,
#define COMPOSITE(...) nullptr,
#define COMM(...) nullptr,
#define PLANNED(...) nullptr,
#include "csrc/fusion/fusion_ops.def"
};

bool IsTensor(const ir::Value* value) { return value->type->kind == ir::TypeKind::kTensor; }

// A constant that the operands' type does not hold would wrap, unseen.
Status CheckConstants(const ir::Op& op, DType operands) {
  if (!IsInt(operands) || operands == DType::kInt64) return {};
  const IntLimits limits = LimitsOf(operands);
  for (const ir::Value* value : op.operands) {
    if (value->def == nullptr || CodeOf(*value->def) != FusionOp::kConstant) continue;
    const double number = value->def->Float("value");
    const bool fits = number >= static_cast<double>(limits.least) && number <= static_cast<double>(limits.greatest);
    if (!IsInt(value->type->dtype) || fits) continue;
    return InvalidArgument(base::Cat("%", value->name, " is the constant ", number, ", which ", DTypeName(operands),
                                     ", the operands' type, does not hold: cast the tensors to i64"));
  }
  return {};
}

// The element of a tensor operand that goes into the result's element at `index`.
const Element* LoadBroadcast(ElementBuilder& builder, const ir::Value* value, Index index) {
  const std::vector<ir::Axis> axes = ir::ValueAxes(*value->type);
  std::vector<const Element*> own;
  const size_t missing = index.size() - axes.size();
  for (size_t i = 0; i < axes.size(); ++i) {
    own.push_back(IsOne(axes[i]) ? builder.Int(DType::kInt64, 0) : index[missing + i]);
  }
  return builder.Load(value, own);
}

}  // namespace

Status InferPointwise(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const>) {
  std::vector<ShapedOperand> tensors;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i]->type->kind == ir::TypeKind::kScalar) continue;
    HIR_ASSIGN(std::vector<ir::Axis> axes, TensorAxes(op, static_cast<int>(i)));
    tensors.push_back({op.operands[i], std::move(axes)});
  }
  HIR_ASSIGN(const PointwiseTypes types, ApplyRule(RuleOf(CodeOf(op)), op.operands));
  HIR_TRY(CheckConstants(op, types.operands));
  if (tensors.empty()) {
    op.results[0]->type = graph.Scalar(types.result);
    return {};
  }
  HIR_ASSIGN(const std::vector<ir::Axis> axes, BroadcastAxes(graph, tensors));
  return SetTensor(graph, op, types.result, axes);
}

void AxesPointwise(const ir::Op& op, std::vector<AxisLink>& links) {
  const std::span<const ir::Axis> result = op.results[0]->type->axes;  // Without reduced ones.
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!IsTensor(op.operands[i])) continue;
    const std::vector<ir::Axis> axes = ir::ValueAxes(*op.operands[i]->type);
    for (size_t k = 0; k < axes.size(); ++k) {
      const size_t at = result.size() - axes.size() + k;
      links.push_back(
          {static_cast<int>(i), static_cast<int>(k), 0, static_cast<int>(at), SameOrBroadcast(axes[k], result[at])});
    }
  }
}

const Element* DefinePointwise(ElementBuilder& builder, const ir::Op& op, Index index) {
  const TypeRule rule = RuleOf(CodeOf(op));
  const Result<PointwiseTypes> types = ApplyRule(rule, op.operands);
  HIR_CHECK(types.ok());
  S operands[4];
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ir::Value* value = op.operands[i];
    const Element* e = IsTensor(value) ? LoadBroadcast(builder, value, index) : builder.Scalar(value);
    const bool condition = rule == TypeRule::kSelect && i == 0;
    // A host scalar may be of a wider type: of integers it wraps before it is computed with.
    if (!condition && !IsFloat((*types).operands)) e = builder.Convert((*types).operands, e);
    operands[i] = {&builder, condition ? e : builder.Convert(ComputeDType((*types).operands), e), (*types).operands};
  }
  const Formula formula = kFormulas[static_cast<size_t>(CodeOf(op))];
  return builder.Convert((*types).result, formula(operands[0], operands[1], operands[2], operands[3]).e);
}

const Element* ApplyFormula(FusionOp op, ElementBuilder& builder, const Element* x) {
  return kFormulas[static_cast<size_t>(op)]({&builder, x}, {}, {}, {}).e;
}

}  // namespace hir::fusion
