#include "multidevice/mesh.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::mesh {

using base::Cat;

std::string_view ParallelTypeName(ParallelType type) {
  switch (type) {
    case ParallelType::kSerial: return "serial";
    case ParallelType::kMeshX: return "mesh_x";
    case ParallelType::kMeshY: return "mesh_y";
    case ParallelType::kMeshZ: return "mesh_z";
    case ParallelType::kStream: return "stream";
  }
  HIR_CHECK(false);
  return {};
}

std::optional<ParallelType> ParseParallelType(std::string_view name) {
  for (ParallelType type : {ParallelType::kSerial, ParallelType::kMeshX, ParallelType::kMeshY, ParallelType::kMeshZ,
                            ParallelType::kStream}) {
    if (ParallelTypeName(type) == name) return type;
  }
  return std::nullopt;
}

Result<DeviceMesh> DeviceMesh::Make(std::vector<int64_t> shape, std::vector<int64_t> devices) {
  if (shape.empty() || shape.size() > kRankMax) {
    return InvalidArgument(Cat("a mesh has 1 to ", kRankMax, " dimensions, this one has ", shape.size()));
  }
  int64_t product = 1;
  for (int64_t extent : shape) {
    if (extent < 1) return InvalidArgument(Cat("mesh dimension of extent ", extent, "; each must be at least 1"));
    const auto next = base::CheckedMul(product, extent);
    if (!next || *next > kDevicesMax) {
      return InvalidArgument(Cat("a mesh has at most ", kDevicesMax, " devices"));
    }
    product = *next;
  }
  if (product != static_cast<int64_t>(devices.size())) {
    return InvalidArgument(
        Cat("mesh of shape [", base::JoinInts(shape, ", "), "] needs ", product, " devices, got ", devices.size()));
  }
  std::vector<int64_t> sorted = devices;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0) return InvalidArgument(Cat("mesh device ", sorted.front(), " is negative"));
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return InvalidArgument(Cat("mesh names device ", *twice, " twice"));
  }
  return DeviceMesh(std::move(shape), std::move(devices));
}

int DeviceMesh::DimensionOf(ParallelType type) const {
  HIR_CHECK(IsMesh(type));
  const int from_last = static_cast<int>(type) - static_cast<int>(ParallelType::kMeshX);
  return static_cast<int>(shape_.size()) - 1 - from_last;
}

bool DeviceMesh::Has(ParallelType type) const { return DimensionOf(type) >= 0; }

int64_t DeviceMesh::Size(ParallelType type) const {
  const int dimension = DimensionOf(type);
  return dimension < 0 ? 1 : shape_[static_cast<size_t>(dimension)];
}

int64_t DeviceMesh::Stride(int dimension) const {
  int64_t stride = 1;
  for (size_t i = static_cast<size_t>(dimension) + 1; i < shape_.size(); ++i) stride *= shape_[i];
  return stride;
}

std::optional<int64_t> DeviceMesh::PositionOf(int64_t device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  if (found == devices_.end()) return std::nullopt;
  return found - devices_.begin();
}

int64_t DeviceMesh::Coordinate(int64_t position, ParallelType type) const {
  const int dimension = DimensionOf(type);
  if (dimension < 0) return 0;
  return position / Stride(dimension) % shape_[static_cast<size_t>(dimension)];
}

std::vector<int64_t> DeviceMesh::Team(int64_t device, ParallelType type) const {
  const auto position = PositionOf(device);
  HIR_CHECK(position.has_value());
  const int dimension = DimensionOf(type);
  if (dimension < 0) return {device};
  const int64_t stride = Stride(dimension);
  const int64_t first = *position - Coordinate(*position, type) * stride;
  std::vector<int64_t> team;
  for (int64_t i = 0; i < shape_[static_cast<size_t>(dimension)]; ++i) {
    team.push_back(devices_[static_cast<size_t>(first + i * stride)]);
  }
  return team;
}

DeviceMesh DeviceMesh::Shifted(ParallelType type, int64_t ahead) const {
  std::vector<int64_t> shifted;
  for (int64_t position = 0; position < num_devices(); ++position) {
    const std::vector<int64_t> team = Team(devices_[static_cast<size_t>(position)], type);
    shifted.push_back(team[static_cast<size_t>((Coordinate(position, type) + ahead) % std::ssize(team))]);
  }
  return {shape_, std::move(shifted)};
}

std::string DeviceMesh::ToString() const {
  std::string out;
  for (size_t i = 0; i < devices_.size(); ++i) {
    int64_t block = 1;  // Open a bracket for each dimension whose block starts here.
    std::string open, close;
    for (size_t d = shape_.size(); d-- > 0;) {
      block *= shape_[d];
      if (static_cast<int64_t>(i) % block == 0) open += '[';
      if (static_cast<int64_t>(i + 1) % block == 0) close += ']';
    }
    base::Append(out, i == 0 ? "" : ", ", open, devices_[i], close);
  }
  return out;
}

}  // namespace hir::mesh
