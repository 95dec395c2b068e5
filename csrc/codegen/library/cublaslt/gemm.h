// A Problem as cuBLASLt sees it: matrices in column-major order. Private to this folder.
//
// Our matrices are row-major. Read in column-major order the same bytes are the transposed matrix, so a product
// C[m, n] = A[m, k] B[k, n] is the library's D[n, m] = op(B) op(A): the operands change places, nothing is copied, and
// the bias, one number for each of our columns, is one for each of its rows, as its epilogue wants it.
#pragma once

#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/codegen/library/problem.h"

namespace hir::codegen::library {

// As stored, in column-major order: column j begins at j * ld.
struct Matrix {
  int64_t rows = 1, columns = 1;
  int64_t ld = 1;
  int64_t batch_stride = 0;  // Between the matrices of a batch; 0: all the same.
  bool transposed = false;   // The product reads it transposed.
};

// An operand that is stored once along an axis of the matrix, which no leading dimension says. It is written out:
// `count` copies of its `span` elements, one behind the other.
struct Repeat {
  int operand = 0;  // 0, 1: of the product; 2: the bias.
  int64_t span = 0;
  int64_t count = 0;
};

// Where the matrices of a call lie, in elements from the operands' begins.
struct Offsets {
  int64_t a = 0, b = 0, c = 0;
};

struct Gemm {
  DType dtype = DType::kFloat32;
  Matrix left = {}, right = {}, result = {};  // The library's: left is our B, right our A.
  int64_t batches = 1;                        // Of one call.
  std::vector<Offsets> calls = {};            // For what is no single batch. Empty: the result has no elements.
  int64_t k = 1;
  bool bias = false;
  int64_t bias_elements = 0;
  Epilogue epilogue = Epilogue::kNone;
  bool tf32 = false;
  bool gaps = false;  // Between elements of the result: its bytes from end to end are not all its own.
  // In order: of one operand, the later one repeats what the earlier one made.
  std::vector<Repeat> repeats = {};
};

// Errors: kUnimplemented for element types and strides that cuBLASLt does not know.
Result<Gemm> MakeGemm(const ProductDesc& desc, Problem problem);

// "f16 left [8, 16, ld 16]' ...": everything an algorithm depends on.
std::string ToString(const Gemm& gemm);

}  // namespace hir::codegen::library
