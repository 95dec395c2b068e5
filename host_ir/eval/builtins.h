// The kernels behind `set`, `binary` and `reduce` on strided buffers: every device provides them
// under these names.
//
// Arguments, all int64; strides are in elements. r is the number of axes.
//   host.copy    src, dst, element bytes, r, extents[r], src strides[r], dst strides[r]
//   host.binary  a, b, out, dtype, operator, r, extents[r], a strides[r], b strides[r], out strides[r]
//   host.reduce  in, out, dtype, operator, k kept axes, n reduced axes, extents[k + n],
//                in strides[k + n], out strides[k]
// The grid counts elements of what is written.
#pragma once

#include <cstdint>
#include <string_view>

namespace hir::host {

inline constexpr std::string_view kCopyKernel = "host.copy";
inline constexpr std::string_view kBinaryKernel = "host.binary";
inline constexpr std::string_view kReduceKernel = "host.reduce";

enum class BuiltinOperator : int64_t { kAdd, kSub, kMul, kDiv, kMax, kMin };

}  // namespace hir::host
