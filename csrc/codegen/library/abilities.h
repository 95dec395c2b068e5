// What libraries have, for whoever plans calls of them. Needs none of them.
#pragma once

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

}  // namespace hir::codegen::library
