// Composite ops as the ops they are made of.
#pragma once

#include "csrc/ir/builder.h"

namespace hir::fusion {

// Makes the ops that `op` stands for through `builder`. Returns the last one's result, which is of the type of op's.
// REQUIRES: op is composite (fusion_ops.h).
ir::Value* Decompose(ir::Builder& builder, const ir::Op& op);

}  // namespace hir::fusion
