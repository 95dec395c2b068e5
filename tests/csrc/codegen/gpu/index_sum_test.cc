// Goal: the GPU's sums of rows by index are those of CPUs, bit by bit, which makes them in the order of the rows, too;
// NVRTC compiles the kernels for sm_80 and sm_90 without spilling. Method: their text runs on the CPU (emulator.h), on
// random sums (index_sum_cases.h).
#include "csrc/codegen/gpu/index_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "csrc/codegen/gpu/nvrtc.h"
#include "tests/csrc/codegen/gpu/emulator.h"
#include "tests/csrc/codegen/gpu/index_sum_cases.h"

namespace hir::codegen::gpu {
namespace {

TEST(IndexSumOnGpu, EqualsTheCpu) {
  if (!CanEmulate()) GTEST_SKIP() << "no C++ compiler (c++) on this machine";
  Emulator emulator;
  std::map<std::pair<DType, DType>, int> plans;
  for (const DType dtype : testing::kSummed) {
    for (const DType index : testing::kIndices) plans[{dtype, index}] = emulator.Add(EmitIndexSum(dtype, index));
  }
  const Status built = emulator.Build();
  ASSERT_TRUE(built.ok()) << built.ToString();
  testing::CheckIndexSums([&](const library::IndexSumDesc& desc, const testing::Bytes& updates,
                              const testing::Bytes& indices, testing::Bytes& output) {
    const auto sum = library::Normalize(desc);
    ASSERT_TRUE(sum.ok());
    const IndexSumWorkspace wanted = WorkspaceOf(*sum);
    std::vector<int64_t> workspace(static_cast<size_t>(wanted.bytes) / sizeof(int64_t) + 1, 12345);
    std::memset(workspace.data(), 0xff, static_cast<size_t>(wanted.bytes_set));
    const auto address = [](const void* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)); };
    for (const IndexSumLaunch& launch : LaunchesOf(*sum, address(updates.data()), address(indices.data()),
                                                   address(output.data()), address(workspace.data())))
      emulator.Run(plans.at({sum->dtype, sum->index}), launch.kernel, launch.args, launch.grid);
    EXPECT_EQ(workspace.back(), 12345);
  });
}

TEST(IndexSumOnGpu, Compiles) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status().ToString();
  Compiler compiler({});
  const std::vector<std::string> names(kIndexSumKernels.begin(), kIndexSumKernels.end());
  for (const int architecture : {80, 90}) {
    for (const DType dtype : testing::kSummed) {
      for (const DType index : testing::kIndices) {
        const auto artifact = compiler.Compile(EmitIndexSum(dtype, index), names, architecture);
        ASSERT_TRUE(artifact.ok()) << artifact.status().ToString();
        const auto code = Unpack(artifact->bytes);
        ASSERT_TRUE(code.ok());
        EXPECT_EQ(code->architecture, architecture);
        EXPECT_EQ(code->spill_bytes, (std::vector<int>{0, 0, 0})) << DTypeName(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace hir::codegen::gpu
