// The built-in kernels of GPUs: their text, run on CPUs, against the CPU's kernels; as cubins of real architectures.
#include <gtest/gtest.h>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/device/cuda/cuda_device.h"
#include "tests/host_ir/eval/cuda/builtins_suite.h"
#include "tests/host_ir/eval/cuda/cpu_kernels.h"

namespace hir::host {
namespace {

// With one to three CTAs, whatever the grid: the kernels go through all of it.
Result<RunBuiltin> RunText() {
  return RunBuiltin(
      [](size_t index, const std::vector<const Bytes*>& inputs, std::vector<int64_t> args, int64_t grid, Bytes& out) {
        args.resize(kBuiltinSlots);
        for (size_t i = 0; i < inputs.size(); ++i) args[i] = reinterpret_cast<int64_t>(inputs[i]->data());
        args[inputs.size()] = reinterpret_cast<int64_t>(out.data());
        CpuKernels()[index](args.data(), 1 + grid % 3);
      });
}

INSTANTIATE_TEST_SUITE_P(Text, BuiltinsSuite, testing::Values(BuiltinsCase{"OnACpu", RunText}),
                         [](const auto& info) { return info.param.name; });

TEST(CudaBuiltins, AreCompiledWithoutSpills) {
  const auto version = codegen::gpu::NvrtcVersion();
  if (!version.ok()) GTEST_SKIP() << "SKIPPED: " << version.status().ToString();
  for (const int architecture : {80, 90}) {
    const auto compiled = codegen::gpu::CompileCuda(base::Cat(kBuiltinsIntrinsics, kBuiltinsText), architecture);
    ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
    EXPECT_EQ(compiled->cubin.substr(1, 3), "ELF");
    for (const char* name : kBuiltinFunctions) {
      const auto resources = codegen::gpu::ResourcesOf(compiled->log, name);
      EXPECT_GT(resources.registers, 0) << name;
      EXPECT_EQ(resources.spill_bytes, 0) << name << " for sm_" << architecture;
    }
  }
}

TEST(CudaBuiltins, AreFoundByTheirNames) {
  device::CudaDeviceOptions options;
  options.driver = HIR_FAKE_CUDA;
  const auto device = *device::OpenCudaDevice(options);
  const auto builtins = *MakeCudaBuiltins(*device, CompileForCpu);
  for (std::string_view name : {kCopyKernel, kBinaryKernel, kReduceKernel}) EXPECT_TRUE(builtins->Get(name).ok());
  EXPECT_EQ(builtins->Get("host.scan").status().ToString(), "NOT_FOUND: no kernel host.scan in the cubin");
  const auto failing = [](std::string_view, int) -> Result<std::string> { return Unavailable("no compiler"); };
  EXPECT_EQ(MakeCudaBuiltins(*device, failing).status().ToString(), "UNAVAILABLE: no compiler");
}

}  // namespace
}  // namespace hir::host
