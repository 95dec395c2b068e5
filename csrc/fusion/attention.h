// Questions of planning about attention and attention_grad, beside their axes.
#pragma once

#include <optional>
#include <vector>

#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// How many keys beyond its own number a query of a causal attention takes part in, of the part that a rank holds.
// REQUIRES: `op` is one of the two; of `pool`'s graph.
const ir::Expr* DiagonalOf(ir::ExprPool& pool, const ir::Op& op);

// The entries of its `offset` where its keys are a part of them that begins at `begin`.
// REQUIRES: `op` is one of the two; of `pool`'s graph.
std::vector<const ir::Expr*> OffsetOfKeysFrom(ir::ExprPool& pool, const ir::Op& op, const ir::Expr* begin);

// Where the queries of a rank begin. REQUIRES: as of DiagonalOf.
const ir::Expr* QueriesBegin(ir::ExprPool& pool, const ir::Op& op);

// The operand that a result of attention_grad is the gradient of; of no other op.
std::optional<int> OperandOfGradient(const ir::Op& op);

// Whether it has a mask. REQUIRES: `op` is one of the two.
bool HasMask(const ir::Op& op);

// Whether both are attention, or both gradients of it, of the same operands alike, so that one call makes both results;
// `a` and `b` may be one. False for all other ops.
bool ShareCall(const ir::Op& a, const ir::Op& b);

// Whether cuDNN has a fused kernel for it: of f16 or bf16, heads of 8, 16, ... 128, and no mask.
// REQUIRES: `op` is one of the two.
bool IsFused(const ir::Op& op);

// Makes what `op` is as products around a softmax, whose scores are kept, through `builder`. Returns the last one's
// result, of the type of op's but for reduced axes. REQUIRES: `op` is one of the two.
ir::Value* AttentionAsProducts(ir::Builder& builder, const ir::Op& op);

}  // namespace hir::fusion
