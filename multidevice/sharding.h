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

// A block of an axis: elements [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Every mesh dimension splits one value axis into blocks, or holds partial results (the tensor is the reduction
// over that dimension), or, named nowhere, holds copies. Dimensions of extent 1 are named nowhere.
// Blocks are ceil-sized: where they are uneven, the last ones hold fewer elements, or none (docs/decisions/0006).
struct Sharding {
  DeviceMesh mesh;
  std::vector<std::vector<ParallelType>> axes =
      {};                                  // One per value axis: what splits it, outermost first.
  std::vector<ParallelType> partial = {};  // Ascending.

  // Copies of a tensor of `rank` axes everywhere.
  static Sharding Replicated(DeviceMesh mesh, size_t rank);
  // Device 0 alone: where tensors of programs without a mesh are.
  static Sharding OnDevice0(size_t rank);

  // Into how many blocks `axis` is split.
  int64_t Ways(size_t axis) const;
  bool IsReplicated() const;  // Whole on every device.
  // "axis 0 split 4 ways over mesh_x", "replicated", "partial over mesh_x; axis 1 split 2 ways over mesh_y".
  std::string ToString() const;

  bool operator==(const Sharding&) const = default;
};

// "axis 1 split 8 ways over mesh_y, mesh_x" for `types` (not empty) on `axis` of a tensor over `mesh`.
std::string DescribeSplit(const DeviceMesh& mesh, size_t axis, std::span<const ParallelType> types);

// Which block of each axis `device` holds: the block's number among Ways(axis). REQUIRES: the mesh holds the device.
std::vector<int64_t> BlockOf(const Sharding& sharding, int64_t device);

// A device's part of a tensor: along each axis a block, cut again for each mesh dimension that splits it, and the
// elements of the tensor in it. They come first; the rest of the block is padding.
struct PartRange {
  std::vector<int64_t> begin;
  std::vector<int64_t> block;
  std::vector<Range> valid;
};
// Blocks of mesh dimensions that hold partial results are not cut. REQUIRES: the mesh holds the device; one extent per
// axis, 0 or more.
PartRange PartRangeOf(const Sharding& sharding, std::span<const int64_t> shape, int64_t device);

// The part of the tensor of global `shape` that `device` holds, one range an axis, without padding: what an upload
// scatters and a download gathers. Every element is in the part of at least one device; copies have equal parts.
// Errors: kInvalidArgument when the mesh does not hold the device. REQUIRES: nothing is partial.
Result<std::vector<Range>> ShardSlices(const Sharding& sharding, std::span<const int64_t> shape,
                                       int64_t device, std::string_view tensor);

// The extents of every device's part in memory, padding included: the same on all of them.
std::vector<int64_t> ShardShape(const Sharding& sharding, std::span<const int64_t> shape);

// Devices that between them hold the whole tensor once: the first device, in mesh order, of each distinct block.
std::vector<int64_t> Owners(const Sharding& sharding);

// The same placement in the form that travels: a mesh, and for each of its dimensions the axis it splits, or -1. Where
// two dimensions split one axis, the earlier is the outer; dimensions are permuted where the sharding says otherwise.
struct DimensionForm {
  std::vector<int64_t> shape;
  std::vector<int64_t> devices;
  std::vector<int64_t> axis_of_dimension;

  bool operator==(const DimensionForm&) const = default;
};
// REQUIRES: nothing is partial.
DimensionForm ToDimensionForm(const Sharding& sharding);
// From untrusted parts, for a tensor of `rank` axes; an empty axis_of_dimension means replicated.
// Errors: kInvalidArgument for a bad mesh, a count that is not the mesh's, or an axis out of range.
Result<Sharding> FromDimensionForm(const DimensionForm& form, size_t rank);

}  // namespace hir::mesh
