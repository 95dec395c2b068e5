// How a kind of device walks loops, as numbers: all that planning, which knows no device, is told of one. A schedule
// asks here, and never which device it is for.
#pragma once

#include <cstdint>
#include <span>

#include "csrc/codegen/target.h"

namespace hir::codegen {

// Blocks of a GPU's threads that one multiprocessor holds at a time, of rows in order from so many elements on: all
// parts run at once. Of rows of 16-bit elements each has 512 threads, 512, 256, 128, 32 (gpu/carried.cc).
struct BlocksOfRow {
  int64_t elements = 0;
  int64_t blocks = 1;
};
inline constexpr int64_t kBlocksOfShortRows = 16;
inline constexpr BlocksOfRow kBlocksOfRows[] = {{8192, 1}, {4096, 2}, {2048, 4}, {513, 5}, {0, kBlocksOfShortRows}};
// The same where sizes are symbols: with the boundaries of threads that are powers of two, so that 8 texts serve all.
inline constexpr BlocksOfRow kBlocksOfRowsOfAnySize[] = {
    {8192, 1}, {4097, 2}, {1025, 4}, {513, 5}, {0, kBlocksOfShortRows}};

// Rows of fewer elements starve whatever goes through several of them in order.
inline constexpr int64_t kShortRow = 16;

inline constexpr int64_t kRowsThatPay = 64;

// What a GPU's schedules hold in registers, of which costs and plans must know: rows of columns, in vectors
// (gpu/columns.cc), and vectors of a row in order (gpu/carried.cc).
inline constexpr int64_t kRowsHeld = 768;
inline constexpr int64_t kVectorsOfRowHeld = 2048;
// And vectors of a row that a CTA has to itself, read again from a cache or held (gpu/rows.cc).
inline constexpr int64_t kVectorsOfRowNear = 8192;

struct Walks {
  // Reductions in parts (partials.cc). Items of a grid that give the device work, and fewer than which are too few:
  // neighbouring rows in one item, a block of them, count as one.
  int64_t full_items = 0;
  int64_t few_items = 0;
  // Elements reduced into each result from which on parts pay; below, one launch is as fast. `again`: other loops over
  // the same range follow; a row is contiguous; `alone`: it is the only one.
  int64_t long_trips = 0, long_row = 0;
  int64_t long_trips_again = 0, long_row_again = 0, long_row_alone = 0;
  // Fewer columns that are kept, side by side, are no vectors: rows of them are taken several abreast. 0: never.
  int64_t short_columns = 0;
  int64_t long_part_again = 0;     // Elements of a part, read twice, that are still near the second time.
  int64_t bytes_alone = 0;         // Of a row that is alone, and reduced once, instead; 0: as of others.
  int64_t far_again = 0;           // Rows of columns that are neither held nor near the second time; 0: all are.
  int64_t far_vectors_again = 0;   // Of a contiguous row, likewise, where there are
  int64_t few_rows_again = 0;      // so few that no other row's work hides that.
  int64_t inlined_trips = 0;       // Reductions of so many elements are part of what reads them; 0: none.
  bool has_parts_by_size = false;  // As many parts as sizes ask for, an expression; else `full_items`.

  // Rows in order (inner_outer.cc).
  int64_t rows_min = 0;            // Of a part.
  int64_t row_parts_max = 0;       // 0: as many blocks as a multiprocessor holds for the columns.
  bool has_strided_parts = false;  // A part's rows may lie apart.
  bool cuts_columns = false;       // Items are blocks of columns, too, where no phase needs a whole row.
  bool keeps_invariants = false;   // What all rows compute alike is computed ahead of them.
  // Sums over rows, whose columns are contiguous, are rows in order, from kRowsThatPay on.
  bool reduces_rows_in_order = false;

  // Costs (cost.cc).
  int64_t processors = 1;    // Multiprocessors; cores, which a plan does not know, are as good as one.
  int64_t fast_items = 1;    // So many rows at a time keep memory busy,
  int64_t fast_columns = 1;  // so many blocks of columns, of at least `columns_of_item`, which have more threads,
  int64_t columns_of_item = 1;
  int64_t fast_parts = 1;       // and so many parts of rows in order.
  int64_t held_vectors = 0;     // Of rows in order, that are held while their sums are made; 0: any number.
  int64_t short_row = 1;        // Fewer columns of rows in order leave lanes idle.
  int64_t bytes_of_row = 0;     // In order: that pass through memory while a part goes through a row of one element.
  int64_t hoisted_max = 1;      // So many elements along the innermost axis compute once what they have in common.
  int64_t bytes_of_launch = 0;  // That pass through memory in the time of a launch behind another.

  // Loops are split where conditions on their indices change, so that rows from several tensors are one loop, too
  // (join_loops.cc).
  bool splits_at_conditions = false;

  // Axes (region_axes.cc): the plan chooses the innermost loop, tiles and blocks; else the device's code does.
  bool lays_out_loops = false;
};

Walks WalksOf(const Target& target);

// The blocks for rows of so many elements.
int64_t BlocksOfRowsOf(std::span<const BlocksOfRow> blocks, int64_t elements);
// As many of those as `rows` are enough for: parts of few rows write much beside what they read.
int64_t BlocksThatFill(const Walks& walks, int64_t blocks, int64_t rows);
// From how many elements reduced into each result on parts pay. `again`: other loops over the same range follow;
// `is_alone`: it is the only one, and an element of it takes the time of `element` bytes.
int64_t LongTrips(const Walks& walks, bool along_rows, bool again, bool is_alone, int64_t element);
// An item of the grid has so many columns, where they are contiguous and each is reduced.
inline constexpr int64_t kColumnsOfItem = 256;

}  // namespace hir::codegen
