// Where each alloc of a program lies in the pool: two share bytes only when all work on one is
// known to come before all work on the other.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "csrc/ir/graph.h"
#include "host_ir/order.h"

namespace hir::host {

// The work on one alloc, and what is known to be over before any of it.
struct PoolLife {
  const ir::Op* alloc = nullptr;  // Null in another process than the program's.
  Clock work = {};
  Clock after = {};
};

struct PoolBytes {
  int64_t reserved = 0;  // What the pool takes.
  int64_t live = 0;      // The most that lives when some alloc begins: what any pool takes at least.
};

class PoolPlan {
 public:
  // From lives that Make found, here or in another process.
  explicit PoolPlan(std::vector<PoolLife> lives);
  // For the allocs of `program` that `rank` touches. Errors: those of Unroll.
  static Result<PoolPlan> Make(const ir::Graph& program, int64_t rank);

  // One an alloc that is used, in order.
  std::span<const PoolLife> lives() const { return lives_; }
  // Whether the rank touches the result of the alloc.
  bool Uses(const ir::Op* alloc) const { return index_.contains(alloc); }
  // Sets offsets[i] of an alloc of bytes[i], both in order of the allocs that are used, each a multiple of `alignment`.
  // Several ways are tried, and mostly one reserves no more than lives at once; equal lives and bytes give equal
  // offsets. Errors: kInvalidArgument when the sum leaves 64 bits.
  Result<PoolBytes> Place(std::span<const int64_t> bytes, int64_t alignment, std::span<int64_t> offsets) const;

 private:
  std::vector<PoolLife> lives_;
  std::unordered_map<const ir::Op*, size_t> index_;
};

}  // namespace hir::host
