// Goal: sums of rows by index are made in the order of the rows, and threads change no bit of them; a row's infinity or
// NaN stays in its row; sizes that do not fit are refused. Method: float32 sums whose order shows, beside a plain loop,
// on one thread and on four, with indices of all rows, of few, and of one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "csrc/base/prng.h"
#include "csrc/base/text.h"
#include "csrc/codegen/library/index_sum.h"

namespace hir::codegen::library {
namespace {

struct Shape {
  int64_t outer = 1, count = 1, size = 1, columns = 1;
};

IndexSumDesc DescOf(const Shape& s) {
  return {.updates = {DType::kFloat32, {s.outer, s.count, s.columns}, {s.count * s.columns, s.columns, 1}},
          .indices = {DType::kInt64, {s.count}, {1}},
          .output = {DType::kFloat32, {s.outer, s.size, s.columns}, {s.size * s.columns, s.columns, 1}},
          .axis = 1};
}

std::vector<float> SumsOf(const Shape& s, const std::vector<float>& updates, const std::vector<int64_t>& indices,
                          int num_threads) {
  base::WorkPool pool({.num_threads = num_threads - 1});
  auto call = MakeIndexSum(DescOf(s), pool);
  EXPECT_TRUE(call.ok()) << call.status().ToString();
  std::vector<float> output(static_cast<size_t>(s.outer * s.size * s.columns), 777.0F);
  const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(updates.data()),
                                     reinterpret_cast<const std::byte*>(indices.data())};
  std::byte* const outputs[] = {reinterpret_cast<std::byte*>(output.data())};
  for (int k = 0; k < 2; ++k) (*call)->Run(inputs, outputs);
  return output;
}

TEST(IndexSum, IsInOrderOnAnyNumberOfThreads) {
  const Shape shapes[] = {
      {1, 4000, 50, 300}, {3, 500, 4000, 7}, {2, 3000, 1, 1030}, {1, 20000, 9000, 1}, {5, 0, 70, 9}};
  base::Prng prng(1);
  for (const Shape& s : shapes) {
    SCOPED_TRACE(base::Cat(s.count, " rows to ", s.size, " of ", s.columns, " columns"));
    std::vector<float> updates(static_cast<size_t>(s.outer * s.count * s.columns));
    for (float& x : updates) x = std::ldexp(static_cast<float>(prng.Between(-9, 9)), static_cast<int>(prng.Below(30)));
    std::vector<int64_t> indices;
    for (int64_t n = 0; n < s.count; ++n) indices.push_back(prng.OneIn(3) ? s.size / 2 : prng.Below(s.size));
    std::vector<float> want(static_cast<size_t>(s.outer * s.size * s.columns), 0.0F);
    for (int64_t i = 0; i < s.outer; ++i) {
      for (int64_t n = 0; n < s.count; ++n) {
        for (int64_t k = 0; k < s.columns; ++k) {
          const int64_t row = indices[static_cast<size_t>(n)];
          want[static_cast<size_t>((i * s.size + row) * s.columns + k)] +=
              updates[static_cast<size_t>((i * s.count + n) * s.columns + k)];
        }
      }
    }
    for (const int threads : {1, 4}) EXPECT_TRUE(SumsOf(s, updates, indices, threads) == want) << threads << " threads";
  }
}

TEST(IndexSum, KeepsWhatIsNotFiniteInItsRow) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> sums =
      SumsOf({1, 5, 4, 1}, {kInfinity, 1, -kInfinity, 2, std::nanf("")}, {0, 1, -4, 1, 3}, 1);
  EXPECT_TRUE(std::isnan(sums[0]));  // Infinity less infinity.
  EXPECT_EQ(sums[1], 3);
  EXPECT_EQ(sums[2], 0);
  EXPECT_TRUE(std::isnan(sums[3]));
}

TEST(IndexSum, RefusesWhatDoesNotFit) {
  base::WorkPool pool({.num_threads = 0});
  const auto code_of = [&](auto change) {
    IndexSumDesc desc = DescOf({2, 3, 4, 5});
    change(desc);
    return MakeIndexSum(desc, pool).status().code();
  };
  EXPECT_EQ(code_of([](IndexSumDesc&) {}), Code::kOk);
  EXPECT_EQ(code_of([](IndexSumDesc& desc) { desc.indices.shape[0] = 4; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](IndexSumDesc& desc) { desc.output.shape[2] = 4; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](IndexSumDesc& desc) { desc.axis = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](IndexSumDesc& desc) { desc.indices.dtype = DType::kFloat32; }), Code::kUnimplemented);
  EXPECT_EQ(code_of([](IndexSumDesc& desc) { desc.updates.dtype = desc.output.dtype = DType::kBool; }),
            Code::kUnimplemented);
}

}  // namespace
}  // namespace hir::codegen::library
