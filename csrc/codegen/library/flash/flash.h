// Attention of 16-bit floats in the one form that a fused kernel takes, and calls of it on a device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/library/library.h"
#include "csrc/codegen/library/queued/device_call.h"
#include "csrc/codegen/library/queued/workspaces.h"
#include "csrc/device/buffer.h"
#include "csrc/device/stream.h"

namespace hir::codegen::library {

// In elements; columns are side by side.
struct FlashTensor {
  int64_t batch = 0, head = 0, row = 0;
  bool operator==(const FlashTensor&) const = default;
};

// The tensors of a problem: forward the first five; backward q, k, v, lse, values and those behind them.
enum class FlashSlot : uint8_t { kQ, kK, kV, kLse, kValues, kGradient, kOfQ, kOfK, kOfV };
inline constexpr size_t kFlashSlots = 9;

// q[batches, heads, m, d], k[batches, key_heads, n, d], v[batches, key_heads, n, e]; query head h has the keys of head
// h key_heads / heads. Strides are multiples of 8 elements, addresses of 16 bytes, and no size is 0.
struct FlashProblem {
  DType dtype = DType::kBFloat16;
  bool backward = false;  // Then key_heads is heads.
  bool with_lse = false;  // Forward: the lse is an output.
  int64_t batches = 1, heads = 1, key_heads = 1;
  int64_t m = 0, n = 0, d = 0, e = 0;
  // Key j takes part for query i only if j <= i + diagonal; not negative. None: all keys.
  std::optional<int64_t> diagonal = {};
  double scale = 1;
  std::array<FlashTensor, kFlashSlots> tensors = {};  // lse, of float32, has rows of one element, side by side.
  bool operator==(const FlashProblem&) const = default;
};

// A kernel for one problem.
class FlashKernel {
 public:
  virtual ~FlashKernel() = default;
  virtual int64_t workspace_bytes() const = 0;
  // Addresses by slot; null where the problem has no such tensor. The workspace begins at kWorkspaceAlignment.
  virtual Status Queue(const std::array<std::byte*, kFlashSlots>& at, device::Buffer workspace,
                       device::Stream& stream) = 0;
  virtual std::string implementation() const = 0;
};

struct FlashOptions {
  // kUnimplemented for what the library has no kernel for.
  std::function<Result<std::shared_ptr<FlashKernel>>(const FlashProblem&)> make_kernel;
  // Queues a copy of elements of `bytes` bytes each between strided tensors of `shape`; strides in elements.
  std::function<Status(device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
                       std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
                       device::Stream& stream)>
      copy;
  Workspaces* workspaces = nullptr;  // Outlives the calls.
};

// Tensors that are not as a problem has them are copied, which costs a pass over them.
// Errors: kInvalidArgument for shapes that do not fit each other; kUnimplemented for masks, other types than f16 and
// bf16, sizes of heads that are not 8, 16, ... 128; those of make_kernel and Device::Allocate.
Result<std::unique_ptr<DeviceCall>> MakeFlash(const AttentionDesc& desc, FlashOptions options);

}  // namespace hir::codegen::library
