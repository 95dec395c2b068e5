// TensorSpec: what is known of a stored tensor without its elements.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "multidevice/sharding.h"

namespace hir::service {

inline constexpr int64_t kTensorAxesMax = 16;

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;     // Global.
  std::vector<bool> stored_once;  // One per axis: one element is stored there.
  mesh::Sharding sharding = mesh::Sharding::OnDevice0(0);
  // Axes as each device's part lies in memory, the outermost first, and as its elements travel; empty: row-major.
  std::vector<int64_t> memory_order = {};
};

// The axis that is the `place`-th in memory, from the outermost one.
inline size_t AxisInMemory(const TensorSpec& spec, size_t place) {
  return spec.memory_order.empty() ? place : static_cast<size_t>(spec.memory_order[place]);
}

std::string ToString(const TensorSpec& spec);                      // "f32[6, b:1024] on [0, 1], replicated"
std::string DescribeOrder(std::span<const int64_t> memory_order);  // "row-major", "with its axes in the order 1, 0"
// Errors: kInvalidArgument: it is neither empty nor a permutation of the axes.
Status CheckMemoryOrder(std::span<const int64_t> memory_order, size_t axes);
// Whether the elements of `spec` lie as in `memory_order`, too: an axis of one element lies anywhere.
bool SameMemory(const TensorSpec& spec, std::span<const int64_t> memory_order);
std::string Describe(const mesh::Sharding& sharding);  // "on [0, 1], axis 0 split 2 ways over mesh_x"

// The bytes of all elements of a tensor, once; nothing when they do not fit in 63 bits, and the refusal of that.
std::optional<int64_t> ElementsBytes(DType dtype, std::span<const int64_t> shape);
Status TooManyBytes(DType dtype, std::string_view shape);

// Whether `spec` can be stored on devices 0 to num_devices - 1.
// Errors: kInvalidArgument naming axis, extent, factor, device or limit.
Status CheckSpec(const TensorSpec& spec, int64_t num_devices);

// Bytes one device stores, padding included: the same on all of them. REQUIRES: CheckSpec is OK.
int64_t ShardBytes(const TensorSpec& spec);

// Whether every device holds the same part of a tensor of `shape`, however the two came to it.
bool SameParts(const mesh::Sharding& a, const mesh::Sharding& b, std::span<const int64_t> shape);

}  // namespace hir::service
