#include "csrc/codegen/library/problem.h"

#include "csrc/base/text.h"

namespace hir::codegen::library {
namespace {

using base::Cat;

Status CheckTypes(const ProductDesc& desc) {
  for (const Tensor& input : desc.inputs) {
    if (input.dtype != desc.output.dtype) {
      return Unimplemented(Cat(desc.op, " of ", DTypeName(input.dtype), " to ", DTypeName(desc.output.dtype)));
    }
  }
  if (desc.output.dtype == DType::kBool) return Unimplemented(Cat(desc.op, " of bool"));
  if (desc.epilogue != Epilogue::kNone && !IsFloat(desc.output.dtype)) {
    return Unimplemented(
        Cat(desc.op, " of ", DTypeName(desc.output.dtype), " with the epilogue ", EpilogueName(desc.epilogue)));
  }
  return {};
}

Status CheckExtent(const ProductDesc& desc, const char* what, int64_t got, int64_t want) {
  if (got == want) return {};
  return InvalidArgument(Cat(desc.op, ": ", what, " has extent ", got, ", not ", want));
}

// Adds the leading `count` axes of the output as batches, with the operands' aligned at the right.
Status AddBatches(const ProductDesc& desc, size_t count, size_t a_count, size_t b_count, Problem& problem) {
  const Tensor& a = desc.inputs[0];
  const Tensor& b = desc.inputs[1];
  const auto stride = [&](const Tensor& operand, size_t operand_count, size_t axis) -> Result<int64_t> {
    if (axis + operand_count < count) return 0;
    const size_t own = axis + operand_count - count;
    if (operand.shape[own] != 1)
      HIR_TRY(CheckExtent(desc, "a batch axis", operand.shape[own], desc.output.shape[axis]));
    return StrideOf(operand, own);
  };
  for (size_t axis = 0; axis < count; ++axis) {
    Batch batch = {.extent = desc.output.shape[axis]};
    HIR_ASSIGN(batch.a, stride(a, a_count, axis));
    HIR_ASSIGN(batch.b, stride(b, b_count, axis));
    batch.c = desc.output.strides[axis];
    problem.batches.push_back(batch);
  }
  return {};
}

// The third input, a number for each column.
Status AddBias(const ProductDesc& desc, Problem& p) {
  if (desc.inputs.size() < 3) return {};
  const Tensor& bias = desc.inputs[2];
  if (bias.shape.size() != 1) return InvalidArgument(Cat(desc.op, ": the bias has more or fewer axes than one"));
  p.bias = true;
  p.bias_n = StrideOf(bias, 0);
  return CheckExtent(desc, "the bias", bias.shape[0], p.n);
}

Result<Problem> Matmul(const ProductDesc& desc) {
  const Tensor& a = desc.inputs[0];
  const Tensor& b = desc.inputs[1];
  const Tensor& c = desc.output;
  if (a.shape.empty() || b.shape.empty()) return InvalidArgument("matmul: an operand has no axes");
  Problem p = {.dtype = c.dtype, .batches = {}};
  const bool row = a.shape.size() == 1, column = b.shape.size() == 1;
  const size_t a_batch = row ? 0 : a.shape.size() - 2, b_batch = column ? 0 : b.shape.size() - 2;
  const size_t batch = std::max(a_batch, b_batch);
  if (c.shape.size() != batch + (row ? 0 : 1) + (column ? 0 : 1))
    return InvalidArgument("matmul: wrong rank of the result");
  size_t axis = batch;
  if (!row) {
    p.m = c.shape[axis];
    p.c_m = c.strides[axis++];
    p.a_m = StrideOf(a, a.shape.size() - 2);
    HIR_TRY(CheckExtent(desc, "axis -2 of the left operand", a.shape[a.shape.size() - 2], p.m));
  }
  if (!column) {
    p.n = c.shape[axis];
    p.c_n = c.strides[axis];
    p.b_n = StrideOf(b, b.shape.size() - 1);
    HIR_TRY(CheckExtent(desc, "axis -1 of the right operand", b.shape.back(), p.n));
  }
  const size_t b_k = column ? 0 : b.shape.size() - 2;
  p.k = a.shape.back();
  p.a_k = StrideOf(a, a.shape.size() - 1);
  p.b_k = StrideOf(b, b_k);
  HIR_TRY(CheckExtent(desc, "the contracted axis of the right operand", b.shape[b_k], p.k));
  HIR_TRY(AddBatches(desc, batch, a_batch, b_batch, p));
  if (desc.inputs.size() == 3 && b.shape.size() != 2)
    return InvalidArgument("matmul: a bias, but the right operand is no matrix");
  HIR_TRY(AddBias(desc, p));
  return p;
}

Result<Problem> Linear(const ProductDesc& desc) {
  const Tensor& x = desc.inputs[0];
  const Tensor& w = desc.inputs[1];
  const Tensor& y = desc.output;
  if (x.shape.empty() || w.shape.size() != 2 || y.shape.size() != x.shape.size()) {
    return InvalidArgument("linear: wrong ranks of x, w or the result");
  }
  Problem p = {.dtype = y.dtype, .batches = {}};
  p.n = w.shape[0];
  p.k = w.shape[1];
  p.b_n = StrideOf(w, 0);
  p.b_k = StrideOf(w, 1);
  p.a_k = StrideOf(x, x.shape.size() - 1);
  p.c_n = y.strides.back();
  HIR_TRY(CheckExtent(desc, "the last axis of x", x.shape.back(), p.k));
  HIR_TRY(CheckExtent(desc, "the last axis of the result", y.shape.back(), p.n));
  const size_t rows = x.shape.size() - 1;
  for (size_t axis = 0; axis < rows; ++axis) {
    HIR_TRY(CheckExtent(desc, "an axis of x", x.shape[axis], y.shape[axis]));
    p.batches.push_back({.extent = y.shape[axis], .a = StrideOf(x, axis), .b = 0, .c = y.strides[axis]});
  }
  HIR_TRY(AddBias(desc, p));
  return p;
}

// Batches that continue each other become one; the innermost that share B become rows: one large product
// instead of many.
void Merge(Problem& p) {
  std::vector<Batch> merged;
  for (const Batch& batch : p.batches) {
    if (batch.extent == 1) continue;
    if (!merged.empty()) {
      Batch& outer = merged.back();
      if (outer.a == batch.a * batch.extent && outer.b == batch.b * batch.extent && outer.c == batch.c * batch.extent) {
        outer = {outer.extent * batch.extent, batch.a, batch.b, batch.c};
        continue;
      }
    }
    merged.push_back(batch);
  }
  if (!merged.empty() && merged.back().b == 0) {
    const Batch& rows = merged.back();
    if (p.m == 1 || (rows.a == p.a_m * p.m && rows.c == p.c_m * p.m)) {
      if (p.m == 1) {
        p.a_m = rows.a;
        p.c_m = rows.c;
      }
      p.m *= rows.extent;
      merged.pop_back();
    }
  }
  p.batches = std::move(merged);
}

}  // namespace

Result<Problem> Normalize(const ProductDesc& desc) {
  HIR_TRY(CheckTypes(desc));
  const bool known = desc.op == "matmul" || desc.op == "linear";
  if (known && (desc.inputs.size() == 2 || desc.inputs.size() == 3)) {
    HIR_ASSIGN(Problem problem, desc.op == "matmul" ? Matmul(desc) : Linear(desc));
    problem.epilogue = desc.epilogue;
    problem.tf32 = desc.tf32 && problem.dtype == DType::kFloat32;
    Merge(problem);
    return problem;
  }
  return Unimplemented(Cat("library call ", desc.op, " with ", desc.inputs.size(), " operands"));
}

}  // namespace hir::codegen::library
