// The functions behind each row of fusion_ops.def, and the arrays of them by op. Private to csrc/fusion.
#pragma once

#include <span>
#include <vector>

#include "csrc/fusion/axes.h"
#include "csrc/fusion/element.h"
#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/builder.h"

namespace hir::fusion {

// One i64 element per VALUE axis.
using Index = std::span<const Element* const>;
using AxesFn = void (*)(const ir::Op& op, std::vector<AxisLink>& links);  // Appends, in any order.
// Makes ops through `builder` and returns the result that stands in for the op's, of its type. No composite ones.
using DecomposeFn = ir::Value* (*)(ir::Builder& builder, const ir::Op& op);
using DefineFn = const Element* (*)(ElementBuilder& builder, const ir::Op& op,
                                    Index index);  // Of the result's dtype.

#define OP(Name, ...)                                                                          \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared); \
  void Axes##Name(const ir::Op& op, std::vector<AxisLink>& links);                             \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index);
#define COMPOSITE(Name, ...)                                                                   \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared); \
  const Element* Define##Name(ElementBuilder& builder, const ir::Op& op, Index index);         \
  ir::Value* Decompose##Name(ir::Builder& builder, const ir::Op& op);
#define COMM(Name, ...)                                                                        \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared); \
  void Axes##Name(const ir::Op& op, std::vector<AxisLink>& links);
#define PLANNED(Name, ...)                                                                     \
  Status Infer##Name(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared); \
  void Axes##Name(const ir::Op& op, std::vector<AxisLink>& links);
#include "csrc/fusion/fusion_ops.def"

// All POINTWISE rows.
Status InferPointwise(ir::Graph& graph, ir::Op& op, std::span<const ir::Type* const> declared);
void AxesPointwise(const ir::Op& op, std::vector<AxisLink>& links);
const Element* DefinePointwise(ElementBuilder& builder, const ir::Op& op, Index index);
// The formula of a POINTWISE row of one operand, on `x`, of a compute type.
const Element* ApplyFormula(FusionOp op, ElementBuilder& builder, const Element* x);

}  // namespace hir::fusion
