// Offsets of elements, and what makes vectors of them.
#include "csrc/codegen/gpu/places.h"

#include <algorithm>

namespace hir::codegen::gpu {

bool Places::IsInMemory(const Element* load) const {
  return arguments_.TensorOf(load->value) >= 0 && !dependences_.IsAccumulated(load->value);
}

Places::Offset Places::OffsetOf(int tensor, std::span<const Element* const> index) {
  ir::ExprPool& pool = math_.pool();
  Offset offset = {pool.Const(0), {}, 0};
  const std::vector<const ir::Expr*>& strides = arguments_.tensor(tensor).strides;
  for (size_t i = 0; i < index.size(); ++i) {
    if (strides[i]->IsConst(0)) continue;
    const ir::Expr* stride = pool.Import(strides[i]);
    if (const ir::Expr* at = math_.ToExpr(index[i])) {
      offset.affine = pool.Add(offset.affine, pool.Mul(at, stride));
    } else {
      offset.data.emplace_back(index[i], stride);
    }
  }
  return offset;
}

Places::Offset Places::OffsetOf(const Access& access) {
  const Element* load = access.load;
  auto known = load_offsets_.find(load);
  if (known == load_offsets_.end())
    known = load_offsets_.emplace(load, OffsetOf(arguments_.TensorOf(load->value), load->args)).first;
  Offset offset = known->second;
  offset.guard = access.guard;
  return offset;
}

const ir::Expr* Places::AffineOf(const Access& access) {
  const Offset offset = OffsetOf(access);
  return offset.data.empty() ? offset.affine : nullptr;
}

uint64_t Places::VarsOf(const Offset& offset) {
  uint64_t vars = dependences_.VarsOf(offset.affine);
  for (const auto& [index, stride] : offset.data)
    vars |= dependences_.VarsOf(index) | dependences_.VarsOf(stride) | guards_.VarsOf(offset.guard);
  return vars;
}

bool Places::Varies(const Access& access, std::span<const Loop> loops) {
  return dependences_.HasAny(VarsOf(OffsetOf(access)), loops);
}

bool Places::IsVector(const Offset& offset, int tensor) {
  if (!vector_.HasLanes()) return false;
  const int lanes = vector_.lanes();
  for (const auto& [index, stride] : offset.data) {
    // Nor one that each lane has of its own: a result of the columns that they are.
    const uint64_t vars = dependences_.VarsOf(index);
    if (dependences_.IsLane(vars) || (vars & Dependences::kLaneBit) != 0 || !conditions_.Divisible(stride, lanes))
      return false;
  }
  const auto split = math_.Split(offset.affine, vector_.variable());
  if (!split || !split->stride->IsConst(1) || !conditions_.BeginsVector(split->base)) return false;
  conditions_.RequireAligned(tensor, std::min<int64_t>(16, lanes * DTypeBytes(arguments_.tensor(tensor).dtype)));
  return true;
}

bool Places::IsVectorLoad(const Access& access) {
  if (!IsInMemory(access.load)) return false;
  const Offset offset = OffsetOf(access);
  if (!IsLane(offset) || !guards_.IsUniformGuard(access.guard)) return false;
  return IsVector(offset, arguments_.TensorOf(access.load->value));
}

bool Places::IsAcrossVectors(const Access& access) {
  const int64_t bytes = DTypeBytes(access.load->dtype);
  if (vector_.skew() == nullptr || (bytes != 2 && bytes != 4) || vector_.lanes() * bytes < 4) return false;
  const ir::Expr* offset = IsInMemory(access.load) ? AffineOf(access) : nullptr;
  if (offset == nullptr || !guards_.IsUniformGuard(access.guard)) return false;
  const auto split = math_.Split(offset, vector_.variable());
  return split && split->stride->IsConst(1);
}

int Places::BytesOf(const Access& access) const {
  return vector_.lanes() * static_cast<int>(DTypeBytes(access.load->dtype));
}

}  // namespace hir::codegen::gpu
