#include "csrc/codegen/library/cublaslt/gemm.h"

#include <algorithm>
#include <utility>

#include "csrc/base/check.h"
#include "csrc/base/text.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

constexpr int64_t kBatchesMax = INT32_MAX;       // The library counts them in 32 bits.
constexpr int64_t kCallsMax = int64_t{1} << 16;  // Each is a kernel.

Status CheckType(const ProductDesc& desc, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return {};
    case DType::kBool:
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kInt32:
    case DType::kInt64: break;
  }
  return Unimplemented(Cat(desc.op, " of ", DTypeName(dtype),
                           " on a GPU: cuBLASLt multiplies f16, bf16, f32 and f64; cast the operands"));
}

// Elements from the first that is stored to the last.
int64_t SpanOf(const Tensor& tensor) {
  int64_t span = 1;
  for (size_t i = 0; i < tensor.shape.size(); ++i) span += (tensor.shape[i] - 1) * tensor.strides[i];
  return span;
}

// Axes of extent `extent` that are stored once get the stride of a copy; `span` grows.
void WriteOut(int operand, int64_t extent, int64_t& stride, int64_t& span, Gemm& gemm) {
  if (extent == 1 || stride != 0) return;
  gemm.repeats.push_back({operand, span, extent});
  stride = span;
  span *= extent;
}

// A batch of matrices that are stored once along both axes: copies along one would leave no axis
// contiguous, so the axis that the product keeps becomes a batch axis, along which the result's
// matrices are single rows or columns.
void SplitSingles(Problem& p, int64_t a_span, int64_t b_span) {
  if (p.a_m == 0 && p.a_k == 0 && p.m > 1 && p.k > 1 && a_span > 1) {
    p.batches.push_back({.extent = p.m, .a = 0, .b = 0, .c = p.c_m});
    p.m = 1;
  }
  if (p.b_n == 0 && p.b_k == 0 && p.n > 1 && p.k > 1 && b_span > 1) {
    HIR_CHECK(!p.bias);  // A weight has no batch.
    p.batches.push_back({.extent = p.n, .a = 0, .b = 0, .c = p.c_n});
    p.n = 1;
  }
}

// The matrix whose element (i, j) lies at i * row + j * column. One of the strides is 1.
Result<Matrix> MakeMatrix(const ProductDesc& desc, int64_t rows, int64_t row, int64_t columns, int64_t column) {
  // A stride along an axis of extent 1 means nothing, but must not look wrong.
  if ((rows == 1 || row == 1) && (columns == 1 || column >= rows))
    return Matrix{.rows = rows, .columns = columns, .ld = columns == 1 ? rows : column};
  if ((columns == 1 || column == 1) && (rows == 1 || row >= columns)) {
    return Matrix{.rows = columns, .columns = rows, .ld = rows == 1 ? columns : row, .transposed = true};
  }
  return Unimplemented(Cat(desc.op, " of a matrix [", rows, ", ", columns, "] with strides [", row, ", ", column,
                           "]: cuBLASLt wants one of its axes contiguous"));
}

// The longest axis is the library's batch, the others are calls of their own.
Status MakeBatches(const ProductDesc& desc, const Problem& p, Gemm& gemm) {
  size_t own = p.batches.size();
  for (size_t i = 0; i < p.batches.size(); ++i) {
    const bool fits = p.batches[i].extent <= kBatchesMax;
    if (fits && (own == p.batches.size() || p.batches[i].extent > p.batches[own].extent)) own = i;
  }
  gemm.calls.push_back({});
  for (size_t i = 0; i < p.batches.size(); ++i) {
    const Batch& batch = p.batches[i];
    if (i == own) {
      gemm.batches = batch.extent;
      gemm.left.batch_stride = batch.b;
      gemm.right.batch_stride = batch.a;
      gemm.result.batch_stride = batch.c;
      continue;
    }
    if (batch.extent > kCallsMax / static_cast<int64_t>(gemm.calls.size())) {
      return Unimplemented(Cat(desc.op, " with more than ", kCallsMax,
                               " batches beside its longest batch axis: reshape them into one axis"));
    }
    std::vector<Offsets> calls;
    for (const Offsets& at : gemm.calls) {
      for (int64_t k = 0; k < batch.extent; ++k)
        calls.push_back({at.a + k * batch.a, at.b + k * batch.b, at.c + k * batch.c});
    }
    gemm.calls = std::move(calls);
  }
  return {};
}

std::string ToString(const Matrix& m) {
  return Cat("[", m.rows, ", ", m.columns, "] ld ", m.ld, " batch ", m.batch_stride, m.transposed ? "'" : "");
}

}  // namespace

Result<Gemm> MakeGemm(const ProductDesc& desc, Problem p) {
  HIR_TRY(CheckType(desc, p.dtype));
  Gemm gemm = {.dtype = p.dtype, .k = p.k, .bias = p.bias, .epilogue = p.epilogue, .tf32 = p.tf32};
  const bool empty =
      p.m == 0 || p.n == 0 || std::ranges::any_of(p.batches, [](const Batch& batch) { return batch.extent == 0; });
  if (empty) return gemm;
  if (p.k > 0) {
    int64_t a_span = SpanOf(desc.inputs[0]), b_span = SpanOf(desc.inputs[1]);
    SplitSingles(p, a_span, b_span);
    WriteOut(0, p.m, p.a_m, a_span, gemm);
    WriteOut(0, p.k, p.a_k, a_span, gemm);
    WriteOut(1, p.n, p.b_n, b_span, gemm);
    WriteOut(1, p.k, p.b_k, b_span, gemm);
    HIR_ASSIGN(gemm.left, MakeMatrix(desc, p.n, p.b_n, p.k, p.b_k));
    HIR_ASSIGN(gemm.right, MakeMatrix(desc, p.k, p.a_k, p.m, p.a_m));
  }
  HIR_ASSIGN(gemm.result, MakeMatrix(desc, p.n, p.c_n, p.m, p.c_m));
  if (gemm.result.transposed) {
    return Unimplemented(Cat(desc.op, " into a result that is not contiguous along its last axis"));
  }
  if (p.bias) {
    int64_t span = 1;
    WriteOut(2, p.n, p.bias_n, span, gemm);
    gemm.bias_elements = p.n;
    if (p.n > 1 && p.bias_n != 1) return Unimplemented(Cat(desc.op, " with a bias of stride ", p.bias_n));
  }
  HIR_TRY(MakeBatches(desc, p, gemm));
  int64_t elements = 1;
  for (const int64_t extent : desc.output.shape) elements *= extent;
  gemm.gaps = SpanOf(desc.output) != elements;
  if (gemm.gaps && p.k == 0) return Unimplemented(Cat(desc.op, " of no elements into a result with gaps"));
  return gemm;
}

std::string ToString(const Gemm& gemm) {
  return Cat(DTypeName(gemm.dtype), " ", ToString(gemm.left), " x ", ToString(gemm.right), " -> ",
             ToString(gemm.result), ", ", gemm.batches, " batches", gemm.bias ? ", bias" : "",
             gemm.epilogue == Epilogue::kNone ? "" : Cat(", ", EpilogueName(gemm.epilogue)), gemm.tf32 ? ", tf32" : "");
}

}  // namespace hir::codegen::library
