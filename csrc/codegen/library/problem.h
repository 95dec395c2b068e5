// A matmul or linear as batches of C[m, n] = epilogue(sum over k of A[m, k] B[k, n] (+ bias[n])), all by strides.
// For this folder and those below it.
#pragma once

#include <memory>
#include <vector>

#include "csrc/codegen/library/library.h"

namespace hir::codegen::library {

struct Batch {
  int64_t extent = 1;
  int64_t a = 0, b = 0, c = 0;  // Strides.
};

struct Problem {
  DType dtype = DType::kFloat32;
  std::vector<Batch> batches;
  int64_t m = 1, n = 1, k = 1;
  int64_t a_m = 0, a_k = 0, b_k = 0, b_n = 0, c_m = 0, c_n = 0;
  bool bias = false;
  int64_t bias_n = 0;
  Epilogue epilogue = Epilogue::kNone;
  bool tf32 = false;
};

Result<Problem> Normalize(const ProductDesc& desc);

std::unique_ptr<Call> MakeLoops(const Problem& problem);

}  // namespace hir::codegen::library
