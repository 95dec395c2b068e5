// Products by blocked loops, for types and strides that no library takes: right for all, fast for none.
#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "csrc/codegen/library/format.h"
#include "csrc/codegen/library/problem.h"

namespace hir::codegen::library {
namespace {

constexpr int64_t kRows = 32, kColumns = 64,
                  kDepth = 128;  // One block of B and of sums: 48 KiB in float32.

// The formulas of csrc/fusion/fusion_ops.def; integers have none.
template <typename Sum>
Sum Finished(Epilogue epilogue, Sum x) {
  if constexpr (std::is_floating_point_v<Sum>) {
    constexpr auto kHalf = Sum(0.5), kOne = Sum(1);
    switch (epilogue) {
      case Epilogue::kNone: break;
      case Epilogue::kGelu: return kHalf * x * (kOne + std::erf(Sum(0.70710678118654752) * x));
      case Epilogue::kRelu: return x <= Sum(0) ? Sum(0) : x;
      case Epilogue::kTanhGelu:
        return kHalf * x * (kOne + std::tanh(Sum(0.79788456080286536) * (x + Sum(0.044715) * (x * x * x))));
    }
  }
  return x;
}

template <typename F>
class Loops final : public Call {
 public:
  using Stored = typename F::Stored;
  using Sum = typename F::Sum;

  explicit Loops(const Problem& problem) : p_(problem) {}

  void Run(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) override {
    const auto* bias = p_.bias ? reinterpret_cast<const Stored*>(inputs[2]) : nullptr;
    RunBatch(0, reinterpret_cast<const Stored*>(inputs[0]), reinterpret_cast<const Stored*>(inputs[1]), bias,
             reinterpret_cast<Stored*>(outputs[0]));
  }
  std::string implementation() const override { return "loops"; }

 private:
  void RunBatch(size_t axis, const Stored* a, const Stored* b, const Stored* bias, Stored* c) {
    if (axis == p_.batches.size()) {
      for (int64_t n = 0; n < p_.n; n += kColumns) {
        for (int64_t m = 0; m < p_.m; m += kRows) RunBlock(a, b, bias, c, m, n);
      }
      return;
    }
    const Batch& batch = p_.batches[axis];
    for (int64_t i = 0; i < batch.extent; ++i)
      RunBatch(axis + 1, a + i * batch.a, b + i * batch.b, bias, c + i * batch.c);
  }

  void RunBlock(const Stored* a, const Stored* b, const Stored* bias, Stored* c, int64_t m0, int64_t n0) {
    const int64_t rows = std::min(kRows, p_.m - m0), columns = std::min(kColumns, p_.n - n0);
    for (int64_t i = 0; i < rows; ++i) std::fill_n(sums_[static_cast<size_t>(i)].data(), kColumns, Sum{0});
    for (int64_t k0 = 0; k0 < p_.k; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, p_.k - k0);
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t n = 0; n < columns; ++n) {
          packed_[static_cast<size_t>(k)][static_cast<size_t>(n)] = F::Load(b[(k0 + k) * p_.b_k + (n0 + n) * p_.b_n]);
        }
        std::fill(packed_[static_cast<size_t>(k)].begin() + columns, packed_[static_cast<size_t>(k)].end(), Sum{0});
      }
      for (int64_t i = 0; i < rows; ++i) {
        auto& sums = sums_[static_cast<size_t>(i)];
        for (int64_t k = 0; k < depth; ++k) {
          const Sum factor = F::Load(a[(m0 + i) * p_.a_m + (k0 + k) * p_.a_k]);
          const auto& packed = packed_[static_cast<size_t>(k)];
          for (size_t n = 0; n < kColumns; ++n) sums[n] += factor * packed[n];
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t n = 0; n < columns; ++n) {
        Sum sum = sums_[static_cast<size_t>(i)][static_cast<size_t>(n)];
        if (bias != nullptr) sum += F::Load(bias[(n0 + n) * p_.bias_n]);
        c[(m0 + i) * p_.c_m + (n0 + n) * p_.c_n] = F::Store(Finished(p_.epilogue, sum));
      }
    }
  }

  const Problem p_;
  std::array<std::array<Sum, kColumns>, kDepth> packed_ = {};
  std::array<std::array<Sum, kColumns>, kRows> sums_ = {};
};

}  // namespace

std::unique_ptr<Call> MakeLoops(const Problem& problem) {
  return WithFormat(problem.dtype,
                    [&]<typename F>(F) -> std::unique_ptr<Call> { return std::make_unique<Loops<F>>(problem); });
}

Result<std::unique_ptr<Call>> MakeLoops(const ProductDesc& desc) {
  HIR_ASSIGN(const Problem problem, Normalize(desc));
  return MakeLoops(problem);
}

}  // namespace hir::codegen::library
