#include "host_ir/region.h"

#include "host_ir/shapes.h"

namespace hir::host {
namespace {

void StoreBroadcastsOnce(ir::ExprPool& pool, Region* region, const ir::Type& type) {
  size_t axis = 0;
  for (const ir::Axis& logical : type.axes) {
    if (logical.kind == ir::AxisKind::kReduction) continue;
    if (logical.kind == ir::AxisKind::kBroadcast) region->axes[axis] = {pool.Const(1), pool.Const(0), kStoredOnce};
    ++axis;
  }
}

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
  StoreBroadcastsOnce(pool, region, type);
}

// How many of `extents` from `from` on multiply to `extent`; 0 when none do.
size_t CountFactors(ir::ExprPool& pool, const ir::Expr* extent, std::span<const ir::Expr* const> extents, size_t from) {
  const ir::Expr* product = pool.Const(1);
  for (size_t i = from; i < extents.size(); ++i) {
    product = pool.Mul(product, extents[i]);
    if (product == extent) return i + 1 - from;
    if (product->IsConst() && extent->IsConst() && extent->value > 0 && product->value > extent->value) return 0;
  }
  return 0;
}

// How many of `extents` from `from` on are left for axes[at], when the axes behind it are the last of them, each as it
// is; 0 when they are not. That those multiply to its extent is checked when sizes bind, as of every reshape.
size_t CountBetween(const std::vector<ViewAxis>& axes, size_t at, std::span<const ir::Expr* const> extents,
                    size_t from) {
  const size_t behind = axes.size() - at - 1;
  if (extents.size() < from + behind + 1) return 0;
  const size_t end = extents.size() - behind;
  for (size_t i = 0; i < behind; ++i) {
    if (axes[at + 1 + i].extent != extents[end + i]) return 0;
  }
  return end - from;
}

// Makes several axes of `extents` of axis `axis` of the region's root.
void SplitRoot(ir::ExprPool& pool, Region& region, int axis, std::span<const ir::Expr* const> extents) {
  const auto more = static_cast<int>(extents.size()) - 1;
  for (ViewAxis& other : region.axes) {
    if (other.root_axis > axis) other.root_axis += more;
  }
  std::vector<Interval> parts;
  for (const ir::Expr* extent : extents) parts.push_back({pool.Const(0), extent});
  region.root.erase(region.root.begin() + axis);
  region.root.insert(region.root.begin() + axis, extents.begin(), extents.end());
  region.box.erase(region.box.begin() + axis);
  region.box.insert(region.box.begin() + axis, parts.begin(), parts.end());
}

// `region` as a `type`, each axis split into those of `extents` that multiply to it. The root is split with an axis
// that is whole; a slice of an axis stays one there.
std::optional<Region> Split(ir::ExprPool& pool, const Region& region, const ir::Type& type,
                            std::span<const ir::Expr* const> extents) {
  Region view = region;
  view.axes.clear();
  std::vector<ViewAxis> rest = region.axes;
  size_t next = 0;
  for (size_t axis = 0; axis < rest.size(); ++axis) {
    const ViewAxis along = rest[axis];
    size_t count = CountFactors(pool, along.extent, extents, next);
    if (count == 0) count = CountBetween(rest, axis, extents, next);
    if (count == 0) return std::nullopt;
    while (axis + 1 == rest.size() && next + count < extents.size() && extents[next + count]->IsConst(1)) ++count;
    const std::span<const ir::Expr* const> parts = extents.subspan(next, count);
    next += count;
    const Interval* const box = along.root_axis < 0 ? nullptr : &view.box[static_cast<size_t>(along.root_axis)];
    const bool whole =
        box != nullptr && box->from->IsConst(0) && box->to == view.root[static_cast<size_t>(along.root_axis)];
    if (whole && count > 1) {
      SplitRoot(pool, view, along.root_axis, parts);
      for (ViewAxis& other : rest) {
        if (other.root_axis > along.root_axis) other.root_axis += static_cast<int>(count) - 1;
      }
    }
    const ir::Expr* stride = along.stride;
    std::vector<ViewAxis> made(count);
    bool taken = false;  // A slice of an axis goes to one part, where the others are 1.
    for (size_t i = count; i-- > 0;) {
      made[i] = {parts[i], stride, along.root_axis};
      if (whole) made[i].root_axis += static_cast<int>(i);
      if (box != nullptr && !whole && (taken || parts[i] != along.extent)) made[i].root_axis = kPartOfAxis;
      taken |= parts[i] == along.extent;
      stride = pool.Mul(stride, parts[i]);
    }
    view.axes.insert(view.axes.end(), made.begin(), made.end());
  }
  if (next != extents.size()) return std::nullopt;
  StoreBroadcastsOnce(pool, &view, type);
  return view;
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
  if (along.root_axis == kStoredOnce) return view;  // Whatever part is taken.
  if (along.root_axis == kPartOfAxis) {
    view.exact &= from->IsConst(0) && to == along.extent;
  } else {
    Interval& part = view.box[static_cast<size_t>(along.root_axis)];
    part = {pool.Add(part.from, from), pool.Add(part.from, to)};
  }
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

std::optional<Region> Reshape(ir::ExprPool& pool, const Region& region, const ir::Type& type,
                              std::span<const ir::Expr* const> stored_extents) {
  if (!IsContiguous(pool, region)) return Split(pool, region, type, stored_extents);
  Region view;
  view.base = region.base;
  if (region.exact && !IsWhole(region)) view.of = std::make_shared<const Region>(region);
  SetDense(pool, &view, type, stored_extents, Flat(pool, region));
  return view;
}

Region Hull(ir::ExprPool& pool, const Region& a, const Region& b) {
  if (Identical(a, b)) return a;
  Region hull = WholeOf(pool, *a.base);
  hull.exact = false;
  if (a.root_offset != b.root_offset || a.root != b.root) return hull;
  // Dense along the axes of the root, of which each is as in both, or whole.
  hull.root_offset = a.root_offset;
  hull.root_end = a.root_end;
  hull.offset = a.root_offset;
  hull.root = a.root;
  hull.box = a.box;
  hull.axes.assign(a.root.size(), {});
  const ir::Expr* stride = pool.Const(1);
  for (size_t i = a.root.size(); i-- > 0;) {
    if (a.box[i].from != b.box[i].from || a.box[i].to != b.box[i].to) hull.box[i] = {pool.Const(0), a.root[i]};
    hull.axes[i] = {pool.Sub(hull.box[i].to, hull.box[i].from), stride, static_cast<int>(i)};
    hull.offset = pool.Add(hull.offset, pool.Mul(hull.box[i].from, stride));
    stride = pool.Mul(stride, a.root[i]);
  }
  return hull;
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
  if (!region.exact) return false;
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
