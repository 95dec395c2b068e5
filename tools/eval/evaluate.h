// Evaluate: one program from files to files, on this process's rank.
#pragma once

#include "tools/eval/device_kind.h"
#include "tools/eval/options.h"

namespace hir::eval {

inline constexpr int kExitRefused = 1;  // The program, or its inputs.
inline constexpr int kExitUsage = 2;    // The command line, or a file that is not there.
inline constexpr int kExitFailed = 3;   // A device, a communication, a rank.

// Returns the exit code; the first rank prints the report, or the error.
int Evaluate(const Options& options, const DeviceKind& kind);

}  // namespace hir::eval
