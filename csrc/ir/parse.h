// Text to graph. The text is untrusted.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/ir/graph.h"

namespace hir::ir {

inline constexpr size_t kTextBytesMax = size_t{64} << 20;
inline constexpr int kNestingMax = 32;  // Blocks in blocks; for parentheses in extents see kExprDepthMax.

// Parses one program of `ops` and verifies it.
// Errors: kInvalidArgument "line 3: ...": the first fault only, with the value seen and what was expected;
//         kResourceExhausted for a limit of parse.h or builder.h, naming it.
Result<std::unique_ptr<Graph>> Parse(std::string_view text, const OpSet& ops);

// The names of a text's meshes; several may be one mesh.
using MeshNames = std::map<std::string, const Mesh*, std::less<>>;

// The extent `text`, such as "i0 / 4", in the pool of `graph`. Errors: as Parse, without a line.
Result<const Expr*> ParseExtent(std::string_view text, Graph& graph, const MeshNames& meshes);
// Whether `name` may be a size in an extent: an identifier that is no word of the extent syntax.
bool IsSymbolName(std::string_view name);

}  // namespace hir::ir
