// Type promotion, as PyTorch and nvFuser do it; docs/ops.md, "Promotion".
//
// Bool < integers < floats. Operands take the greatest type among the tensors; float16 with bfloat16 is float32; uint8
// with int8 would be int16, which there is not, and is refused. A host
// scalar counts only where its category is above that of every tensor: then it brings int64 or float32. Host scalars
// among themselves promote as they are.
#pragma once

#include <span>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

// What a pointwise op asks of its operands, converts them to, and makes.
enum class TypeRule : uint8_t {
  kAny,      // any -> promoted
  kNumber,   // no bools -> promoted
  kFloat,    // any -> promoted, integers and bools to float32 (host scalars alone: float64)
  kCompare,  // any, compared after promotion -> bool
  kLogic,    // any, converted to bool (not 0) -> bool
  kBits,     // bools and integers -> promoted
  kInts,     // integers -> promoted
  kReal,     // what promotes to a float -> promoted
  kTest,     // any, one operand as it is -> bool
  kSelect,   // (bool, any, any) -> the last two promoted
};

struct PointwiseTypes {
  DType operands = DType::kFloat32;  // Promoted; carried out in ComputeDType of it. kSelect: of the last two.
  DType result = DType::kFloat32;
};

// REQUIRES: the operands are tensors or host scalars, at least one. Errors: kInvalidArgument of uint8 with int8.
Result<DType> Promote(std::span<const ir::Value* const> operands);
// The least type that holds both: Promote for two tensors.
Result<DType> PromoteTensors(DType a, DType b);

// Errors: kInvalidArgument naming the operand whose type the rule refuses.
Result<PointwiseTypes> ApplyRule(TypeRule rule, std::span<ir::Value* const> operands);

}  // namespace hir::fusion
