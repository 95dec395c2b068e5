// What libraries have, for whoever plans calls of them. Needs none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "csrc/base/dtype.h"

namespace hir::codegen::library {

// What a product does to its sums before they are rounded to the result's type and stored. The names are those of the
// fusion ops whose formulas they are (csrc/fusion/fusion_ops.def).
enum class Epilogue : uint8_t { kNone, kGelu, kRelu, kTanhGelu };

// "none", "gelu", "relu", "tanh_gelu".
std::string_view EpilogueName(Epilogue epilogue);
std::optional<Epilogue> EpilogueNamed(std::string_view name);

enum class Provider : uint8_t { kOneDnn, kCublasLt };

// Whether its calls multiply elements of `dtype`.
bool HasProducts(Provider provider, DType dtype);
// Whether its calls have the epilogue on results of `dtype`: its formula is ours, and no pass of its own.
bool HasEpilogue(Provider provider, Epilogue epilogue, DType dtype);

// How a tensor lies whose last two axes are a matrix, as far as it is known before sizes are.
struct Placing {
  bool columns_are_dense = true;  // The elements of a row are side by side.
  bool rows_are_dense = false;    // Those of a column are.
  size_t batches = 0;             // So many strides lead from matrix to matrix.
  bool rows_go_on = true;         // All rows of all matrices are evenly apart.
  bool is_aligned = true;         // No row is known to begin beside a multiple of 16 bytes.
};

// Whether a product reads an operand that lies so no slower than after it was copied. `joins_rows`: its rows, of all
// matrices, are multiplied by one matrix, in one call if they go on.
bool ReadsInPlace(Provider provider, const Placing& placing, bool joins_rows);
// The same of its result. `joins_rows`: it has one matrix on the right.
bool WritesInPlace(Provider provider, const Placing& placing, bool joins_rows);
// The same of queries, keys, values and their gradients, of the attention beside `provider`: ours on CPUs, or cuDNN's.
bool AttendsInPlace(Provider provider, const Placing& placing);

}  // namespace hir::codegen::library
