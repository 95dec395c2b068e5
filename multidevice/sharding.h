// Sharding: which part of a tensor each device of a mesh holds. A value: copyable, comparable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "multidevice/mesh.h"

namespace hir::mesh {

// A part of an axis: the elements begin, begin + step, ... before end; with step 1 a block.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;

  int64_t size() const { return (end - begin + step - 1) / step; }
  bool operator==(const Range&) const = default;
};

// What splits an axis, outermost first, and the order in which its elements stand meanwhile: their own, or, of n
// elements dealt d ways in turns, element i at position (i mod d) * (n / d) + i / d. So a block of such positions is
// every d-th element, and all that is said of blocks holds of both (docs/decisions/0007).
struct AxisSplit : std::vector<ParallelType> {
  using std::vector<ParallelType>::vector;
  int64_t dealt = 1;

  bool is_dealt() const { return dealt > 1; }
  bool operator==(const AxisSplit&) const = default;
};

// Every mesh dimension splits one value axis into blocks, or holds partial results (the tensor is the reduction
// over that dimension), or, named nowhere, holds copies. Dimensions of extent 1 are named nowhere.
// Blocks are ceil-sized: where they are uneven, the last ones hold fewer elements, or none (docs/decisions/0006).
// Where a tensor rests, an axis that is dealt d ways is split by one dimension, of d devices; on its way from one
// sharding to another it may also be whole, or split otherwise, in that order.
struct Sharding {
  DeviceMesh mesh;
  std::vector<AxisSplit> axes = {};        // One per value axis.
  std::vector<ParallelType> partial = {};  // Ascending.

  // Copies of a tensor of `rank` axes everywhere.
  static Sharding Replicated(DeviceMesh mesh, size_t rank);
  // Device 0 alone: where tensors of programs without a mesh are.
  static Sharding OnDevice0(size_t rank);

  // Into how many blocks `axis` is split.
  int64_t Ways(size_t axis) const;
  // "axis 0 split 4 ways over mesh_x", "replicated", "partial over mesh_x; axis 1 split 2 ways over mesh_y",
  // "axis 0 dealt 4 ways over mesh_x".
  std::string ToString() const;

  bool operator==(const Sharding&) const = default;
};

// "axis 1 split 8 ways over mesh_y, mesh_x" for `split` (not empty) of `axis` of a tensor over `mesh`.
std::string DescribeSplit(const DeviceMesh& mesh, size_t axis, const AxisSplit& split);

// Which block of each axis `device` holds: the block's number among Ways(axis). REQUIRES: the mesh holds the device.
std::vector<int64_t> BlockOf(const Sharding& sharding, int64_t device);

// A device's part of a tensor: along each axis a block, cut again for each mesh dimension that splits it, and the
// positions of the tensor in it. They come first; the rest of the block is padding.
struct PartRange {
  std::vector<int64_t> begin;
  std::vector<int64_t> block;
  std::vector<Range> valid;
};
// Blocks of mesh dimensions that hold partial results are not cut. REQUIRES: the mesh holds the device; one extent per
// axis, 0 or more.
PartRange PartRangeOf(const Sharding& sharding, std::span<const int64_t> shape, int64_t device);

// The same with the elements at those positions in `valid`: every d-th one of an axis that is dealt d ways.
// REQUIRES: as above; each axis that is dealt is split by that many devices and has a multiple of them.
PartRange ElementsOf(const Sharding& sharding, std::span<const int64_t> shape, int64_t device);

// Whether every axis of `shape` that is dealt has as many elements for each device. Errors: kInvalidArgument naming
// axis, extent, devices and remedy.
Status CheckDealt(const Sharding& sharding, std::span<const int64_t> shape);

// The part of the tensor of global `shape` that `device` holds, one range an axis, without padding: what an upload
// scatters and a download gathers. Every element is in the part of at least one device; copies have equal parts.
// Errors: kInvalidArgument when the mesh does not hold the device, and of CheckDealt. REQUIRES: nothing is partial.
Result<std::vector<Range>> ShardSlices(const Sharding& sharding, std::span<const int64_t> shape, int64_t device,
                                       std::string_view tensor);

// The extents of every device's part in memory, padding included: the same on all of them.
std::vector<int64_t> ShardShape(const Sharding& sharding, std::span<const int64_t> shape);

// Devices that between them hold the whole tensor once: the first device, in mesh order, of each distinct block.
std::vector<int64_t> Owners(const Sharding& sharding);

// The same placement in the form that travels: a mesh, and for each of its dimensions the axis it splits, or -1, and
// whether it deals its elements. Where two dimensions split one axis, the earlier is the outer; dimensions are permuted
// where the sharding says otherwise.
struct DimensionForm {
  std::vector<int64_t> shape;
  std::vector<int64_t> devices;
  std::vector<int64_t> axis_of_dimension;
  std::vector<bool> dealt = {};  // Empty: none.

  bool operator==(const DimensionForm&) const = default;
};
// REQUIRES: nothing is partial; the tensor rests.
DimensionForm ToDimensionForm(const Sharding& sharding);
// From untrusted parts, for a tensor of `rank` axes; an empty axis_of_dimension means replicated.
// Errors: kInvalidArgument for a bad mesh, a count that is not the mesh's, an axis out of range, or one that is dealt
//         and split by more than one dimension.
Result<Sharding> FromDimensionForm(const DimensionForm& form, size_t rank);

}  // namespace hir::mesh
