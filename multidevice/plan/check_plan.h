// The proof that a plan is right for given sizes: who sends which block to whom, element ranges against element ranges.
#pragma once

#include <span>

#include "multidevice/plan/resharding.h"

namespace hir::plan {

// Follows the steps of `plan` on every device, for a tensor of `extents` whose axes with `stored_once` (empty: none)
// are whole everywhere. Each step must write each element of what its receivers have then exactly once, from a device
// that holds it, into its place; each partial result must be added exactly once; the last step must end at `to`.
// Errors: kInternal naming step, device and what is missing, twice there or misplaced.
Status CheckPlan(const mesh::Sharding& from, const mesh::Sharding& to, std::span<const int64_t> extents,
                 const std::vector<bool>& stored_once, const Plan& plan);

}  // namespace hir::plan
