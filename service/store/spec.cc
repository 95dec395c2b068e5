#include "service/store/spec.h"

#include <algorithm>

#include "csrc/base/checked.h"
#include "csrc/base/text.h"

namespace hir::service {

std::string Describe(const mesh::Sharding& sharding) {
  return base::Cat("on ", sharding.mesh.ToString(), ", ", sharding.ToString());
}

std::string ToString(const TensorSpec& spec) {
  std::string out = base::Cat(DTypeName(spec.dtype), "[");
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    base::Append(out, axis == 0 ? "" : ", ", spec.stored_once[axis] ? "b:" : "", spec.shape[axis]);
  }
  base::Append(out, "] ", Describe(spec.sharding));
  return spec.memory_order.empty() ? out : base::Cat(out, ", ", DescribeOrder(spec.memory_order));
}

std::string DescribeOrder(std::span<const int64_t> memory_order) {
  return memory_order.empty() ? "row-major"
                              : base::Cat("with its axes in the order ", base::JoinInts(memory_order, ", "));
}

Status CheckMemoryOrder(std::span<const int64_t> memory_order, size_t axes) {
  if (memory_order.empty()) return {};
  std::vector<bool> seen(axes);
  for (const int64_t axis : memory_order) {
    if (axis >= 0 && static_cast<size_t>(axis) < axes) seen[static_cast<size_t>(axis)] = true;
  }
  if (memory_order.size() == axes && std::ranges::find(seen, false) == seen.end()) return {};
  return InvalidArgument(
      base::Cat("memory_order [", base::JoinInts(memory_order, ", "), "] is not a permutation of the ", axes, " axes"));
}

bool SameMemory(const TensorSpec& spec, std::span<const int64_t> memory_order) {
  if (std::ranges::find(spec.shape, 0) != spec.shape.end()) return true;
  std::vector<size_t> here, there;
  for (size_t place = 0; place < spec.shape.size(); ++place) {
    const auto add = [&](size_t axis, std::vector<size_t>& axes) {
      if (spec.shape[axis] > 1 && !spec.stored_once[axis]) axes.push_back(axis);
    };
    add(AxisInMemory(spec, place), here);
    add(memory_order.empty() ? place : static_cast<size_t>(memory_order[place]), there);
  }
  return here == there;
}

std::optional<int64_t> ElementsBytes(DType dtype, std::span<const int64_t> shape) {
  std::optional<int64_t> bytes = DTypeBytes(dtype);
  for (const int64_t extent : shape) {
    if (bytes.has_value() && extent > 0) bytes = base::CheckedMul(*bytes, extent);
  }
  return bytes;
}

Status TooManyBytes(DType dtype, std::string_view shape) {
  return InvalidArgument(
      base::Cat("a tensor of shape [", shape, "] and dtype ", DTypeName(dtype), " has more bytes than fit in 63 bits"));
}

Status CheckSpec(const TensorSpec& spec, int64_t num_devices) {
  const int64_t axes = static_cast<int64_t>(spec.shape.size());
  if (axes > kTensorAxesMax) {
    return InvalidArgument(base::Cat("a tensor of ", axes, " axes; at most ", kTensorAxesMax));
  }
  for (int64_t axis = 0; axis < axes; ++axis) {
    const int64_t extent = spec.shape[static_cast<size_t>(axis)];
    if (extent < 0) return InvalidArgument(base::Cat("axis ", axis, " has extent ", extent, "; it must be 0 or more"));
  }
  if (spec.stored_once.size() != spec.shape.size()) {
    return InvalidArgument(base::Cat(spec.stored_once.size(), " stored-once flags for ", axes, " axes"));
  }
  HIR_TRY(CheckMemoryOrder(spec.memory_order, spec.shape.size()));
  HIR_TRY(mesh::CheckDealt(spec.sharding, spec.shape));
  if (!ElementsBytes(spec.dtype, spec.shape).has_value())
    return TooManyBytes(spec.dtype, base::JoinInts(spec.shape, ", "));
  for (const int64_t device : spec.sharding.mesh.devices()) {
    if (device < num_devices) continue;
    return InvalidArgument(base::Cat("mesh ", spec.sharding.mesh.ToString(), " names device ", device,
                                     "; this daemon has devices 0 to ", num_devices - 1));
  }
  return {};
}

int64_t ShardBytes(const TensorSpec& spec) {
  int64_t bytes = DTypeBytes(spec.dtype);
  const std::vector<int64_t> shard = mesh::ShardShape(spec.sharding, spec.shape);
  for (size_t axis = 0; axis < shard.size(); ++axis) bytes *= spec.stored_once[axis] ? 1 : shard[axis];
  return bytes;
}

bool SameParts(const mesh::Sharding& a, const mesh::Sharding& b, std::span<const int64_t> shape) {
  if (a == b) return true;
  if (a.axes.size() != b.axes.size() || a.mesh.num_devices() != b.mesh.num_devices()) return false;
  for (size_t axis = 0; axis < a.axes.size(); ++axis) {
    // One element each, or none, is dealt and in blocks at once.
    const auto turns = [&](const mesh::Sharding& s) {
      return s.axes[axis].dealt < shape[axis] ? s.axes[axis].dealt : 1;
    };
    if (a.Ways(axis) != b.Ways(axis) || turns(a) != turns(b)) return false;
  }
  return std::ranges::all_of(a.mesh.devices(), [&](int64_t device) {
    return b.mesh.PositionOf(device).has_value() && mesh::BlockOf(a, device) == mesh::BlockOf(b, device);
  });
}

}  // namespace hir::service
