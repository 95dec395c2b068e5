// When each intermediate of a plan is there, so that its memory can be told for any sizes without planning again.
#pragma once

#include "csrc/ir/graph.h"
#include "hostir/v1/plan.pb.h"

namespace hir::service {

// A plan with more is told no memory: placing compares all with all.
inline constexpr int64_t kPoolBuffersMax = 4096;

// Sets pools and pool_alignment of `plan`, whose host program is `host`. Errors: those of host::Unroll.
Status AddPools(const ir::Graph& host, ::hostir::v1::Plan* plan);

}  // namespace hir::service
