// Permutes and slices that move nothing: library calls read, and write, such views by strides.
#pragma once

#include <span>
#include <vector>

#include "csrc/codegen/codegen.h"
#include "csrc/codegen/target.h"
#include "csrc/ir/graph.h"
#include "csrc/segment/segment.h"

namespace hir::host {

// Target and strides outlive it.
class StridedViews {
 public:
  // `strides`: of values that have gaps already, of which nothing here is a view.
  StridedViews(const codegen::Target& target, const codegen::Strides& strides) : target_(target), strides_(strides) {}

  // Whether the result of `op` is its operand's memory, or a part of it, if it may lie in any order.
  bool IsView(const ir::Op& op) const;

  // Whether each of `readers`, of the last view's result, is a call that takes it where it lies. The first view's
  // operand lies row-major; each other one views the one before.
  bool AreReadInPlace(std::span<ir::Op* const> views, std::span<ir::Op* const> readers) const;

  // Whether all of `group` are such views, or views in one order for whoever reads them. `uses`: of its graph, by
  // value.
  bool IsReadInPlace(const segment::Group& group, std::span<const std::vector<ir::Op*>> uses) const;

  // Whether what makes the first view's operand is a call that can write it so that the last view's result lies
  // row-major.
  bool AreWrittenInPlace(std::span<ir::Op* const> views) const;

 private:
  const codegen::Target& target_;
  const codegen::Strides& strides_;
};

// Whether the ops of `group` are views, each of the one before, and nothing but the last is read elsewhere.
bool IsChain(const segment::Group& group, const StridedViews& views);

// The dims of the permute that undoes one of those.
std::vector<int64_t> InverseOf(std::span<const int64_t> dims);

}  // namespace hir::host
