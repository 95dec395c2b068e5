// Which ranks share memory with which.
#pragma once

#include <string>

namespace hir::comm {

// Equal for two processes that see each other's shared memory: the same boot of the same kernel, the same namespaces of
// processes and of System V segments, the same file system of POSIX segments.
std::string SharedMemoryDomain();

}  // namespace hir::comm
