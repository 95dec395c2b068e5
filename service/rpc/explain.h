// What Explain answers: the plan's own explanation, with numbers where sizes are given.
#pragma once

#include <optional>

#include "csrc/base/status.h"
#include "host_ir/predict/rates.h"
#include "hostir/v1/service.pb.h"
#include "service/engine/program.h"
#include "service/engine/run_times.h"

namespace hir::service {

// Whether `sizes` are sizes of the program. kInvalidArgument naming the symbol that it does not have.
Status CheckNames(const Program& program, const Sizes& sizes);
// Explains the plan `program`. Errors: CheckNames'; kInvalidArgument for sizes that break a guard, or
// of which a tensor has more bytes than fit in 63 bits.
Status ExplainProgram(const Program& program, const Sizes& sizes, const host::Rates* rates,
                      const std::optional<RunTimes::Taken>& taken, ::hostir::v1::ExplainReply* reply);

}  // namespace hir::service
