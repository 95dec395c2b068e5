// Goal: products on a GPU are right, whatever their shapes, strides, types and addresses. Method: random problems, and
// some with long sums or many rows, by the real cuBLASLt against the interpreter.
#include <cmath>
#include <cstdio>
#include <memory>

#include "csrc/codegen/library/cublaslt/cublaslt.h"
#include "csrc/device/cuda/cuda_device.h"
#include "host_ir/rank/cuda/activations.h"
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
    options.make_activation = [this](Epilogue epilogue, DType dtype) {
      ++activations_;
      return rank::MakeActivation(epilogue, dtype, *device_);
    };
    auto opened = CublasLt::Open(*device_, options);
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    library_ = std::move(*opened);
  }

  // With operands that begin `offset` bytes behind an aligned address.
  Runner runner(int64_t offset = 0) {
    return [this, offset](const ProductDesc& desc, const std::vector<Bytes>& inputs, int64_t bytes) -> Result<Bytes> {
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
      call->Queue(buffers, {&output, 1}, *stream_);
      HIR_TRY(stream_->Synchronize(kTimeout));
      HIR_TRY(device::CopyToHost(*device_, result, output));
      return result;
    };
  }

  static std::vector<double> Random(size_t count) {
    base::Prng prng(4);
    std::vector<double> values(count);
    for (double& value : values) value = RoundTo(DType::kFloat32, 2 * prng.Unit() - 1);
    return values;
  }

  // The result of one call on `inputs`.
  std::vector<double> Products(const ProductDesc& desc, const std::vector<std::vector<double>>& inputs) {
    const auto tensor = [](const Tensor& like, std::span<const double> values) {
      return fusion::TensorOf(like.dtype, like.shape, values);
    };
    std::vector<Bytes> bytes;
    for (size_t i = 0; i < inputs.size(); ++i) bytes.push_back(tensor(desc.inputs[i], inputs[i]).bytes);
    int64_t elements = 1;
    for (const int64_t extent : desc.output.shape) elements *= extent;
    fusion::HostTensor result = {desc.output.dtype, desc.output.shape, {}};
    auto ran = runner()(desc, bytes, elements * DTypeBytes(desc.output.dtype));
    EXPECT_TRUE(ran.ok()) << ran.status().ToString();
    if (!ran.ok()) return std::vector<double>(static_cast<size_t>(elements));
    result.bytes = std::move(*ran);
    return fusion::ToDoubles(result);
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<CublasLt> library_;
  int activations_ = 0;  // Calls whose epilogue is a kernel of ours.
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
  const Tensor a = {DType::kFloat32, {256, 128}, {128, 1}}, b = {DType::kFloat32, {128, 256}, {256, 1}},
               c = {DType::kFloat32, {256, 256}, {256, 1}};
  const std::vector<double> x = Random(256 * 128), y = Random(128 * 256);
  const auto error = [&](bool tf32) {
    const std::vector<double> got = Products({.op = "matmul", .inputs = {a, b}, .output = c, .tf32 = tf32}, {x, y});
    double worst = 0;
    for (int64_t i = 0; i < 256; ++i) {
      for (int64_t j = 0; j < 256; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < 128; ++k)
          sum += x[static_cast<size_t>(i * 128 + k)] * y[static_cast<size_t>(k * 256 + j)];
        worst = std::max(worst, std::fabs(got[static_cast<size_t>(i * 256 + j)] - sum));
      }
    }
    return worst;
  };
  const double full = error(false), tf32 = error(true);
  std::printf("largest error of 128 products: %.2e in f32, %.2e in TF32\n", full, tf32);
  EXPECT_LT(full, 2e-5);
  EXPECT_GT(tf32, 10 * full);
  EXPECT_LT(tf32, 2e-2);
}

// What is the library's, and how exact it is: its formulas on sums that are exact.
TEST_F(CublasLtOnGpu, EpiloguesAreOurFormulas) {
  constexpr int64_t kSize = 128;
  std::vector<double> one(kSize * kSize, 0);
  for (int64_t i = 0; i < kSize; ++i) one[static_cast<size_t>(i * kSize + i)] = 1;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    std::vector<double> x(kSize * kSize);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = RoundTo(dtype, (static_cast<double>(i) / static_cast<double>(x.size()) - 0.5) * 16);
    for (const Epilogue epilogue : {Epilogue::kRelu, Epilogue::kTanhGelu}) {
      for (const bool bias : {false, true}) {
        SCOPED_TRACE(base::Cat(DTypeName(dtype), " ", EpilogueName(epilogue), bias ? ", bias" : ""));
        const Tensor square = {dtype, {kSize, kSize}, {kSize, 1}}, row = {dtype, {kSize}, {1}};
        ProductDesc desc = {.op = "matmul", .inputs = {square, square}, .output = square, .epilogue = epilogue};
        std::vector<std::vector<double>> inputs = {x, one};
        if (bias) {
          desc.inputs.push_back(row);
          inputs.emplace_back(kSize, 0.5);
        }
        activations_ = 0;
        const std::vector<double> got = Products(desc, inputs);
        double worst = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double sum = x[i] + (bias ? 0.5 : 0);
          const double want =
              epilogue == Epilogue::kRelu
                  ? std::max(sum, 0.0)
                  : 0.5 * sum * (1 + std::tanh(std::sqrt(2 / M_PI) * (sum + 0.044715 * sum * sum * sum)));
          worst = std::max(worst, std::fabs(got[i] - want) / (1 + std::fabs(sum)));
        }
        std::printf("%-5s %-9s %s: %s, error %.2e of (1 + |sum|)\n", std::string(DTypeName(dtype)).c_str(),
                    std::string(EpilogueName(epilogue)).c_str(), bias ? "bias" : "    ",
                    activations_ == 0 ? "the library's" : "a kernel of ours", worst);
        EXPECT_EQ(activations_, HasEpilogue(Provider::kCublasLt, epilogue, dtype) ? 0 : 1);
        EXPECT_LT(worst, dtype == DType::kFloat32 ? 2e-6 : dtype == DType::kFloat16 ? 1e-3 : 8e-3);
      }
    }
  }
}

TEST_F(CublasLtOnGpu, EpiloguesKeepNaN) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    for (const Epilogue epilogue : {Epilogue::kRelu, Epilogue::kTanhGelu}) {
      const Tensor square = {dtype, {64, 64}, {64, 1}};
      std::vector<double> x(4096, 1);
      x[3 * 64 + 5] = NAN;
      const std::vector<double> got =
          Products({.op = "matmul", .inputs = {square, square}, .output = square, .epilogue = epilogue},
                   {x, std::vector<double>(4096, 1)});
      EXPECT_TRUE(std::isnan(got[3 * 64 + 5]))
          << DTypeName(dtype) << " " << EpilogueName(epilogue) << " of NaN is " << got[3 * 64 + 5];
    }
  }
}

TEST_F(CublasLtOnGpu, SaysItsVersion) {
  const Tensor x = {DType::kFloat32, {4, 4}, {4, 1}};
  const auto call = library_->Make({"matmul", {x, x}, x});
  ASSERT_TRUE(call.ok()) << call.status().ToString();
  EXPECT_EQ((*call)->implementation().substr(0, 9), "cublaslt ");
}

}  // namespace
}  // namespace hir::codegen::library
