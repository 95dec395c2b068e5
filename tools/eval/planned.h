// Planned: a program with its plan and code, for the sizes of one set of inputs; or a host program as it stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "host_ir/pipeline/pipeline.h"
#include "host_ir/rank/backends.h"
#include "tools/eval/inputs.h"

namespace hir::eval {

struct Planned {
  std::string name;
  host::ProgramPlan plan;
  Inputs inputs;
  Sizes sizes;
  std::vector<codegen::Artifact> artifacts = {};  // Made by Compile.
  double plan_ms = 0;
  double warm_compiler_ms = 0;                // 0: it was not asked for.
  std::vector<double> compile_ms = {};        // One a kernel plan.
  std::vector<double> compile_again_ms = {};  // The same by another compiler, when asked for.

  bool is_host = false;  // Given as a host program: no plan was made, and every parameter is each rank's own.
  int64_t launches = 0, library_calls = 0, communications = 0;
};

// Reads the program and its inputs and plans it for `num_ranks` devices of `target`; deterministic.
// Errors: the parser's; those of Inputs and host::PlanProgram; kInvalidArgument for sizes that the plan cannot have.
Result<Planned> Plan(const Options& options, host::OverlapChoice overlap, std::string_view text, int64_t num_ranks,
                     const codegen::Target& target);

// A host program (docs/host_ops.md) whose parameters are made up; one without launches, which have no code here.
// Errors: the parser's; kInvalidArgument for files, which hold whole arrays, and for devices that there are not.
Result<Planned> LoadHost(const Options& options, std::string_view text, int64_t num_ranks);

// What ranks compare: equal on all that run the same program and sizes, made by the same build.
uint64_t DigestOf(const Planned& planned);

// What --explain prints.
std::string Explain(const Planned& planned);

Status Compile(const Options& options, const rank::Backends& backends, Planned& planned);

}  // namespace hir::eval
