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

// The same in steps, with the same result: each goes on where the one before stopped.
struct ReduceStep {
  const std::byte* before = nullptr;  // What that made; null: this is the first. As of dst where more are to come.
  int64_t total = 0;                  // Sources of all steps, in the last one; 0: more are to come, and dst gets
                                      // elements of AccumulatorBytes.
};
void Reduce(ReduceOp op, DType dtype, const ReduceStep& step, std::span<const std::byte* const> srcs, std::byte* dst,
            int64_t count);
int64_t AccumulatorBytes(DType dtype);

}  // namespace hir::comm
