// The list of passes in this folder, for ir::RunPasses.
#pragma once

#include <span>
#include <string_view>

#include "csrc/ir/pass.h"

namespace hir::fusion {

extern const std::span<const ir::Pass> kFusionPasses;

// What every program goes through before its shardings are propagated.
inline constexpr std::string_view kSimplify =
    "decompose_ops,dce,fold_casts,fold_permutes,transpose_products,fold_permutes,cse,dce";
// Then: a layout for every tensor, and every resharding a set of its own, equal ones once; what plan::Localize takes.
inline constexpr std::string_view kShard = "propagate_shardings,decompose_reshardings,cse,dce";

}  // namespace hir::fusion
