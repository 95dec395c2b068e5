// Numbers and indices as values, for ops that are made of others. Private to csrc/fusion.
#pragma once

#include <string_view>

#include "csrc/ir/builder.h"

namespace hir::fusion {

ir::Value* Zero(ir::Builder& builder, DType dtype);
ir::Value* IntConstant(ir::Builder& builder, int64_t value);
// 0, 1, ... of `extent`, i64, along `axis` of `rank` axes; the others have extent 1.
ir::Value* SequenceAlong(ir::Builder& builder, const ir::Expr* extent, size_t axis, size_t rank, std::string_view name);

}  // namespace hir::fusion
