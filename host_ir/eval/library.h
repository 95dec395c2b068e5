// LibrarySource: where an evaluator gets its library calls, as it gets kernels from a KernelSource.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/device/buffer.h"
#include "csrc/device/stream.h"

namespace hir::host {

struct LibraryTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // In elements; 0 along broadcast axes.
};

// A product, with all sizes known.
struct ProductDesc {
  std::string op;  // "matmul": a, b; "linear": x, w; of both perhaps a bias
  std::vector<LibraryTensor> inputs = {};
  LibraryTensor output = {};
  std::string epilogue = "none";  // "gelu", "relu", "tanh_gelu": what is done to sums before they are rounded.
  bool tf32 = false;              // Operands of f32 may lose 13 of their 23 bits of mantissa.
};

// Zeros, to which along `axis` each row of the updates is added at its index (docs/ops.md, index_sum), with all sizes
// known.
struct IndexSumDesc {
  LibraryTensor updates = {};
  LibraryTensor indices = {};  // i32 or i64, of one axis.
  LibraryTensor output = {};
  int64_t axis = 0;
};

// Attention, or its gradients (docs/host_ops.md, attention), with all sizes known.
struct AttentionDesc {
  std::vector<LibraryTensor> inputs = {};  // q, k, v; of gradients behind them gradient, lse, values; perhaps a mask.
  std::vector<std::string> results = {};   // "values", "lse"; "q", "k", "v": one an output.
  std::vector<LibraryTensor> outputs = {};
  bool causal = false;
  int64_t diagonal = 0;
  double scale = 1;
};

// grouped_matmul, or grouped_outer (docs/ops.md), with all sizes known.
struct GroupedProductDesc {
  bool outer = false;
  LibraryTensor a = {};     // [rows, k]
  LibraryTensor b = {};     // [groups, k, n], or of an outer product [rows, n].
  LibraryTensor ends = {};  // i32 or i64, [groups].
  LibraryTensor output = {};
  int64_t first = 0;  // The number of the first row, as ends count.
};

using LibraryDesc = std::variant<ProductDesc, IndexSumDesc, AttentionDesc, GroupedProductDesc>;

// Inputs and outputs of a call, at most: those of attention's gradients.
inline constexpr size_t kCallTensorsMax = 10;

// A call made ready once and queued any number of times, on any streams. One thread at a time queues.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  // Queues the call on `stream` and returns. The object and the buffers stay until the work is done. Buffers in the
  // order of the description.
  virtual void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
                     device::Stream& stream) = 0;
};

class LibrarySource {
 public:
  virtual ~LibrarySource() = default;
  // Asked when sizes bind, never in a run. kUnimplemented naming op, dtypes and shapes that it does
  // not do.
  virtual Result<std::unique_ptr<LibraryCall>> Make(const LibraryDesc& desc) = 0;
};

}  // namespace hir::host
