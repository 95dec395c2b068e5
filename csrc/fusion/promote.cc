#include "csrc/fusion/promote.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/base/text.h"

namespace hir::fusion {
namespace {

enum Category { kBools, kInts, kFloats };

Category CategoryOf(DType dtype) {
  if (IsFloat(dtype)) return kFloats;
  return IsInt(dtype) ? kInts : kBools;
}

// The type that a host scalar of a category above the tensors' brings.
DType DefaultOf(Category category) {
  if (category == kFloats) return DType::kFloat32;
  return category == kInts ? DType::kInt64 : DType::kBool;
}

}  // namespace

Result<DType> PromoteTensors(DType a, DType b) {
  const DType low = std::min(a, b);
  const DType high = std::max(a, b);
  if (low == DType::kFloat16 && high == DType::kBFloat16) return DType::kFloat32;
  if (low == DType::kUInt8 && high == DType::kInt8) {
    return InvalidArgument("u8 and i8 together need i16, which is no element type: cast one of them, as to i32");
  }
  return high;
}

Result<DType> Promote(std::span<const ir::Value* const> operands) {
  std::optional<DType> tensors, scalars;
  for (const ir::Value* value : operands) {
    std::optional<DType>& type = value->type->kind == ir::TypeKind::kTensor ? tensors : scalars;
    if (!type) type = value->type->dtype;
    HIR_ASSIGN(type, PromoteTensors(*type, value->type->dtype));
  }
  HIR_CHECK(tensors || scalars);
  if (!tensors) return *scalars;
  if (scalars && CategoryOf(*scalars) > CategoryOf(*tensors)) return DefaultOf(CategoryOf(*scalars));
  return *tensors;
}

Result<PointwiseTypes> ApplyRule(TypeRule rule, std::span<ir::Value* const> operands) {
  const auto refuse = [&](bool (*refused)(DType), std::string_view remedy) -> Status {
    for (const ir::Value* value : operands) {
      if (!refused(value->type->dtype)) continue;
      return InvalidArgument(base::Cat("%", value->name, " is ", DTypeName(value->type->dtype), "; ", remedy));
    }
    return {};
  };
  std::vector<const ir::Value*> promoted(operands.begin(), operands.end());
  if (rule == TypeRule::kSelect) {
    if (operands[0]->type->dtype != DType::kBool) {
      return InvalidArgument(base::Cat("the condition %", operands[0]->name, " is ",
                                       DTypeName(operands[0]->type->dtype), "; it must be bool"));
    }
    // Two numbers that a bool tensor chooses from promote as a number beside it does.
    const auto is_tensor = [](const ir::Value* value) { return value->type->kind == ir::TypeKind::kTensor; };
    if (is_tensor(operands[1]) || is_tensor(operands[2])) promoted.erase(promoted.begin());
  }
  HIR_ASSIGN(const DType common, Promote(promoted));
  switch (rule) {
    case TypeRule::kAny:
    case TypeRule::kSelect: return PointwiseTypes{common, common};
    case TypeRule::kNumber:
      HIR_TRY(refuse([](DType t) { return t == DType::kBool; }, "numbers are needed: cast it first"));
      return PointwiseTypes{common, common};
    case TypeRule::kFloat: {
      const bool scalars = operands[0]->type->kind == ir::TypeKind::kScalar &&
                           std::all_of(operands.begin(), operands.end(),
                                       [](const ir::Value* v) { return v->type->kind == ir::TypeKind::kScalar; });
      const DType type = IsFloat(common) ? common : scalars ? DType::kFloat64 : DType::kFloat32;
      return PointwiseTypes{type, type};
    }
    case TypeRule::kCompare: return PointwiseTypes{common, DType::kBool};
    case TypeRule::kLogic: return PointwiseTypes{DType::kBool, DType::kBool};
    case TypeRule::kBits:
      HIR_TRY(refuse([](DType t) { return IsFloat(t); }, "bools or integers are needed"));
      return PointwiseTypes{common, common};
    case TypeRule::kInts:
      HIR_TRY(refuse([](DType t) { return !IsInt(t); }, "integers are needed: cast it first"));
      return PointwiseTypes{common, common};
    case TypeRule::kReal:
      if (!IsFloat(common)) {
        return InvalidArgument(
            base::Cat("the operands promote to ", DTypeName(common), "; floats are needed: cast them first"));
      }
      return PointwiseTypes{common, common};
    case TypeRule::kTest: return PointwiseTypes{common, DType::kBool};
  }
  HIR_CHECK(false);
  return PointwiseTypes{};
}

}  // namespace hir::fusion
