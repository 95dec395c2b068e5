// Passes and their runner, for every op set: order, names, verification after each pass, dumps,
// bisection.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::ir {

// One row of a passes.def. A pass edits the graph in place and keeps no state between calls.
struct Pass {
  std::string_view name = {};  // "elide-waits"
  Status (*run)(Graph& graph) = nullptr;
  std::string_view doc = {};
};

struct PassOptions {
  // Called before the first pass with "" and after each pass with its name.
  std::function<void(std::string_view pass, const Graph& graph)> dump = {};
  int stop_after = -1;            // Run only this many passes; -1: all. For bisection.
  std::string_view without = {};  // Names, with commas between: passes that do not run.
  bool verify = true;             // Verify(graph) after each pass; a failure is kInternal and names the pass.
};

// Runs the passes `names` ("dce,cse"; blanks and empty names are skipped) of `table`, in that
// order.
// Errors: kInvalidArgument for an unknown name, with the nearest known one; what a pass returns,
// with its name.
Status RunPasses(Graph& graph, std::span<const Pass> table, std::string_view names, const PassOptions& options = {});

// "dce, cse" is "dce" and "cse"; empty names are none.
std::vector<std::string_view> PassNames(std::string_view names);

// Errors: kInvalidArgument where `known` lacks `name`, with the nearest that it has.
Status CheckPassName(std::string_view name, std::span<const std::string_view> known);

// A dump to stderr when the environment's HOSTIR_DUMP (comma-separated) has `stage`; empty
// otherwise.
std::function<void(std::string_view, const Graph&)> DumpFromEnvironment(std::string_view stage);

}  // namespace hir::ir
