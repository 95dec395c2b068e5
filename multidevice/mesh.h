// DeviceMesh: which devices hold a tensor, and in which order its shards lie on them. A value:
// copyable, comparable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"

namespace hir::mesh {

// What runs along one axis of a loop domain. mesh_x is the LAST mesh dimension, mesh_y the one
// before, mesh_z the first of three.
enum class ParallelType : uint8_t { kSerial, kMeshX, kMeshY, kMeshZ, kStream };
inline constexpr ParallelType kMeshTypes[] = {ParallelType::kMeshX, ParallelType::kMeshY, ParallelType::kMeshZ};

// "serial", "mesh_x", "mesh_y", "mesh_z", "stream".
std::string_view ParallelTypeName(ParallelType type);
std::optional<ParallelType> ParseParallelType(std::string_view name);
inline bool IsMesh(ParallelType type) {
  return type == ParallelType::kMeshX || type == ParallelType::kMeshY || type == ParallelType::kMeshZ;
}

class DeviceMesh {
 public:
  static constexpr int kRankMax = 3;
  static constexpr int64_t kDevicesMax = 65536;

  // A mesh of `shape` (1 to 3 extents, each >= 1) whose devices, in row-major order, are `devices`:
  // distinct, >= 0. Errors: kInvalidArgument naming the value and the limit.
  static Result<DeviceMesh> Make(std::vector<int64_t> shape, std::vector<int64_t> devices);

  std::span<const int64_t> shape() const { return shape_; }
  std::span<const int64_t> devices() const { return devices_; }
  int64_t num_devices() const { return static_cast<int64_t>(devices_.size()); }

  // The extent along `type`; 1 for a mesh dimension this mesh does not have. REQUIRES:
  // IsMesh(type).
  int64_t Size(ParallelType type) const;
  bool Has(ParallelType type) const;
  // Where `device` is in the row-major order, or nothing when the mesh does not hold it.
  std::optional<int64_t> PositionOf(int64_t device) const;
  // The coordinate of the device at `position` along `type`; 0 for a dimension this mesh does not
  // have.
  int64_t Coordinate(int64_t position, ParallelType type) const;
  // The devices that differ from `device` only along `type`, in order of that coordinate; `device`
  // is one of them. REQUIRES: the mesh holds `device`.
  std::vector<int64_t> Team(int64_t device, ParallelType type) const;

  // The mesh with every device in the place of the one `ahead` of it in its team along `type`, around its end.
  // REQUIRES: 0 <= ahead.
  DeviceMesh Shifted(ParallelType type, int64_t ahead) const;

  std::string ToString() const;  // "[0, 1]", "[[0, 1], [2, 3]]"

  bool operator==(const DeviceMesh&) const = default;

 private:
  DeviceMesh(std::vector<int64_t> shape, std::vector<int64_t> devices)
      : shape_(std::move(shape)), devices_(std::move(devices)) {}
  // The index into shape_ of `type`, or -1.
  int DimensionOf(ParallelType type) const;
  int64_t Stride(int dimension) const;

  std::vector<int64_t> shape_;
  std::vector<int64_t> devices_;
};

}  // namespace hir::mesh
