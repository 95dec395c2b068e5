// Library calls on CPUs, matrix products, those of groups of rows, sums of rows by index and attention: one call with
// all sizes known, made once and run any number of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "csrc/codegen/library/abilities.h"

namespace hir::codegen::library {

struct Tensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // In elements; 0 along an axis that is stored once.
};

// As libraries want it: 0 along an axis of one element, too.
inline int64_t StrideOf(const Tensor& tensor, size_t axis) {
  return tensor.shape[axis] == 1 ? 0 : tensor.strides[axis];
}

struct ProductDesc {
  // "matmul": a, b, as NumPy's, of a matrix b perhaps a bias[n]; "linear": x, w[n, k], perhaps a bias[n]
  std::string op;
  std::vector<Tensor> inputs = {};  // All of one element type, no bool; as is the output.
  Tensor output = {};
  Epilogue epilogue = Epilogue::kNone;  // Of floats.
  bool tf32 = false;                    // Operands of f32 may lose 13 of their 23 bits of mantissa.
};

// Zeros, to which along `axis` each row of the updates is added at its index, in the order that the rows have. An index
// from -size to -1 counts from the end; one outside of [-size, size) means the nearer end.
struct IndexSumDesc {
  Tensor updates = {};  // Of no bool; as is the output.
  Tensor indices = {};  // i32 or i64, one axis.
  Tensor output = {};
  int64_t axis = 0;
};

// Products of groups of rows. Row i of a[rows, k] is the (first + i)-th of those that `ends` count: it is of the first
// group whose end is above that number, of none where there is no such group. The output [rows, n] has the row times
// its group's matrix of b[groups, k, n], 0 where it has no group; or, with `outer`, the output [groups, k, n] has by
// group the sum over its rows of row i of a and row i of b[rows, n], an outer product.
struct GroupedProductDesc {
  bool outer = false;
  Tensor a = {};  // Of no bool; as are b and the output.
  Tensor b = {};
  Tensor ends = {};  // i32 or i64, [groups], of any value.
  Tensor output = {};
  int64_t first = 0;
};

// Attention of queries to keys, or its gradients; no score is stored (docs/ops.md, attention). With q[..., m, d],
// k[..., n, d] and v[..., n, e], scores s[i, j] = scale q[i] k[j] + mask[i, j] and -inf where key j takes no part, the
// values of query i are the mean of v by weights e^s[i, j], and lse[i] is the logarithm of their sum. A query without
// keys has values 0 and an lse of -inf; a NaN among its scores, or +inf, makes its values and its lse NaN.
// Where an operand is not finite at a key of weight 0, what it would be multiplied for may be NaN.
struct AttentionDesc {
  enum class Result : uint8_t { kValues, kLse, kQ, kK, kV };
  struct Output {
    Result what = Result::kValues;
    Tensor tensor = {};
  };
  // q, k, v; if `backward`, behind them the values' gradient [..., m, e], lse[..., m] and the values [..., m, e];
  // perhaps last a mask[..., m, n]. Leading axes broadcast as NumPy's do, and the mask's last two; any axis may be
  // stored once. lse is f64 of f64 and f32 of other floats, a mask is of bool, true where the key takes part, or of any
  // float type; the others have one float type.
  std::vector<Tensor> inputs = {};
  bool backward = false;
  bool has_mask = false;
  bool causal = false;  // Key j takes part for query i only if j <= i + diagonal.
  int64_t diagonal = 0;
  double scale = 1;
  // At least one, none twice: kValues[..., m, e] and kLse[..., m], or gradients, kQ[..., m, d], kK[..., n, d] and
  // kV[..., n, e]. All have the inputs' broadcast leading axes: gradients are not summed over them.
  std::vector<Output> outputs = {};
};

// Threads: one call at a time per object. Sums are carried in float32 for 16-bit floats, in the type itself
// for others, with the bias added and through the epilogue, then rounded once; integers wrap. A sum of nothing is 0.
// Attention's scores, weights and sums are float32, too, and double of f64.
class Call {
 public:
  virtual ~Call() = default;
  // Blocks until the outputs are written. Addresses in the order of the description, of products and sums by index one
  // output; an output overlaps none of the others.
  virtual void Run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) = 0;
  // "onednn (brg:avx512_core_amx_bf16)", "loops": for explain and benchmarks.
  virtual std::string implementation() const = 0;
};

// Blocked loops on the caller's thread: any strides, any type, slow. csrc/codegen/library/onednn makes fast calls.
// Errors: kInvalidArgument for shapes that do not fit each other, kUnimplemented for another op or element type.
Result<std::unique_ptr<Call>> MakeLoops(const ProductDesc& desc);

// Sums on the caller's thread and the idle ones of `pool`, which outlives the call. Each row of the output is made by
// one thread, so threads change no bit of it. Errors: kInvalidArgument for shapes that do not fit each other,
// kUnimplemented for other element types.
Result<std::unique_ptr<Call>> MakeIndexSum(const IndexSumDesc& desc, base::WorkPool& pool);

}  // namespace hir::codegen::library
