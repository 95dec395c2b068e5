#include "csrc/codegen/walks.h"

#include <algorithm>

namespace hir::codegen {
namespace {

// One thread an item.
constexpr Walks kCores = {.full_items = 64,
                          .few_items = 64,
                          .long_trips = 16384,
                          .long_row = 16384,
                          .long_trips_again = 4096,
                          .long_row_again = 262144,  // Below, 1 MiB of float32, it is in the thread's own cache.
                          .long_row_alone = 32768,   // One core would work, and all others wait.
                          .short_columns = 16,
                          .long_part_again = 16384,  // 64 KiB of float32.
                          .rows_min = 16,            // Fewer would write as much as they read.
                          .row_parts_max = 64,
                          .cuts_columns = true,
                          .keeps_invariants = true,
                          .reduces_rows_in_order = true,
                          .short_row = 8,  // A vector of float32.
                          .splits_at_conditions = true,
                          .lays_out_loops = true};

// One CTA an item. It reads rows at some 50 GB/s: less is read before a second launch has begun (128 rows of 8192:
// 0.0052 ms in one launch, 0.0078 in two). Along rows each loop over them is as slow as the first, so that two launches
// more pay earlier.
constexpr int64_t kLongWalk = 131072;
Walks OfMultiprocessors(int count) {
  return {.full_items = int64_t{2} * std::max(count, 1),
          .few_items = int64_t{std::max(count, 1)} + 1,  // So few that there are two parts and more.
          .long_trips = 4096,
          .long_row = kLongWalk,
          .long_trips_again = 1024,
          .long_row_again = kLongWalk / 2,
          .long_row_alone = 8192,
          .long_part_again = 8192,
          .has_parts_by_size = true,
          .rows_min = 4,
          .has_strided_parts = true,
          .short_row = 64,  // Half of a warp, with vectors of four.
          .few_rows = count / 2};
}

}  // namespace

Walks WalksOf(const Target& target) {
  return target.kind == Target::Kind::kCpu ? kCores : OfMultiprocessors(target.multiprocessors);
}

}  // namespace hir::codegen
