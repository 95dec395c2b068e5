// Reduction of the ranks' contributions, the same in every backend: see "Numerics" at Communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "csrc/base/dtype.h"
#include "multidevice/comm/communicator.h"

namespace hir::comm {

// dst[i] = srcs[0][i] op srcs[1][i] op ..., left to right, for i in [0, count); of kMean divided by their number. dst
// may be one of srcs. REQUIRES: kMean of floats. REQUIRES: srcs is not empty; all are aligned to the dtype.
void Reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> srcs, std::byte* dst, int64_t count);

}  // namespace hir::comm
