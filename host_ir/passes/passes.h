// The list of passes on host programs, for ir::RunPasses.
#pragma once

#include <span>
#include <string_view>

#include "csrc/ir/pass.h"

namespace hir::host {

extern const std::span<const ir::Pass> kHostPasses;

// What every lowered program goes through: in, everything on stream 0 and nothing deallocated; out,
// ready to load.
inline constexpr std::string_view kFinish = "assign_streams,elide_waits,deallocate,check_complete";

// Runs `names` with the dumps that HOSTIR_DUMP=host_ir asks for.
Status RunHostPasses(ir::Graph& graph, std::string_view names = kFinish);

}  // namespace hir::host
