#include "host_ir/shapes.h"

namespace hir::host {

std::vector<const ir::Expr*> StoredExtents(ir::ExprPool& pool, const ir::Type& type) {
  std::vector<const ir::Expr*> extents;
  for (const ir::Axis& axis : type.axes) {
    if (axis.kind == ir::AxisKind::kIteration) extents.push_back(pool.Import(axis.extent));
    if (axis.kind == ir::AxisKind::kBroadcast) extents.push_back(pool.Const(1));
  }
  return extents;
}

const ir::Expr* StorageElements(ir::ExprPool& pool, const ir::Type& type) {
  const ir::Expr* elements = pool.Const(1);
  for (const ir::Expr* extent : StoredExtents(pool, type)) elements = pool.Mul(elements, extent);
  return elements;
}

bool SameShape(const ir::Type& a, const ir::Type& b) {
  const std::vector<ir::Axis> left = ir::ValueAxes(a), right = ir::ValueAxes(b);
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!ir::Equal(left[i].extent, right[i].extent)) return false;
  }
  return true;
}

}  // namespace hir::host
