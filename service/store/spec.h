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
};

std::string ToString(const TensorSpec& spec);          // "f32[6, b:1024] on [0, 1], replicated"
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
