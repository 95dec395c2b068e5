// Goal: products of groups of rows are right on CPUs, for every element type, stride and order of ends; threads change
// no bit of them; NaN in a matrix is seen by its group alone; sizes that do not fit are refused. Method: random
// products beside sums in double (grouped_product_cases.h), on one thread and on four, larger ones than a block too.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "csrc/codegen/library/grouped_product.h"
#include "csrc/codegen/library/onednn/onednn.h"
#include "tests/csrc/codegen/gpu/grouped_product_cases.h"

namespace hir::codegen::library {
namespace {

using testing::Bytes;

void Run(Call& call, const Bytes& a, const Bytes& b, const Bytes& ends, Bytes& output) {
  const std::byte* const inputs[] = {a.data(), b.data(), ends.data()};
  std::byte* const outputs[] = {output.data()};
  call.Run(inputs, outputs);
}

void CheckOnThreads(int num_seeds, int64_t rows_max, int64_t columns_max) {
  base::WorkPool one({.num_threads = 0}), four({.num_threads = 3});
  testing::CheckGroupedProducts(
      num_seeds, rows_max, columns_max,
      [&](const GroupedProductDesc& desc, const Bytes& a, const Bytes& b, const Bytes& ends, Bytes& output) {
        Bytes other = output;
        for (const auto& [pool, to] : {std::pair{&one, &output}, {&four, &other}}) {
          auto call = MakeGroupedProduct(desc, *pool);
          ASSERT_TRUE(call.ok()) << call.status().ToString();
          for (int times = 0; times < 2; ++times) Run(**call, a, b, ends, *to);
        }
        EXPECT_TRUE(output == other) << "threads change bits";
      });
}

TEST(GroupedProduct, IsRightOnAnyNumberOfThreads) { CheckOnThreads(120, 60, 40); }

TEST(GroupedProduct, IsRightBeyondABlock) { CheckOnThreads(6, 700, 560); }

TEST(GroupedProduct, KeepsNaNInItsGroup) {
  const float nan = std::nanf("");
  const std::vector<float> x = {1, 2, 3, nan}, matrices = {10, nan};
  const std::vector<int32_t> ends = {2, 2};
  base::WorkPool pool({.num_threads = 0});
  auto call = MakeGroupedProduct({.a = {DType::kFloat32, {4, 1}, {1, 1}},
                                  .b = {DType::kFloat32, {2, 1, 1}, {1, 1, 1}},
                                  .ends = {DType::kInt32, {2}, {1}},
                                  .output = {DType::kFloat32, {4, 1}, {1, 1}}},
                                 pool);
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  std::vector<float> output(4, 777);
  const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(x.data()),
                                     reinterpret_cast<const std::byte*>(matrices.data()),
                                     reinterpret_cast<const std::byte*>(ends.data())};
  std::byte* const outputs[] = {reinterpret_cast<std::byte*>(output.data())};
  (*call)->Run(inputs, outputs);
  EXPECT_EQ(output, (std::vector<float>{10, 20, 0, 0}));
}

TEST(GroupedProduct, RefusesWhatDoesNotFit) {
  base::WorkPool pool({.num_threads = 0});
  const auto code_of = [&](auto change) {
    GroupedProductDesc desc = {.a = {DType::kFloat32, {4, 2}, {2, 1}},
                               .b = {DType::kFloat32, {3, 2, 5}, {10, 5, 1}},
                               .ends = {DType::kInt32, {3}, {1}},
                               .output = {DType::kFloat32, {4, 5}, {5, 1}}};
    change(desc);
    return MakeGroupedProduct(desc, pool).status().code();
  };
  EXPECT_EQ(code_of([](GroupedProductDesc&) {}), Code::kOk);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.ends.shape[0] = 4; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.output.shape[1] = 4; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.a.shape[1] = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.outer = true; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.ends.dtype = DType::kFloat32; }), Code::kUnimplemented);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.b.dtype = DType::kFloat64; }), Code::kUnimplemented);
  EXPECT_EQ(code_of([](GroupedProductDesc& desc) { desc.a.dtype = desc.b.dtype = desc.output.dtype = DType::kBool; }),
            Code::kUnimplemented);
}

}  // namespace
}  // namespace hir::codegen::library
