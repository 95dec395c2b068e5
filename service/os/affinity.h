// Which cores threads run on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace hir::service {

// The system's numbers of logical CPUs.
using Cores = std::vector<int>;

// Those that a thread may run on, ascending: 0 is the calling one, a process's number its first.
// Errors: kUnavailable: the system does not say, or there is no such thread.
Result<Cores> CoresOfThread(pid_t thread = 0);

// From now on the calling thread runs on `cores` alone, and so do the threads and processes that it starts; of those
// that there are not, the rest counts. REQUIRES: !cores.empty().
// Errors: kUnavailable: there is none of them, or the system forbids it.
Status BindThread(std::span<const int> cores);

// A share of `cores` for each of `num_ranks`, side by side there; their sizes differ by one at most. With more ranks
// than cores each has one, and neighbours share it. REQUIRES: !cores.empty(), num_ranks > 0.
std::vector<Cores> ShareCores(std::span<const int> cores, int64_t num_ranks);

// "0-3, 8"
std::string CoresText(std::span<const int> cores);

}  // namespace hir::service
