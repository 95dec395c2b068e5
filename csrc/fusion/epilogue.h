// Attributes of products (matmul, linear). `epilogue`: done to sums before they are rounded to the result's type:
// "none" or the name of one of these ops.
#pragma once

#include <array>
#include <string_view>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

inline constexpr std::array<FusionOp, 3> kEpilogues = {FusionOp::kGelu, FusionOp::kRelu, FusionOp::kTanhGelu};

inline constexpr std::string_view kNoEpilogue = "none";

// The attribute `precision` of products of f32: "full", or "tf32", which allows operands of 10 bits of mantissa.
inline constexpr std::string_view kFullPrecision = "full";
inline constexpr std::string_view kTf32 = "tf32";

// The attribute `transposed` of matmul, and of grouped_matmul, whose x never is: which operands lie in memory with
// their last two axes the other way round: x[..., k, m], y[..., n, k].
struct Transposed {
  bool x = false, y = false;
  bool operator==(const Transposed&) const = default;
};
inline constexpr std::string_view kNotTransposed = "none";
// "none", "x", "y", "both".
std::string_view TransposedName(Transposed transposed);
// REQUIRES: a product, or one of groups. Nothing of linear and grouped_outer, and of names that are none, is.
Transposed TransposedOf(const ir::Op& op);

}  // namespace hir::fusion
