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
                          .fast_items = 2,  // A core reads at 12 GB/s and more, from a cache much more.
                          .fast_columns = 2,
                          .columns_of_item = kColumnsOfItem,
                          .fast_parts = 2,
                          .short_row = 8,  // A vector of float32.
                          .hoisted_max = INT64_MAX,
                          .bytes_of_launch = 128 << 10,  // 5 us at 25 GB/s.
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
          // Sums of 120000 bfloat16 0.0061 ms on an H200, in one launch 0.0068; of 83040 0.0061 and 0.0060.
          .bytes_alone = 240 << 10,
          .far_again = kRowsHeld + 1,
          // A layer norm of 300 rows of 100000 0.104 ms on an H200, 0.135 by three readings; of 1024 of 40000, which
          // wait for memory anyway, 0.092 and 0.089.
          .far_vectors_again = kVectorsOfRowNear + 1,
          .few_rows_again = int64_t{3} * std::max(count, 1),
          .inlined_trips = 8,
          .has_parts_by_size = true,
          .rows_min = 4,
          .has_strided_parts = true,
          .processors = std::max(count, 1),
          .fast_items = std::max<int64_t>(int64_t{count} * 3 / 4, 1),
          .fast_columns = std::max<int64_t>(int64_t{count} * 3 / 8, 1),
          .columns_of_item = 64,
          .fast_parts = std::max<int64_t>(count / 5, 1),
          .held_vectors = kVectorsOfRowHeld,
          // 0.38 us: RMS norm backward of rows of 32 to 96 elements on an H200, 0.32 in float32, 0.46 in bfloat16.
          .bytes_of_row = 1800 << 10,
          .hoisted_max = 4,
          .bytes_of_launch = 8 << 20};  // 1.8 us at 4.8 TB/s.
}

}  // namespace

int64_t BlocksOfRowsOf(std::span<const BlocksOfRow> blocks, int64_t elements) {
  for (const auto& [least, count] : blocks) {
    if (elements >= least) return count;
  }
  return 1;
}

int64_t BlocksThatFill(const Walks& walks, int64_t blocks, int64_t rows) {
  constexpr int64_t kRowsThatFill = 16;
  return blocks < kBlocksOfShortRows && rows < walks.processors * blocks * kRowsThatFill ? 1 : blocks;
}

int64_t LongTrips(const Walks& walks, bool along_rows, bool again, bool is_alone, int64_t element) {
  if (!again && along_rows && is_alone && walks.bytes_alone > 0)
    return std::min(walks.bytes_alone / std::max<int64_t>(element, 1), walks.long_row);
  if (!again) return along_rows ? walks.long_row : walks.long_trips;
  if (!along_rows) return walks.long_trips_again;
  return is_alone ? walks.long_row_alone : walks.long_row_again;
}

Walks WalksOf(const Target& target) {
  return target.kind == Target::Kind::kCpu ? kCores : OfMultiprocessors(target.multiprocessors);
}

}  // namespace hir::codegen
