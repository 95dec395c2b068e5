// How much memory this process may take.
#pragma once

#include <cstdint>

#include "csrc/base/status.h"

namespace hir::service {

// How a process ends that wants more than LimitMemory lets it have: no exit code of a program that ends by itself.
inline constexpr int kExitOutOfMemory = 90;

// From here on this process has `bytes` more than it has now, for what it allocates and maps to write, and threads'
// stacks. One that asks for more by operator new ends with kExitOutOfMemory; mmap and malloc fail.
// Errors: kFailedPrecondition where the process has more memory than a machine, as under the address and the thread
//         sanitizers, which map their tables of it all; then there is no limit. The system's.
Status LimitMemory(int64_t bytes);

// Ends this process with kExitOutOfMemory, for libraries that allocate past operator new.
[[noreturn]] void EndOutOfMemory();

}  // namespace hir::service
