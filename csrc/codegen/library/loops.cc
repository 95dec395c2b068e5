// Products by blocked loops, for types and strides that no library takes: right for all, fast for none.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "csrc/codegen/library/block_sums.h"
#include "csrc/codegen/library/format.h"
#include "csrc/codegen/library/problem.h"

namespace hir::codegen::library {
namespace {

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

  static constexpr int64_t kRows = BlockSums<F>::kRows, kColumns = BlockSums<F>::kColumns;

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
    sums_.Make({a + m0 * p_.a_m, p_.a_m, p_.a_k}, {b + n0 * p_.b_n, p_.b_k, p_.b_n}, rows, columns, p_.k);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t n = 0; n < columns; ++n) {
        Sum sum = sums_.At(i, n);
        if (bias != nullptr) sum += F::Load(bias[(n0 + n) * p_.bias_n]);
        c[(m0 + i) * p_.c_m + (n0 + n) * p_.c_n] = F::Store(Finished(p_.epilogue, sum));
      }
    }
  }

  const Problem p_;
  BlockSums<F> sums_;
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
