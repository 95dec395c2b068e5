// Goal: the GPU's products of groups of rows are right for every element type, stride and order of ends; NVRTC compiles
// the kernels for sm_80 and sm_90 without spilling. Method: their text runs on the CPU (emulator.h), on random products
// (grouped_product_cases.h).
#include "csrc/codegen/gpu/grouped_product.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "csrc/codegen/gpu/nvrtc.h"
#include "tests/csrc/codegen/gpu/emulator.h"
#include "tests/csrc/codegen/gpu/grouped_product_cases.h"

namespace hir::codegen::gpu {
namespace {

TEST(GroupedProductOnGpu, IsRight) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  Emulator emulator;
  std::map<std::pair<DType, DType>, int> plans;
  for (const DType dtype : testing::kSummed) {
    for (const DType index : testing::kIndices) plans[{dtype, index}] = emulator.Add(EmitGroupedProduct(dtype, index));
  }
  const Status built = emulator.Build();
  ASSERT_TRUE(built.ok()) << built.ToString();
  testing::CheckGroupedProducts(
      60, 150, 70,
      [&](const library::GroupedProductDesc& desc, const testing::Bytes& a, const testing::Bytes& b,
          const testing::Bytes& ends, testing::Bytes& output) {
        const auto product = library::Normalize(desc);
        ASSERT_TRUE(product.ok()) << product.status().ToString();
        const auto address = [](const auto& bytes) {
          return static_cast<int64_t>(reinterpret_cast<uintptr_t>(bytes.data()));
        };
        const GroupedProductLaunch launch = LaunchOf(*product, address(a), address(b), address(ends), address(output));
        if (launch.grid > 0)
          emulator.Run(plans.at({product->dtype, product->index}), launch.kernel, launch.args, launch.grid);
      });
}

TEST(GroupedProductOnGpu, Compiles) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status().ToString();
  Compiler compiler({});
  const std::vector<std::string> names(kGroupedProductKernels.begin(), kGroupedProductKernels.end());
  for (const int architecture : {80, 90}) {
    for (const DType dtype : testing::kSummed) {
      for (const DType index : testing::kIndices) {
        const auto artifact = compiler.Compile(EmitGroupedProduct(dtype, index), names, architecture);
        ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
        const auto code = Unpack(artifact->bytes);
        ASSERT_TRUE(code.ok());
        EXPECT_EQ(code->architecture, architecture);
        EXPECT_EQ(code->spill_bytes, (std::vector<int>{0, 0})) << DTypeName(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace hir::codegen::gpu
