// What Explain answers: the plan's own explanation, with numbers where sizes are given.
#pragma once

#include "csrc/base/status.h"
#include "hostir/v1/service.pb.h"
#include "service/engine/program.h"

namespace hir::service {

// Errors: kInvalidArgument for a size of a symbol that the program does not have, and for sizes that break a guard.
Status ExplainProgram(const Program& program, const Sizes& sizes,
                      ::hostir::v1::ExplainReply* reply);

}  // namespace hir::service
