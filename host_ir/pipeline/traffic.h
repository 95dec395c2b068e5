// Bytes that a plan moves through memory, and how few they could be.
#pragma once

#include <cstdint>
#include <optional>

#include "host_ir/pipeline/pipeline.h"

namespace hir::host {

// Bytes that the launches or the call of `segment` read and write: each tensor once a launch, of one that is read at
// slices or indices alone no more than these, and workspaces. 0 for views and loops. Of one iteration, inside a loop.
const ir::Expr* BytesOf(ir::ExprPool& pool, const ProgramPlan& plan, const LoweredSegment& segment);

// Bytes of kernels and library calls; communications count nowhere.
struct Traffic {
  int64_t bytes = 0;
  // A reference for plans with these library calls and communications (docs/decisions/0034). Calls read and write
  // once. Between them, values that a call or the program's caller needs are made in one pass over memory for each of
  // the longest sequence of calls before them, which reads what is least: a minimum cut, with the write of what is kept
  // between passes. A sum of more than kPassElements terms has to be over before the pass that needs it.
  int64_t floor = 0;
};
inline constexpr int64_t kPassElements = int64_t{1} << 16;

// Nothing where `sizes` lack a symbol of the program, blocks are not even, or ops run in loops on the host; or where
// it is more bytes than fit 63 bits.
std::optional<Traffic> TrafficOf(const ProgramPlan& plan, const codegen::Sizes& sizes);

}  // namespace hir::host
