// Which elements of which memory a buffer value refers to, symbolically, and what can be proved of
// two such sets. Every answer is conservative: "not proved" is false.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::host {

struct Interval {
  const ir::Expr* from = nullptr;
  const ir::Expr* to = nullptr;
};

inline constexpr int kStoredOnce = -1;  // Root axis of broadcast axes.
inline constexpr int kPartOfAxis = -2;  // Root axis of axes that are a slice of one together.

struct ViewAxis {
  const ir::Expr* extent = nullptr;  // As stored: broadcast axes are 1.
  const ir::Expr* stride = nullptr;  // In elements; 0 for broadcast axes.
  int root_axis = kStoredOnce;       // The axis of the root it runs along.
};

// Expressions are of one pool, the one given to the functions below.
struct Region {
  const ir::Value* base = nullptr;   // A parameter, or the result of an alloc.
  const ir::Expr* offset = nullptr;  // Of the first element, in elements of the base.
  std::vector<ViewAxis> axes;        // One a value axis.
  // The dense array that holds it (the base, or the latest reshape), and the part of each of the
  // array's axes that it takes. The array is the elements from root_offset to root_end: of a reshape, those that it
  // is of, whether or not its extents are seen to come to as many. (That they do is checked when they are known.)
  const ir::Expr* root_offset = nullptr;
  const ir::Expr* root_end = nullptr;
  std::vector<const ir::Expr*> root;
  std::vector<Interval> box;
  bool exact = true;                      // Else it is perhaps less than the box.
  std::shared_ptr<const Region> of = {};  // Of an array that is a reshape of a part of another: that part.
};

// All of the parameter or alloc `value`.
Region WholeOf(ir::ExprPool& pool, const ir::Value& value);

// The results of the view ops on `region`.
Region Slice(ir::ExprPool& pool, const Region& region, int64_t axis, const ir::Expr* from, const ir::Expr* to);
Region Select(ir::ExprPool& pool, const Region& region, int64_t axis, const ir::Expr* index);
// Axis k of the result is axis dims[k].
Region Permute(const Region& region, std::span<const int64_t> dims);
// `stored_extents` are those of `type` (shapes.h), in `pool`. Nothing when the region is not contiguous and an axis of
// it does not become one or more axes, whose extents multiply to its own.
std::optional<Region> Reshape(ir::ExprPool& pool, const Region& region, const ir::Type& type,
                              std::span<const ir::Expr* const> stored_extents);

// What holds both, of one base; perhaps more.
Region Hull(ir::ExprPool& pool, const Region& a, const Region& b);

// All of the dense array that holds it.
bool IsWhole(const Region& region);
// Row-major without gaps.
bool IsContiguous(ir::ExprPool& pool, const Region& region);
// The smallest flat interval of the base, in elements, that holds it. What Flat says of a
// contiguous region is exact.
Interval Flat(ir::ExprPool& pool, const Region& region);

// a <= b for all values >= 0 of the symbols.
bool ProveLessEqual(ir::ExprPool& pool, const ir::Expr* a, const ir::Expr* b);
bool ProveDisjoint(ir::ExprPool& pool, const Region& a, const Region& b);
// The same part of the same array: cheap, and enough to prove the same elements.
bool Identical(const Region& a, const Region& b);
// The same elements, perhaps in another shape.
bool ProveSame(ir::ExprPool& pool, const Region& a, const Region& b);
// Every element of `region` is in one of `parts`.
bool ProveCovered(ir::ExprPool& pool, const Region& region, std::span<const Region* const> parts);

}  // namespace hir::host
