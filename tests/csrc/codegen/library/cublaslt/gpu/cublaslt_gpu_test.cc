// Goal: products on a GPU are right, whatever their shapes, strides, types and addresses. Method: random problems, and
// some with long sums or many rows, by the real cuBLASLt against the interpreter.
#include <memory>

#include "csrc/codegen/library/cublaslt/cublaslt.h"
#include "csrc/device/cuda/cuda_device.h"
#include "tests/csrc/codegen/library/cublaslt/product_cases.h"

namespace hir::codegen::library {
namespace {

constexpr base::Nanos kTimeout = base::Nanos(std::chrono::seconds(30));

class CublasLtOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = device::OpenCudaDevice({});
    if (!device.ok()) GTEST_SKIP() << "no GPU to test on: " << device.status().ToString();
    device_ = std::move(*device);
    auto stream = device_->CreateStream();
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    stream_ = std::move(*stream);
    Open({});
  }

  void Open(CublasLtOptions options) {
    options.native_stream = &device::NativeStream;
    options.make_current = &device::MakeCurrent;
    auto opened = CublasLt::Open(*device_, options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    library_ = std::move(*opened);
  }

  // With operands that begin `offset` bytes behind an aligned address.
  Runner runner(int64_t offset = 0) {
    return [this, offset](const Desc& desc, const std::vector<Bytes>& inputs,
                          int64_t bytes) -> Result<Bytes> {
      std::vector<std::unique_ptr<device::Allocation>> memory;
      std::vector<device::Buffer> buffers;
      const auto add = [&](int64_t size) -> Status {
        HIR_ASSIGN(memory.emplace_back(), device_->Allocate(size + offset));
        buffers.push_back(memory.back()->buffer().Slice(offset, size));
        return {};
      };
      for (const Bytes& input : inputs) {
        HIR_TRY(add(static_cast<int64_t>(input.size())));
        HIR_TRY(device::CopyFromHost(*device_, buffers.back(), input));
      }
      HIR_TRY(add(bytes));
      const device::Buffer output = buffers.back();
      buffers.pop_back();
      Bytes result(static_cast<size_t>(bytes), std::byte{0xa5});
      HIR_TRY(device::CopyFromHost(*device_, output, result));
      HIR_ASSIGN(const auto call, library_->Make(desc));
      call->Queue(buffers, output, *stream_);
      HIR_TRY(stream_->Synchronize(kTimeout));
      HIR_TRY(device::CopyToHost(*device_, result, output));
      return result;
    };
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<CublasLt> library_;
};

TEST_F(CublasLtOnGpu, RandomProducts) {
  base::Prng prng(1);
  for (int i = 0; i < 400 && !HasFailure(); ++i) {
    const Case c = RandomCase(prng, i % 4 == 0 ? 100 : 24);
    CheckCase(c, prng, runner(prng.OneIn(3) ? DTypeBytes(c.dtype) * prng.Between(1, 9) : 0));
  }
}

TEST_F(CublasLtOnGpu, LongSumsAndLargeResults) {
  base::Prng prng(2);
  for (const DType dtype : kFloats) {
    CheckCase({"matmul", dtype, {{{64, 8192}}, {{8192, 32}}}}, prng, runner());
    CheckCase({"linear", dtype, {{{2, 160, 64}}, {{512, 64}}, {{512}}}}, prng, runner());
    CheckCase({"matmul", dtype, {{{300, 9, 16}}, {{300, 16, 8}}}}, prng, runner());
  }
}

// TF32 has 10 bits of mantissa: wrong by far more than float32, right by its own measure.
TEST_F(CublasLtOnGpu, Tf32OnlyWhenAsked) {
  base::Prng prng(3);
  const Case c = {"matmul", DType::kFloat32, {{{256, 128}}, {{128, 256}}}};
  CheckCase(c, prng, runner());
  Open({.tf32 = true});
  CheckCase(c, prng, runner(), 1e3);
}

TEST_F(CublasLtOnGpu, SaysItsVersion) {
  const Tensor x = {DType::kFloat32, {4, 4}, {4, 1}};
  const auto call = library_->Make({"matmul", {x, x}, x});
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ((*call)->implementation().substr(0, 9), "cublaslt ");
}

}  // namespace
}  // namespace hir::codegen::library
