// What hostir-opt and the golden tests do: text, through named passes, to text.
#pragma once

#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/ir/graph.h"

namespace hir::tools {

// The op set that `text` is a program of, by its first word ("fusion", "host"); fusion when there is no such word.
const ir::OpSet& OpSetOf(std::string_view text);

// How the steps below that plan do so.
struct Planning {
  codegen::Sizes sizes = {};      // Values of the program's symbols, where known: they choose schedules.
  std::string_view without = {};  // Passes of the pipeline that they leave out (host::OptionalPasses).
};

// Parses `text`, runs `passes` ("dce,localize") and prints the result. A pass is one of the
// passes.def of its op set, or, for fusion programs, one of the steps that make another program:
//   localize   one rank's program
//   segments   the segments of one rank, a line each (ends the list)
//   lower      the host program, ready to load
//   traffic    bytes that each segment moves, and the least (ends the list)
//   cuda       the CUDA C++ of one rank's kernels, for an H200 (ends the list)
// Errors: the parser's, the pass's; kInvalidArgument for an unknown pass.
Result<std::string> Transform(std::string_view text, std::string_view passes, const Planning& planning = {});

// For --help: every pass, one line each.
std::string PassList();

}  // namespace hir::tools
