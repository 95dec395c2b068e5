// The search behind PlanResharding for two shardings over one mesh. Private to multidevice/plan.
#pragma once

#include <vector>

#include "multidevice/plan/resharding.h"

namespace hir::plan {

// As PlanResharding. REQUIRES: from.mesh == to.mesh.
std::vector<Step> PlanOnOneMesh(const mesh::Sharding& from, const mesh::Sharding& to,
                                const std::vector<bool>& stored_once);

}  // namespace hir::plan
