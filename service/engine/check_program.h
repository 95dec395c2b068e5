// The daemon's look at a program: it is parsed and verified here, and nothing more; planning is another process's.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/base/status.h"
#include "hostir/v1/plan.pb.h"

namespace hir::service {

// `source` as bytes, unread: equal bytes are the same program.
// Errors: kResourceExhausted naming program_bytes_max.
Result<std::string> ProgramBytes(const ::hostir::v1::ProgramSource& source, int64_t program_bytes_max);
// The canonical text of `source`: what programs are compared by that are not the same bytes.
// Errors: kInvalidArgument with op, value and location; kResourceExhausted naming a limit of docs/ir.md,
// or program_bytes_max, which bounds this text, too.
Result<std::string> CheckProgram(const ::hostir::v1::ProgramSource& source, int64_t num_devices,
                                 int64_t program_bytes_max);

}  // namespace hir::service
