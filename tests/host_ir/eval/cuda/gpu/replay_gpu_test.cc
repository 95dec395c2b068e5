// The evaluator's suite on a GPU of this machine, kernels by NVRTC; skipped, with the reason, where one is missing.
#include "csrc/codegen/gpu/nvrtc.h"
#include "tests/host_ir/eval/cuda/replay_suite.h"

namespace hir::host {
namespace {

Result<std::string> Compile(std::string_view text, int architecture) {
  HIR_ASSIGN(auto compiled, codegen::gpu::CompileCuda(std::string(text), architecture));
  return std::move(compiled.cubin);
}

constexpr std::string_view kScale = R"(
typedef unsigned long long u64;
template <int kSlots> struct Args { u64 slot[kSlots]; };
// As the code generator's kernels: the one after may be made ready, and this goes on behind the one before.
__device__ void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
extern "C" __global__ void scale(const __grid_constant__ Args<4> a) {
  begin();
  if (threadIdx.x != 0) return;
  const double x = (double)((const long long*)a.slot[0])[blockIdx.x];
  ((long long*)a.slot[1])[blockIdx.x] = (long long)(__longlong_as_double((long long)a.slot[3]) * x);
}
)";

constexpr std::string_view kCopies = R"(
extern "C" __global__ void copy(const __grid_constant__ Args<3> a) {
  begin();
  if (threadIdx.x == 0) ((u64*)a.slot[1])[blockIdx.x] = ((const u64*)a.slot[0])[blockIdx.x];
}
extern "C" __global__ void add(const __grid_constant__ Args<4> a) {
  begin();
  if (threadIdx.x != 0) return;
  ((u64*)a.slot[2])[blockIdx.x] = ((const u64*)a.slot[0])[blockIdx.x] + ((const u64*)a.slot[1])[blockIdx.x];
}
extern "C" __global__ void sub(const __grid_constant__ Args<4> a) {
  begin();
  if (threadIdx.x != 0) return;
  ((u64*)a.slot[2])[blockIdx.x] = ((const u64*)a.slot[0])[blockIdx.x] - ((const u64*)a.slot[1])[blockIdx.x];
}
)";

// out[o][i] = salt + o + sum of (j + 2) * in[j][i]; slots: inputs, outputs, count, salt.
std::string MixText(int inputs, int outputs) {
  const std::string slots = base::Cat(inputs + outputs + 2);
  std::string text = base::Cat(
      "extern \"C\" __global__ void mix_", inputs, "_", outputs, "(const __grid_constant__ Args<", slots,
      "> a) {\n  begin();\n  if (threadIdx.x != 0) return;\n", "  u64 sum = a.slot[", inputs + outputs + 1, "];\n");
  for (int j = 0; j < inputs; ++j) {
    base::Append(text, "  sum += ", j + 2, "ull * ((const u64*)a.slot[", j, "])[blockIdx.x];\n");
  }
  for (int o = 0; o < outputs; ++o) {
    base::Append(text, "  ((u64*)a.slot[", inputs + o, "])[blockIdx.x] = sum + ", o, ";\n");
  }
  return text + "}\n";
}

Result<std::string> Code(int architecture) {
  std::string text = base::Cat(kScale, kCopies);
  for (const auto& [inputs, outputs] : {std::pair{1, 1}, {2, 1}, {3, 1}, {1, 2}, {2, 2}})
    text += MixText(inputs, outputs);
  return Compile(text, architecture);
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaEvaluator,
                         testing::Values(ReplayCase{"Gpu", std::string(device::kCudaDriver), Code, {}}),
                         [](const auto& info) { return info.param.name; });

// Needs no GPU.
TEST(ReplayKernels, AreCompiled) {
  const auto cubin = Code(90);
  if (!cubin.ok() && cubin.status().code() == hir::Code::kFailedPrecondition) GTEST_SKIP() << cubin.status().ToString();
  EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
}

}  // namespace
}  // namespace hir::host
