// One block of a matrix product by plain loops, of any element type and strides. For this folder.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace hir::codegen::library {

// F is the Format (format.h) of all elements.
template <typename F>
class BlockSums {
 public:
  using Stored = typename F::Stored;
  using Sum = typename F::Sum;
  static constexpr int64_t kRows = 32, kColumns = 64, kDepth = 128;  // B and the sums: 48 KiB in float32.

  struct Operand {
    const Stored* at = nullptr;
    int64_t row = 0, column = 0;  // Strides.
  };

  // The sums over k of a[i, k] b[k, n], of at most kRows rows and kColumns columns and any depth.
  void Make(const Operand& a, const Operand& b, int64_t rows, int64_t columns, int64_t depth) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(sums_[static_cast<size_t>(i)].data(), kColumns, Sum{0});
    for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
      const int64_t count = std::min(kDepth, depth - k0);
      for (int64_t k = 0; k < count; ++k) {
        auto& packed = packed_[static_cast<size_t>(k)];
        for (int64_t n = 0; n < columns; ++n)
          packed[static_cast<size_t>(n)] = F::Load(b.at[(k0 + k) * b.row + n * b.column]);
        std::fill(packed.begin() + columns, packed.end(), Sum{0});
      }
      for (int64_t i = 0; i < rows; ++i) {
        auto& sums = sums_[static_cast<size_t>(i)];
        for (int64_t k = 0; k < count; ++k) {
          const Sum factor = F::Load(a.at[i * a.row + (k0 + k) * a.column]);
          const auto& packed = packed_[static_cast<size_t>(k)];
          for (size_t n = 0; n < kColumns; ++n) sums[n] += factor * packed[n];
        }
      }
    }
  }
  Sum At(int64_t i, int64_t n) const { return sums_[static_cast<size_t>(i)][static_cast<size_t>(n)]; }

 private:
  std::array<std::array<Sum, kColumns>, kDepth> packed_;
  std::array<std::array<Sum, kColumns>, kRows> sums_;
};

}  // namespace hir::codegen::library
