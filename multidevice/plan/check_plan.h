// Where the parts of a tensor lie, padding included, and the proof that a plan is right for given sizes: who sends
// which block to whom, element ranges against element ranges.
#pragma once

#include <span>

#include "multidevice/plan/resharding.h"

namespace hir::plan {

// A device's part: along each axis a block of ceil-sized blocks, cut again for each mesh dimension that splits it, and
// the elements of the tensor in it. The rest of the block is padding.
struct PartRange {
  std::vector<int64_t> begin;
  std::vector<int64_t> block;
  std::vector<mesh::Range> valid;
};
// REQUIRES: the mesh holds the device; one extent per axis.
PartRange PartRangeOf(const mesh::Sharding& sharding, std::span<const int64_t> extents,
                      int64_t device);

// Follows the steps of `plan` on every device, for a tensor of `extents` whose axes with `stored_once` (empty: none)
// are whole everywhere. Each step must write each element of what its receivers have then exactly once, from a device
// that holds it, into its place; each partial result must be added exactly once; the last step must end at `to`.
// Errors: kInternal naming step, device and what is missing, twice there or misplaced.
Status CheckPlan(const mesh::Sharding& from, const mesh::Sharding& to,
                 std::span<const int64_t> extents, const std::vector<bool>& stored_once,
                 const Plan& plan);

}  // namespace hir::plan
