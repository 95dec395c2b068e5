// Text to graph. The text is untrusted.
#pragma once

#include <memory>
#include <string_view>

#include "csrc/ir/graph.h"

namespace hir::ir {

inline constexpr size_t kTextBytesMax = size_t{64} << 20;
inline constexpr int kNestingMax = 32;  // Blocks in blocks; for parentheses in extents see kExprDepthMax.

// Parses one program of `ops` and verifies it.
// Errors: kInvalidArgument "line 3: ...": the first fault only, with the value seen and what was expected;
//         kResourceExhausted for a limit of parse.h or builder.h, naming it.
Result<std::unique_ptr<Graph>> Parse(std::string_view text, const OpSet& ops);

}  // namespace hir::ir
