// What the system says that a process uses.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hir::service {

struct ProcessUsage {
  int64_t resident_bytes = 0;  // In memory, what it shares with others counted too.
  int64_t cpu_ms = 0;          // Of all its threads, since it started.
};

// "stopped" (SIGSTOP, a terminal), "traced" (a debugger), "frozen, or in the kernel"; empty where it runs or sleeps.
std::string HoldOf(pid_t pid);

// Zeros for a process that is not there.
ProcessUsage UsageOf(pid_t pid);

}  // namespace hir::service
