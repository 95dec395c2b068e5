// The commands of hostir. Each prints its answer to stdout and says how it ended; errors are main's to print.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/options.h"
#include "tools/cli/outcome.h"

namespace hir::cli {

Outcome RunProgram(const Options& options);
Outcome ReplayRun(const Options& options);
Outcome ExplainProgram(const Options& options);
Outcome ComparePlans(const Options& options);
Outcome ShowStatus(const Options& options);
Outcome CheckHealth(const Options& options);
Outcome ShowTop(const Options& options);
Outcome DumpEvents(const Options& options);
Outcome DrainNode(const Options& options);
Outcome UndrainNode(const Options& options);
Outcome BenchProgram(const Options& options);
Outcome MakeCertificates(const Options& options);
Outcome PrintCompletion(const Options& options);

}  // namespace hir::cli
