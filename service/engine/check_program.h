// The daemon's look at a program: it is parsed and verified here, and nothing more; planning is another process's.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/base/status.h"
#include "hostir/v1/plan.pb.h"

namespace hir::service {

// The canonical text of `source`: what programs are compared by.
// Errors: kInvalidArgument with op, value and location; kResourceExhausted naming program_bytes_max or another limit.
Result<std::string> CheckProgram(const ::hostir::v1::ProgramSource& source, int64_t num_devices,
                                 int64_t program_bytes_max);

}  // namespace hir::service
