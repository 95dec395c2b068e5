// What a product (matmul, linear) does with its sums before they are rounded to the result's type: the attribute
// `epilogue`, "none" or the name of one of these ops.
#pragma once

#include <array>
#include <string_view>

#include "csrc/fusion/fusion_ops.h"

namespace hir::fusion {

inline constexpr std::array<FusionOp, 3> kEpilogues = {FusionOp::kGelu, FusionOp::kRelu, FusionOp::kTanhGelu};

inline constexpr std::string_view kNoEpilogue = "none";

// The attribute `precision` of products of f32: "full", or "tf32", which allows operands of 10 bits of mantissa.
inline constexpr std::string_view kFullPrecision = "full";
inline constexpr std::string_view kTf32 = "tf32";

}  // namespace hir::fusion
