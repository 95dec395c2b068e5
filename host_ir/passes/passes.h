// The list of passes on host programs, for ir::RunPasses.
#pragma once

#include <span>
#include <string_view>

#include "csrc/ir/pass.h"

namespace hir::host {

extern const std::span<const ir::Pass> kHostPasses;

// The passes of every lowered program: in, nothing is ordered and nothing deallocated; out, ready to load. Before
// the second the streams of a program may be in no order yet (H8).
inline constexpr std::string_view kGroup = "group_communications";
inline constexpr std::string_view kFinish = "assign_streams,elide_waits,deallocate,check_complete";

// Runs both.
Status FinishProgram(ir::Graph& graph);
// Runs `names`. Both dump what HOSTIR_DUMP=host_ir asks for.
Status RunHostPasses(ir::Graph& graph, std::string_view names);

}  // namespace hir::host
