// Goal: attention and its gradients by cuDNN are right, whatever their sizes, strides, leading axes and diagonals.
// Method: random calls of the real library beside sums in double; gradients are the same in every run.
#include <gtest/gtest.h>

#include "csrc/codegen/library/cudnn/cudnn.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/strided_copies.h"
#include "tests/csrc/codegen/library/flash/flash_cases.h"

namespace hir::codegen::library {
namespace {

using namespace testing;

class CudnnOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = device::OpenCudaDevice({});
    if (!device.ok()) GTEST_SKIP() << "no GPU to test on: " << device.status().ToString();
    device_ = std::move(*device);
    stream_ = *device_->CreateStream();
    copies_ = std::make_unique<rank::StridedCopies>(*device_);
    CudnnOptions options;
    options.native_stream = &device::NativeStream;
    options.make_current = &device::MakeCurrent;
    options.copy = [this](device::Buffer to, std::span<const int64_t> to_strides, device::Buffer from,
                          std::span<const int64_t> from_strides, std::span<const int64_t> shape, int64_t bytes,
                          device::Stream& stream) {
      return copies_->Queue(to, to_strides, from, from_strides, shape, bytes, stream);
    };
    auto opened = Cudnn::Open(*device_, options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    library_ = std::move(*opened);
  }

  Where where() { return {*device_, *stream_, &device::CopyFromHost, &device::CopyToHost}; }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<rank::StridedCopies> copies_;
  std::unique_ptr<Cudnn> library_;
  std::unique_ptr<device::Stream> stream_;
};

TEST_F(CudnnOnGpu, RandomCalls) {
  // Weights are rounded to the operands' type before they are multiplied.
  CheckFlash(
      where(), [this](const AttentionDesc& desc) { return library_->Make(desc); }, 150, 0x1p-7);
}

TEST_F(CudnnOnGpu, GradientsAreTheSameInEveryRun) {
  base::Prng prng(1);
  Case c = {.dtype = DType::kBFloat16, .leading = {2, 8}, .m = 1024, .n = 1024, .d = 64, .e = 64, .scale = 0.125};
  std::vector<Data> inputs;
  const std::vector<Shape> shapes = c.InputShapes();
  for (size_t i = 0; i < 6; ++i) {
    inputs.push_back(MakeData(i == 4 ? DType::kFloat32 : c.dtype, c.Full(shapes[i])));
    Fill(inputs.back(), [&] { return i == 4 ? 8.0 : 2 * prng.Unit() - 1; });
  }
  const std::vector<What> whats = {What::kQ, What::kK, What::kV};
  std::vector<Data> first;
  for (int run = 0; run < 5; ++run) {
    std::vector<Data> outputs;
    for (const What what : whats) outputs.push_back(MakeData(c.dtype, c.ShapeOf(what)));
    auto call = library_->Make(DescOf(c, inputs, whats, true, outputs));
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    ASSERT_TRUE(RunOn(where(), **call, inputs, outputs, 0).ok());
    if (run == 0) first = outputs;
    for (size_t i = 0; i < whats.size(); ++i) EXPECT_TRUE(outputs[i].bytes == first[i].bytes) << "run " << run;
  }
}

}  // namespace
}  // namespace hir::codegen::library
