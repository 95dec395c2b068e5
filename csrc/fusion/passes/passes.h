// The list of passes in this folder, for ir::RunPasses.
#pragma once

#include <span>
#include <string_view>

#include "csrc/ir/pass.h"

namespace hir::fusion {

extern const std::span<const ir::Pass> kFusionPasses;

// What every program goes through before its shardings are propagated.
inline constexpr std::string_view kSimplify = "dce,fold_casts,cse,dce";

}  // namespace hir::fusion
