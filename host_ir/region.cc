#include "host_ir/region.h"

#include "host_ir/shapes.h"

namespace hir::host {
namespace {

// Lays a `type` with these extents out densely over the elements `place` of region->base.
void SetDense(ir::ExprPool& pool, Region* region, const ir::Type& type, std::span<const ir::Expr* const> extents,
              const Interval& place) {
  region->offset = place.from;
  region->root_offset = place.from;
  region->root_end = place.to;
  region->root.assign(extents.begin(), extents.end());
  region->axes.assign(extents.size(), {});
  region->box.assign(extents.size(), {});
  const ir::Expr* stride = pool.Const(1);
  for (size_t i = extents.size(); i-- > 0;) {
    region->axes[i] = {extents[i], stride, static_cast<int>(i)};
    region->box[i] = {pool.Const(0), extents[i]};
    stride = pool.Mul(stride, extents[i]);
  }
  size_t axis = 0;
  for (const ir::Axis& logical : type.axes) {
    if (logical.kind == ir::AxisKind::kReduction) continue;
    if (logical.kind == ir::AxisKind::kBroadcast) region->axes[axis] = {pool.Const(1), pool.Const(0), -1};
    ++axis;
  }
}

}  // namespace

Region WholeOf(ir::ExprPool& pool, const ir::Value& value) {
  Region region;
  region.base = &value;
  const Interval all = {pool.Const(0), StorageElements(pool, *value.type)};
  SetDense(pool, &region, *value.type, StoredExtents(pool, *value.type), all);
  return region;
}

Region Slice(ir::ExprPool& pool, const Region& region, int64_t axis, const ir::Expr* from, const ir::Expr* to) {
  Region view = region;
  ViewAxis& along = view.axes[static_cast<size_t>(axis)];
  if (along.root_axis < 0) return view;  // Stored once, whatever part is taken.
  Interval& part = view.box[static_cast<size_t>(along.root_axis)];
  part = {pool.Add(part.from, from), pool.Add(part.from, to)};
  along.extent = pool.Sub(to, from);
  view.offset = pool.Add(view.offset, pool.Mul(from, along.stride));
  return view;
}

Region Select(ir::ExprPool& pool, const Region& region, int64_t axis, const ir::Expr* index) {
  Region view = Slice(pool, region, axis, index, pool.Add(index, pool.Const(1)));
  view.axes.erase(view.axes.begin() + axis);
  return view;
}

Region Permute(const Region& region, std::span<const int64_t> dims) {
  Region view = region;
  for (size_t i = 0; i < dims.size(); ++i) view.axes[i] = region.axes[static_cast<size_t>(dims[i])];
  return view;
}

Region Reshape(ir::ExprPool& pool, const Region& region, const ir::Type& type,
               std::span<const ir::Expr* const> stored_extents) {
  Region view;
  view.base = region.base;
  SetDense(pool, &view, type, stored_extents, Flat(pool, region));
  return view;
}

bool IsContiguous(ir::ExprPool& pool, const Region& region) {
  const ir::Expr* dense = pool.Const(1);
  for (size_t i = region.axes.size(); i-- > 0;) {
    const ViewAxis& axis = region.axes[i];
    if (axis.extent->IsConst(1)) continue;
    if (axis.stride != dense) return false;
    dense = pool.Mul(dense, axis.extent);
  }
  return true;
}

bool IsWhole(const Region& region) {
  for (size_t i = 0; i < region.box.size(); ++i) {
    if (!region.box[i].from->IsConst(0) || region.box[i].to != region.root[i]) return false;
  }
  return true;
}

Interval Flat(ir::ExprPool& pool, const Region& region) {
  if (IsWhole(region)) return {region.root_offset, region.root_end};
  // The last element is at offset + sum of (extent - 1) * stride; an empty region may get less than
  // nothing, which is as good: it conflicts with nothing.
  const ir::Expr* end = pool.Add(region.offset, pool.Const(1));
  for (const ViewAxis& axis : region.axes) {
    end = pool.Add(end, pool.Mul(pool.Sub(axis.extent, pool.Const(1)), axis.stride));
  }
  return {region.offset, end};
}

}  // namespace hir::host
