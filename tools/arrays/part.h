// Part: which elements of a whole array one rank holds, and where each lies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "multidevice/sharding.h"

namespace hir::arrays {

// One axis, as both sides store it: strides in bytes, 0 where one element stands for all.
struct PartAxis {
  int64_t extent = 1;  // Of what is copied.
  int64_t whole_stride = 0;
  int64_t part_stride = 0;
  int64_t whole_extent = 1;
  int64_t whole_begin = 0;  // In bytes, of what is copied: its share of whole_offset.
};

// A value.
struct Part {
  int64_t element_bytes = 1;
  int64_t bytes = 0;         // That the rank stores, padding included.
  int64_t whole_offset = 0;  // Of its first element.
  std::vector<PartAxis> axes;

  // What the rank that holds `range` (mesh::ElementsOf) stores of a row-major array. `stored_once`: axes of which the
  // part has one element. `whole`: extents of the array; 1 where it has one element for all. `memory_order`: the part's
  // axes, the outermost first; empty: row-major.
  static Part Of(std::span<const int64_t> whole, const mesh::PartRange& range, const std::vector<bool>& stored_once,
                 int64_t element_bytes, std::span<const int64_t> memory_order = {});

  // All of an array of `shape`. The others as above.
  static Part All(std::span<const int64_t> whole, std::span<const int64_t> shape, const std::vector<bool>& stored_once,
                  int64_t element_bytes, std::span<const int64_t> memory_order = {});

  // The same for reading the whole: of an axis that is stored once, the whole's first element alone. A rank reads it
  // also where its block is empty: an axis that is stored once is not split in memory.
  Part FirstOfStoredOnce() const;

  // Whether all of the part lies side by side in the whole.
  bool IsOnePiece() const;

  // Calls `copy(whole_offset, part_offset, bytes)` for pieces that lie side by side on both sides, as long as can be.
  using Copy = std::function<Status(int64_t, int64_t, int64_t)>;
  Status ForEachPiece(const Copy& copy) const;
};

}  // namespace hir::arrays
