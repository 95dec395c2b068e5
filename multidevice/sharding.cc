#include "multidevice/sharding.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::mesh {

using base::Cat;

Sharding Sharding::Replicated(DeviceMesh mesh, size_t rank) {
  return {std::move(mesh), std::vector<AxisSplit>(rank), {}};
}

Sharding Sharding::OnDevice0(size_t rank) { return Replicated(*DeviceMesh::Make({1}, {0}), rank); }

int64_t Sharding::Ways(size_t axis) const {
  int64_t ways = 1;
  for (const ParallelType type : axes[axis]) ways *= mesh.Size(type);
  return ways;
}

namespace {

std::string TypeNames(std::span<const ParallelType> types) {
  std::vector<std::string_view> names;
  for (const ParallelType type : types) names.push_back(ParallelTypeName(type));
  return base::Join(names, ", ");
}

}  // namespace

std::string DescribeSplit(const DeviceMesh& mesh, size_t axis, const AxisSplit& split) {
  int64_t ways = 1;
  for (const ParallelType type : split) ways *= mesh.Size(type);
  const bool by_blocks = !split.is_dealt() || (!split.empty() && split.dealt != ways);
  std::string text = Cat("axis ", axis);
  if (split.is_dealt()) base::Append(text, " dealt ", split.dealt, by_blocks ? " ways," : " ways");
  if (by_blocks) base::Append(text, " split ", ways, " ways");
  return split.empty() ? text : Cat(text, " over ", TypeNames(split));
}

std::string Sharding::ToString() const {
  std::vector<std::string> parts;
  if (!partial.empty()) parts.push_back(Cat("partial over ", TypeNames(partial)));
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (!axes[axis].empty() || axes[axis].is_dealt()) parts.push_back(DescribeSplit(mesh, axis, axes[axis]));
  }
  return parts.empty() ? "replicated" : base::Join(parts, "; ");
}

std::vector<int64_t> BlockOf(const Sharding& sharding, int64_t device) {
  const std::optional<int64_t> position = sharding.mesh.PositionOf(device);
  HIR_CHECK(position.has_value());
  std::vector<int64_t> blocks;
  for (const auto& types : sharding.axes) {
    int64_t block = 0;
    for (const ParallelType type : types) {
      block = block * sharding.mesh.Size(type) + sharding.mesh.Coordinate(*position, type);
    }
    blocks.push_back(block);
  }
  return blocks;
}

PartRange PartRangeOf(const Sharding& sharding, std::span<const int64_t> shape, int64_t device) {
  const std::optional<int64_t> position = sharding.mesh.PositionOf(device);
  HIR_CHECK(position.has_value() && shape.size() == sharding.axes.size());
  PartRange part;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    int64_t begin = 0, block = shape[axis];
    Range valid = {0, shape[axis]};
    for (const ParallelType type : sharding.axes[axis]) {
      block = base::CeilDiv(block, sharding.mesh.Size(type));
      begin += sharding.mesh.Coordinate(*position, type) * block;
      // Of the block before: what lies behind it is another device's.
      valid.begin = std::min(begin, valid.end);
      valid.end = std::min(begin + block, valid.end);
    }
    part.begin.push_back(begin);
    part.block.push_back(block);
    part.valid.push_back(valid);
  }
  return part;
}

PartRange ElementsOf(const Sharding& sharding, std::span<const int64_t> shape, int64_t device) {
  PartRange part = PartRangeOf(sharding, shape, device);
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int64_t d = sharding.axes[axis].dealt;
    if (d == 1) continue;
    HIR_CHECK(sharding.Ways(axis) == d && shape[axis] % d == 0);
    Range& valid = part.valid[axis];
    if (valid.size() > 0) valid = {valid.begin / valid.size(), shape[axis], d};
  }
  return part;
}

Status CheckDealt(const Sharding& sharding, std::span<const int64_t> shape) {
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const int64_t d = sharding.axes[axis].dealt;
    if (shape[axis] % d == 0) continue;
    return InvalidArgument(Cat(DescribeSplit(sharding.mesh, axis, sharding.axes[axis]), " has ", shape[axis],
                               shape[axis] == 1 ? " element" : " elements",
                               ", and elements are dealt in whole turns: make its extent a multiple of ", d,
                               " (pad), or use an outer split"));
  }
  return {};
}

Result<std::vector<Range>> ShardSlices(const Sharding& sharding, std::span<const int64_t> shape, int64_t device,
                                       std::string_view tensor) {
  HIR_CHECK(sharding.partial.empty());
  if (!sharding.mesh.PositionOf(device)) {
    return InvalidArgument(Cat(tensor, ": device ", device, " is not in its mesh ", sharding.mesh.ToString()));
  }
  HIR_TRY(CheckDealt(sharding, shape));
  return ElementsOf(sharding, shape, device).valid;
}

std::vector<int64_t> ShardShape(const Sharding& sharding, std::span<const int64_t> shape) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  for (size_t axis = 0; axis < shape.size(); ++axis) extents[axis] = base::CeilDiv(extents[axis], sharding.Ways(axis));
  return extents;
}

std::vector<int64_t> Owners(const Sharding& sharding) {
  std::vector<std::vector<int64_t>> seen;
  std::vector<int64_t> owners;
  for (const int64_t device : sharding.mesh.devices()) {
    std::vector<int64_t> block = BlockOf(sharding, device);
    if (std::ranges::find(seen, block) != seen.end()) continue;
    seen.push_back(std::move(block));
    owners.push_back(device);
  }
  return owners;
}

namespace {

// The type of the dimension `index` of a mesh of `rank` dimensions.
ParallelType TypeOfDimension(size_t rank, size_t index) { return kMeshTypes[rank - 1 - index]; }

}  // namespace

DimensionForm ToDimensionForm(const Sharding& sharding) {
  HIR_CHECK(sharding.partial.empty());
  const DeviceMesh& mesh = sharding.mesh;
  const size_t rank = mesh.shape().size();
  // The dimensions in an order that keeps each axis's own: those of one axis take their places in the axis's order.
  std::vector<ParallelType> order;
  for (size_t i = 0; i < rank; ++i) order.push_back(TypeOfDimension(rank, i));
  DimensionForm form;
  form.axis_of_dimension.assign(rank, -1);
  for (size_t axis = 0; axis < sharding.axes.size(); ++axis) {
    size_t next = 0;
    const AxisSplit& types = sharding.axes[axis];
    HIR_CHECK(!types.is_dealt() || sharding.Ways(axis) == types.dealt);
    for (size_t i = 0; i < rank; ++i) {
      if (std::ranges::find(types, TypeOfDimension(rank, i)) == types.end()) continue;
      order[i] = types[next++];
      form.axis_of_dimension[i] = static_cast<int64_t>(axis);
      if (!types.is_dealt()) continue;
      form.dealt.resize(rank, false);
      form.dealt[i] = true;
    }
  }
  for (const ParallelType type : order) form.shape.push_back(mesh.Size(type));
  form.devices.resize(static_cast<size_t>(mesh.num_devices()));
  for (int64_t position = 0; position < mesh.num_devices(); ++position) {
    int64_t to = 0;
    for (const ParallelType type : order) to = to * mesh.Size(type) + mesh.Coordinate(position, type);
    form.devices[static_cast<size_t>(to)] = mesh.devices()[static_cast<size_t>(position)];
  }
  return form;
}

Result<Sharding> FromDimensionForm(const DimensionForm& form, size_t rank) {
  HIR_ASSIGN(DeviceMesh mesh, DeviceMesh::Make(form.shape, form.devices));
  Sharding sharding = Sharding::Replicated(std::move(mesh), rank);
  if (!form.dealt.empty() && form.dealt.size() != form.shape.size()) {
    return InvalidArgument(Cat("a sharding says of ", form.dealt.size(), " dimensions whether they deal, of a mesh of ",
                               form.shape.size()));
  }
  if (form.axis_of_dimension.empty()) return sharding;
  if (form.axis_of_dimension.size() != form.shape.size()) {
    return InvalidArgument(Cat("a sharding names ", form.axis_of_dimension.size(), " axes for a mesh of ",
                               form.shape.size(), " dimensions"));
  }
  for (size_t i = 0; i < form.shape.size(); ++i) {
    const int64_t axis = form.axis_of_dimension[i];
    if (axis == -1) continue;
    if (axis < -1 || axis >= static_cast<int64_t>(rank)) {
      return InvalidArgument(Cat("a sharding splits axis ", axis, " of a tensor of ", rank, " axes"));
    }
    if (form.shape[i] == 1) continue;
    AxisSplit& split = sharding.axes[static_cast<size_t>(axis)];
    split.push_back(TypeOfDimension(form.shape.size(), i));
    if (!form.dealt.empty() && form.dealt[i]) split.dealt = form.shape[i];
    if (split.is_dealt() && split.size() > 1) {
      return InvalidArgument(Cat("a sharding deals axis ", axis, " over ", TypeNames(split),
                                 "; elements are dealt over one dimension of the mesh alone"));
    }
  }
  return sharding;
}

}  // namespace hir::mesh
