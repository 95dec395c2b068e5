// The built-in kernels on a GPU of this machine, compiled by NVRTC; skipped, with the reason, where one is missing.
#include "csrc/codegen/gpu/nvrtc.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/eval/cuda/cuda_builtins.h"
#include "tests/host_ir/eval/cuda/builtins_suite.h"

namespace hir::host {
namespace {

// The device and what was loaded on it, for one test.
struct OnGpu {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::KernelSource> builtins;
  std::unique_ptr<device::Stream> stream;

  ~OnGpu() {  // Before the device.
    stream.reset();
    builtins.reset();
  }
  void Run(size_t index, const std::vector<const Bytes*>& inputs, std::vector<int64_t> args, int64_t grid, Bytes& out) {
    const std::string_view names[] = {kCopyKernel, kBinaryKernel, kReduceKernel};
    std::vector<std::unique_ptr<device::Allocation>> memory;
    const auto upload = [&](size_t at, const Bytes& bytes) {
      memory.push_back(*device->Allocate(std::ssize(bytes)));
      EXPECT_TRUE(device::CopyFromHost(*device, memory.back()->buffer(), bytes).ok());
      args[at] = reinterpret_cast<int64_t>(memory.back()->buffer().data);
    };
    for (size_t i = 0; i < inputs.size(); ++i) upload(i, *inputs[i]);
    upload(inputs.size(), out);
    stream->Launch(**builtins->Get(names[index]), args, grid);
    const Status end = stream->Synchronize(std::chrono::seconds(20));
    ASSERT_TRUE(end.ok()) << end.ToString();
    EXPECT_TRUE(device::CopyToHost(*device, out, memory.back()->buffer()).ok());
  }
};

Result<RunBuiltin> Open() {
  const auto gpu = std::make_shared<OnGpu>();
  HIR_ASSIGN(gpu->device, device::OpenCudaDevice({}));
  HIR_ASSIGN(gpu->builtins,
             MakeCudaBuiltins(*gpu->device, [](std::string_view text, int architecture) -> Result<std::string> {
               HIR_ASSIGN(auto compiled, codegen::gpu::CompileCuda(std::string(text), architecture));
               return std::move(compiled.cubin);
             }));
  HIR_ASSIGN(gpu->stream, gpu->device->CreateStream());
  return RunBuiltin([gpu](size_t index, const std::vector<const Bytes*>& inputs, std::vector<int64_t> args,
                          int64_t grid, Bytes& out) { gpu->Run(index, inputs, std::move(args), grid, out); });
}

INSTANTIATE_TEST_SUITE_P(Cuda, BuiltinsSuite, testing::Values(BuiltinsCase{"Gpu", Open}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hir::host
