// Attention and its gradients in one form, all by strides, and calls of it by a given product of blocks. For this
// folder and those below it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/codegen/library/library.h"

namespace hir::codegen::library {

// A block of a matrix whose rows are without gaps.
template <typename T>
struct Block {
  const T* at = nullptr;
  int64_t next_row = 0;     // At least as many elements as a row has.
  bool transposed = false;  // The factor has the block's rows as its columns.
};

// c[m, n] = a[m, k] b[k, n], added to c where `add` says so, on the calling thread alone; no size is 0. The same sizes
// and elements give the same bits.
template <typename T>
using BlockProduct = void (*)(int64_t m, int64_t n, int64_t k, const Block<T>& a, const Block<T>& b, bool add, T* c,
                              int64_t c_next_row);

// One by plain loops.
template <typename T>
void LoopProduct(int64_t m, int64_t n, int64_t k, const Block<T>& a, const Block<T>& b, bool add, T* c,
                 int64_t c_next_row);

struct Attention {
  // In elements; 0 along axes that are stored once, and along those that a tensor has not.
  struct Matrix {
    DType dtype = DType::kFloat32;
    int64_t row = 0, column = 0;
    std::vector<int64_t> batch = {};  // As many as there are batch axes.
  };
  DType dtype = DType::kFloat32;
  bool backward = false;
  std::vector<int64_t> batches;  // Extents.
  int64_t m = 0, n = 0, d = 0, e = 0;
  Matrix q, k, v, gradient, lse, saved, mask;  // lse has rows alone; `saved` are the values.
  bool has_mask = false;
  int64_t diagonal = 0;  // Key j takes part for query i only if j <= i + diagonal; within [-m, n].
  double scale = 1;
  struct Output {
    int place = -1;  // Among the outputs; none if negative.
    Matrix matrix = {};
    explicit operator bool() const { return place >= 0; }
  };
  Output values, of_lse, of_q, of_k, of_v;
};

// Errors: as MakeAttention's.
Result<Attention> Normalize(const AttentionDesc& desc);

// A call on the caller's thread and the idle ones of `pool`, which outlives it; threads change no bit of it. f64 goes
// by loops. Errors: kInvalidArgument for shapes that do not fit each other, kUnimplemented for other element types.
Result<std::unique_ptr<Call>> MakeAttention(const AttentionDesc& desc, base::WorkPool& pool,
                                            BlockProduct<float> product, const std::string& product_name);

}  // namespace hir::codegen::library
