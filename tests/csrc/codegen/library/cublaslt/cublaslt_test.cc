// Goal: what we ask of cuBLASLt is the product that is meant: operands in their places, leading dimensions, batches,
// strides of 0, types, epilogues, alignments, workspaces. Method: a library of the same interface that computes on host
// memory what its descriptors say (fake_cublaslt.cc), on random problems, against the interpreter.
#include "csrc/codegen/library/cublaslt/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/csrc/codegen/library/cublaslt/product_cases.h"

namespace hir::codegen::library {
namespace {

// At a multiple of 64 bytes, which a device promises, and of no more.
class Memory final : public device::Allocation {
 public:
  explicit Memory(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes + 63) / 64 * 64),
        data_(static_cast<std::byte*>(std::aligned_alloc(256, (bytes_ + 128 + 255) / 256 * 256)) + 64) {
    std::memset(data_, 0xa5, bytes_ + 64);
  }
  ~Memory() override { std::free(data_ - 64); }
  device::Buffer buffer() const override { return {data_, static_cast<int64_t>(bytes_)}; }

 private:
  const size_t bytes_;
  std::byte* const data_;
};

// Does everything at once.
class ImmediateStream final : public device::Stream {
 public:
  void Launch(const device::Kernel&, std::span<const int64_t>, int64_t) override { FAIL(); }
  void Copy(device::Buffer dst, device::Buffer src) override {
    ASSERT_EQ(dst.bytes, src.bytes);
    ASSERT_FALSE(device::Overlap(dst, src));
    std::memcpy(dst.data, src.data, static_cast<size_t>(src.bytes));
  }
  void Fill(device::Buffer dst, uint64_t pattern, int pattern_bytes) override {
    ASSERT_EQ(pattern_bytes, 1);
    std::memset(dst.data, static_cast<int>(pattern), static_cast<size_t>(dst.bytes));
  }
  void Record(device::Event&) override {}
  void Wait(const device::Event&) override {}
  void Enqueue(device::AsyncOp&) override { FAIL(); }
  void HostCallback(std::function<Status()> callback) override { status_ = callback(); }
  Status Synchronize(base::Nanos) override { return status_; }
  Status status() const override { return status_; }
  void ClearError() override { status_ = {}; }

 private:
  Status status_;
};

class HostMemoryDevice final : public device::Device {
 public:
  std::string_view name() const override { return "fake:0"; }
  Result<std::unique_ptr<device::Stream>> CreateStream() override {
    return std::unique_ptr<device::Stream>(std::make_unique<ImmediateStream>());
  }
  Result<std::unique_ptr<device::Event>> CreateEvent() override { return Unimplemented("events"); }
  Result<std::unique_ptr<device::Allocation>> Allocate(int64_t bytes) override {
    if (bytes > memory_bytes_max_) return ResourceExhausted("memory_bytes_max");
    ++allocations;
    return std::unique_ptr<device::Allocation>(std::make_unique<Memory>(bytes));
  }
  int64_t allocated_bytes() const override { return 0; }
  int64_t memory_bytes_max() const override { return memory_bytes_max_; }

  int allocations = 0;
  int64_t memory_bytes_max_ = int64_t{1} << 30;
};

int activations = 0;  // Queued by calls, not done by the library.

Status ActivateOnHost(Epilogue epilogue, DType dtype, device::Buffer buffer) {
  const std::string text = base::Cat("fusion @f(%x: ", DTypeName(dtype), "[", buffer.bytes / DTypeBytes(dtype),
                                     "]) {\n  %y = ", EpilogueName(epilogue), "(%x)\n  return %y\n}\n");
  HIR_ASSIGN(const auto graph, ir::Parse(text, fusion::kFusionOps));
  const fusion::HostTensor tensor = {
      dtype, {buffer.bytes / DTypeBytes(dtype)}, Bytes(buffer.data, buffer.data + buffer.bytes)};
  HIR_ASSIGN(const auto outputs, fusion::Interpret(*graph, std::vector{tensor}));
  std::memcpy(buffer.data, outputs[0].bytes.data(), static_cast<size_t>(buffer.bytes));
  return {};
}

CublasLtOptions Options() {
  CublasLtOptions options;
  options.libraries = {"libnone.so.1", HIR_FAKE_CUBLASLT};
  options.native_stream = [](device::Stream& stream) -> void* { return &stream; };
  options.make_current = [](device::Device&) {};
  options.make_activation = [](Epilogue epilogue, DType dtype) -> Result<CublasLtOptions::Activation> {
    return CublasLtOptions::Activation([=](device::Buffer buffer, device::Stream&) {
      ++activations;
      return ActivateOnHost(epilogue, dtype, buffer);
    });
  };
  return options;
}

class CublasLtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = CublasLt::Open(device_, Options());
    if (opened.status().code() == Code::kUnimplemented) GTEST_SKIP() << opened.status().ToString();
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    library_ = std::move(*opened);
    void* const fake = dlopen(HIR_FAKE_CUBLASLT, RTLD_NOW);
    heuristics_ = reinterpret_cast<int (*)()>(dlsym(fake, "FakeHeuristics"));
    products_ = reinterpret_cast<int (*)()>(dlsym(fake, "FakeProducts"));
    compute_type_ = reinterpret_cast<int (*)()>(dlsym(fake, "FakeComputeType"));
    heuristics_();
    products_();
  }

  // With operands that begin `offset` bytes behind an aligned address.
  Result<Bytes> Run(const ProductDesc& desc, const std::vector<Bytes>& inputs, int64_t bytes, int64_t offset = 0) {
    HIR_ASSIGN(const auto call, library_->Make(desc));
    return RunCall(*call, inputs, bytes, offset);
  }

  // `elements_bytes`: of the result's elements, where there is more between them.
  Result<Bytes> RunCall(DeviceCall& call, const std::vector<Bytes>& inputs, int64_t bytes, int64_t offset,
                        int64_t elements_bytes = -1) {
    std::vector<std::unique_ptr<Memory>> memory;
    std::vector<device::Buffer> buffers;
    const auto add = [&](int64_t size) {
      memory.push_back(std::make_unique<Memory>(size + offset));
      buffers.push_back({memory.back()->buffer().data + offset, size});
    };
    for (const Bytes& input : inputs) {
      add(static_cast<int64_t>(input.size()));
      if (!input.empty()) std::memcpy(buffers.back().data, input.data(), input.size());
    }
    add(bytes);
    const device::Buffer output = buffers.back();
    buffers.pop_back();
    const device::Buffer written = output.Slice(0, elements_bytes < 0 ? bytes : elements_bytes);
    call.Queue(buffers, {&written, 1}, stream_);
    HIR_TRY(stream_.Synchronize({}));
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!std::equal(inputs[i].begin(), inputs[i].end(), buffers[i].data)) return Internal("an operand was written");
    }
    return Bytes(output.data, output.data + bytes);
  }

  Runner runner(int64_t offset = 0) {
    return [this, offset](const ProductDesc& desc, const std::vector<Bytes>& inputs, int64_t bytes) {
      return Run(desc, inputs, bytes, offset);
    };
  }

  HostMemoryDevice device_;
  ImmediateStream stream_;
  std::unique_ptr<CublasLt> library_;
  int (*heuristics_)() = nullptr;
  int (*products_)() = nullptr;
  int (*compute_type_)() = nullptr;
};

TEST_F(CublasLtTest, RandomProducts) {
  base::Prng prng(1);
  for (int i = 0; i < 4000 && !HasFailure(); ++i) {
    const Case c = RandomCase(prng, 24);
    CheckCase(c, prng, runner(prng.OneIn(3) ? DTypeBytes(c.dtype) * prng.Between(1, 9) : 0));
  }
}

TEST_F(CublasLtTest, ABatchIsOneProductAndSharedRowsAreNone) {
  base::Prng prng(2);
  const auto count = [&](std::vector<Operand> operands, const char* op = "matmul") {
    products_();
    CheckCase({op, DType::kBFloat16, std::move(operands)}, prng, runner());
    return products_();
  };
  EXPECT_EQ(count({{{5, 3, 4, 6}}, {{5, 3, 6, 7}}}), 1);
  EXPECT_EQ(count({{{5, 3, 4, 6}}, {{6, 7}}}), 1);  // 60 rows.
  EXPECT_EQ(count({{{2, 5, 6}}, {{7, 6}}, {{7}}}, "linear"), 1);
  EXPECT_EQ(count({{{5, 1, 4, 6}}, {{3, 6, 7}}}), 3);
  EXPECT_EQ(count({{{3, 0}}, {{0, 7}}}), 0);
}

TEST_F(CublasLtTest, AlgorithmsAreRemembered) {
  base::Prng prng(3);
  const Case c = {"linear", DType::kFloat16, {{{40, 8}}, {{24, 8}}, {{24}}}};
  for (int i = 0; i < 3; ++i) CheckCase(c, prng, runner());
  EXPECT_EQ(heuristics_(), 1);
  CheckCase(c, prng, runner(16));
  CheckCase(c, prng, runner(2));
  CheckCase(c, prng, runner(2));
  EXPECT_EQ(heuristics_(), 2);  // One for each alignment.
}

TEST_F(CublasLtTest, WorkspacesAreAStreamsAndMadeBeforeItRuns) {
  const Tensor a = {DType::kFloat32, {8, 5}, {5, 1}}, b = {DType::kFloat32, {5, 8}, {8, 1}},
               c = {DType::kFloat32, {8, 8}, {8, 1}};
  auto first = library_->Make({"matmul", {a, b}, c});
  auto second = library_->Make({"matmul", {a, b}, c});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(device_.allocations, 1);  // k is odd: the fake asks for a workspace.
  const std::vector<Bytes> inputs = {Bytes(160), Bytes(160)};
  for (const auto& call : {&*first, &*second}) EXPECT_TRUE(RunCall(**call, inputs, 256, 0).ok());
  EXPECT_EQ(device_.allocations, 1);
}

TEST_F(CublasLtTest, Tf32OnlyWhenAsked) {
  base::Prng prng(4);
  Case c = {"matmul", DType::kFloat32, {{{4, 6}}, {{6, 8}}}};
  CheckCase(c, prng, runner());
  EXPECT_EQ(compute_type_(), CUBLAS_COMPUTE_32F);
  c.tf32 = true;
  CheckCase(c, prng, runner(), 1e3);
  EXPECT_EQ(compute_type_(), CUBLAS_COMPUTE_32F_FAST_TF32);
  c.tf32 = false;  // The algorithm of one is not taken for the other.
  CheckCase(c, prng, runner());
  EXPECT_EQ(compute_type_(), CUBLAS_COMPUTE_32F);
}

TEST_F(CublasLtTest, EpiloguesAreTheLibrarysWhereItHasThem) {
  base::Prng prng(5);
  const auto queued = [&](DType dtype, Epilogue epilogue, int64_t columns) {
    activations = 0;
    CheckCase(
        {.op = "linear", .dtype = dtype, .operands = {{{6, 8}}, {{columns, 8}}, {{columns}}}, .epilogue = epilogue},
        prng, runner());
    return activations;
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    EXPECT_EQ(queued(dtype, Epilogue::kRelu, 8), 0);
    EXPECT_EQ(queued(dtype, Epilogue::kTanhGelu, 8), dtype == DType::kFloat32 ? 1 : 0);
    EXPECT_EQ(queued(dtype, Epilogue::kGelu, 8), 1);  // It has the one by tanh.
    EXPECT_EQ(queued(dtype, Epilogue::kRelu, 10),
              1);                                      // The fake has no algorithm with it for these columns,
    EXPECT_EQ(queued(dtype, Epilogue::kRelu, 16), 0);  // none with a bias,
    EXPECT_EQ(queued(dtype, Epilogue::kRelu, 38), 1);  // and none with either.
  }
  EXPECT_EQ(queued(DType::kFloat64, Epilogue::kRelu, 8), 1);
}

TEST_F(CublasLtTest, WithoutActivationsOtherEpiloguesAreRefused) {
  CublasLtOptions options = Options();
  options.make_activation = nullptr;
  auto opened = CublasLt::Open(device_, options);
  ASSERT_TRUE(opened.ok());
  const Tensor x = {DType::kFloat32, {8, 8}, {8, 1}};
  ProductDesc desc = {.op = "matmul", .inputs = {x, x}, .output = x, .epilogue = Epilogue::kGelu};
  EXPECT_EQ((*opened)->Make(desc).status().ToString(),
            "UNIMPLEMENTED: cuBLASLt has no algorithm for f32 [8, 8] ld 8 batch 0 x [8, 8] ld 8 "
            "batch 0 -> [8, 8] ld 8 "
            "batch 0, 1 batches, gelu at multiples of 64 bytes");
  desc.epilogue = Epilogue::kRelu;
  EXPECT_TRUE((*opened)->Make(desc).ok());
}

TEST_F(CublasLtTest, RefusesByName) {
  const auto status = [&](DType dtype, int64_t m, int64_t n) {
    const Tensor a = {dtype, {m, 8}, {8, 1}}, b = {dtype, {8, n}, {n, 1}}, c = {dtype, {m, n}, {n, 1}};
    return library_->Make({"matmul", {a, b}, c}).status().ToString();
  };
  EXPECT_EQ(status(DType::kInt64, 2, 2),
            "UNIMPLEMENTED: matmul of i64 on a GPU: cuBLASLt multiplies f16, bf16, f32 and f64; cast "
            "the operands");
  EXPECT_EQ(status(DType::kFloat32, 77, 77),
            "UNIMPLEMENTED: cuBLASLt has no algorithm for f32 [77, 8] ld 77 batch 0 x [8, 77] ld 8 "
            "batch 0 -> [77, 77] ld 77 "
            "batch 0, 1 batches at multiples of 64 bytes");
  const Tensor odd = {DType::kFloat32, {4, 4}, {8, 2}}, out = {DType::kFloat32, {4, 4}, {4, 1}};
  EXPECT_EQ(library_->Make({"matmul", {odd, out}, out}).status().ToString(),
            "UNIMPLEMENTED: matmul of a matrix [4, 4] with strides [2, 8]: cuBLASLt wants one of its "
            "axes contiguous");
}

// A result that is part of each row of a larger one. What the library does not do alone is refused: biases and
// epilogues of ours go through the bytes from end to end.
TEST_F(CublasLtTest, BetweenTheRowsOfAResultNothingIsWritten) {
  constexpr int64_t kRows = 6, kGap = 2;
  int done = 0, refused = 0;
  for (const int64_t k : {int64_t{8}, int64_t{0}}) {
    for (const int64_t n : {8, 10, 16, 38}) {
      for (const Epilogue epilogue : {Epilogue::kNone, Epilogue::kRelu, Epilogue::kGelu}) {
        for (const bool bias : {false, true}) {
          SCOPED_TRACE(base::Cat(k, " ", n, " ", EpilogueName(epilogue), " ", bias));
          ProductDesc desc = {"linear", {{DType::kFloat32, {kRows, k}, {k, 1}}, {DType::kFloat32, {n, k}, {k, 1}}}};
          if (bias) desc.inputs.push_back({DType::kFloat32, {n}, {1}});
          desc.epilogue = epilogue;
          desc.output = {DType::kFloat32, {kRows, n}, {n, 1}};
          std::vector<Bytes> inputs;
          for (const Tensor& input : desc.inputs) {
            std::vector<float> ones(static_cast<size_t>(input.shape[0] * (input.shape.size() > 1 ? k : 1)), 1.0F);
            inputs.emplace_back(ones.size() * 4);
            if (!ones.empty()) std::memcpy(inputs.back().data(), ones.data(), ones.size() * 4);
          }
          const Result<Bytes> want = Run(desc, inputs, kRows * n * 4);
          ASSERT_TRUE(want.ok()) << want.status().ToString();
          desc.output.strides = {n + kGap, 1};
          const auto call = library_->Make(desc);
          if (!call.ok()) {
            EXPECT_EQ(call.status().code(), Code::kUnimplemented) << call.status().ToString();
            ++refused;
            continue;
          }
          ++done;
          const Result<Bytes> got = RunCall(**call, inputs, kRows * (n + kGap) * 4, 0, kRows * n * 4);
          ASSERT_TRUE(got.ok()) << got.status().ToString();
          for (int64_t row = 0; row < kRows; ++row) {
            const auto* const begin = got->data() + row * (n + kGap) * 4;
            EXPECT_EQ(std::memcmp(begin, want->data() + row * n * 4, static_cast<size_t>(n) * 4), 0) << row;
            for (int64_t i = n * 4; i < (n + kGap) * 4; ++i) ASSERT_EQ(begin[i], std::byte{0xa5}) << row;
          }
        }
      }
    }
  }
  EXPECT_GT(done, 6);
  EXPECT_GT(refused, 10);
}

TEST_F(CublasLtTest, NoMemoryForAWorkspaceIsSaidWhenACallIsMade) {
  device_.memory_bytes_max_ = 100;
  const Tensor a = {DType::kFloat32, {8, 5}, {5, 1}}, b = {DType::kFloat32, {5, 8}, {8, 1}},
               c = {DType::kFloat32, {8, 8}, {8, 1}};
  EXPECT_EQ(library_->Make({"matmul", {a, b}, c}).status().code(), Code::kResourceExhausted);
}

TEST(CublasLtOpen, SaysWhatItTried) {
  HostMemoryDevice device;
  CublasLtOptions options = Options();
  options.libraries = {"libnone.so.1", "libnone.so.2"};
  const Status status = CublasLt::Open(device, options).status();
  if (status.code() == Code::kUnimplemented) GTEST_SKIP() << status.ToString();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find("libnone.so.1"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("libnone.so.2"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("HOSTIR_CUBLASLT"), std::string::npos) << status.ToString();
}

// Without a GPU it does not come up, which is known only once all its functions were found.
TEST(CublasLtOpen, TheToolkitsLibraryHasEveryFunction) {
  HostMemoryDevice device;
  CublasLtOptions options = Options();
  options.libraries = CublasLtOptions().libraries;
  const Status status = CublasLt::Open(device, options).status();
  if (status.code() == Code::kUnimplemented || status.message().find("cannot be loaded") != std::string::npos)
    GTEST_SKIP() << status.ToString();
  EXPECT_TRUE(status.ok() || status.message().find("does not come up on fake:0") != std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace hir::codegen::library
