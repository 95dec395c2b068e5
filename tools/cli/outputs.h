// Outputs of a run, as files.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/session.h"

namespace hir::cli {

// Writes output %y of `reply` to FOLDER/y.npy, whose paths come into `paths`; the folder is made.
Outcome FetchOutputs(ProgramSession& session, const std::string& folder, const ::hostir::v1::RunReply& reply,
                     Progress& progress, std::vector<std::string>* paths);

}  // namespace hir::cli
