// The evaluator on a GPU (simulated by a driver of threads): it computes what it computes on a CPU, and runs that
// repeat are captured, patched and replayed.
#include <gtest/gtest.h>

#include "csrc/device/cuda/cuda_device.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "tests/host_ir/eval/cuda/cpu_kernels.h"
#include "tests/host_ir/random_program.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {
namespace {

using device::Fake;

constexpr base::Nanos kLong = std::chrono::seconds(60);

// The "mix" kernels of simulated_ranks.h, as kernels of the fake: all of the grid at once.
template <int kInputs, int kOutputs>
void Mix(const int64_t* slots, int64_t ctas) {
  for (int64_t i = 0; i < ctas; ++i) {
    uint64_t sum = static_cast<uint64_t>(slots[kInputs + kOutputs + 1]);
    for (int j = 0; j < kInputs; ++j) {
      sum += static_cast<uint64_t>(j + 2) * reinterpret_cast<const uint64_t*>(slots[j])[i];
    }
    for (int o = 0; o < kOutputs; ++o) {
      reinterpret_cast<uint64_t*>(slots[kInputs + o])[i] = sum + static_cast<uint64_t>(o);
    }
  }
}
// in, out, count, factor (the bits of a double): out = factor * in.
void Scale(const int64_t* slots, int64_t ctas) {
  double factor = 0;
  std::memcpy(&factor, &slots[3], sizeof(factor));
  for (int64_t i = 0; i < ctas; ++i) {
    reinterpret_cast<int64_t*>(slots[1])[i] = static_cast<int64_t>(
        factor * static_cast<double>(reinterpret_cast<const int64_t*>(slots[0])[i]));
  }
}

std::unique_ptr<HostProgram> LoadFinished(std::string_view text,
                                          std::string_view passes = kFinish) {
  auto graph = ir::Parse(text, kHostOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  if (!graph.ok()) return nullptr;
  const Status finished = RunHostPasses(**graph, passes);
  EXPECT_TRUE(finished.ok()) << finished.ToString() << "\n" << text;
  auto program = HostProgram::Load(std::move(*graph));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return program.ok() ? std::move(*program) : nullptr;
}

// A library call that works behind the streams' back, as those of vendors do, and by them too: out = in + in.
class DoublingCall final : public LibraryCall {
 public:
  explicit DoublingCall(const device::Kernel& mix) : mix_(mix) {}
  void Queue(std::span<const device::Buffer> inputs, device::Buffer output,
             device::Stream& stream) override {
    const int64_t args[] = {reinterpret_cast<int64_t>(inputs[0].data),
                            reinterpret_cast<int64_t>(output.data), 0, 0};
    stream.Launch(mix_, args, output.bytes / 8);
  }

 private:
  const device::Kernel& mix_;
};
class Doubling final : public LibrarySource {
 public:
  explicit Doubling(const device::Kernel& mix) : mix_(mix) {}
  Result<std::unique_ptr<LibraryCall>> Make(const LibraryDesc&) override {
    return std::unique_ptr<LibraryCall>(std::make_unique<DoublingCall>(mix_));
  }

 private:
  const device::Kernel& mix_;
};

// One rank with a fake GPU.
class CudaEvaluator : public testing::Test {
 protected:
  using Tensors = std::vector<std::unique_ptr<device::Allocation>>;

  void SetUp() override {
    Fake().Reset();
    device::CudaDeviceOptions options;
    options.driver = HIR_FAKE_CUDA;
    device_ = *device::OpenCudaDevice(options);
    builtins_ = *MakeCudaBuiltins(*device_, CompileForCpu);
    const std::vector<device::FakeKernel> fakes = {device::MakeFakeKernel("mix_1_1", Mix<1, 1>, 4),
                                                   device::MakeFakeKernel("mix_2_1", Mix<2, 1>, 5),
                                                   device::MakeFakeKernel("mix_3_1", Mix<3, 1>, 6),
                                                   device::MakeFakeKernel("mix_1_2", Mix<1, 2>, 5),
                                                   device::MakeFakeKernel("mix_2_2", Mix<2, 2>, 6),
                                                   device::MakeFakeKernel("scale", Scale, 4)};
    std::vector<device::CudaKernelInfo> infos;
    for (const auto& fake : fakes) {
      infos.push_back(
          {.name = fake.name, .threads = 32, .num_slots = static_cast<int>(fake.num_slots)});
    }
    kernels_ = *device::LoadCubin(*device_, device::FakeCubin(fakes), infos);
    library_ = std::make_unique<Doubling>(**kernels_->Get("mix_1_1"));
    for (int i = 0; i < 4; ++i) {
      streams_.push_back(*device_->CreateStream());
      pointers_.push_back(streams_.back().get());
    }
    pool_ = std::make_unique<Pool>(*device_);
    options_ = {.device = device_.get(),
                .streams = pointers_,
                .kernels = kernels_.get(),
                .builtins = builtins_.get(),
                .libraries = library_.get(),
                .pool = pool_.get()};
  }
  void TearDown() override {
    evaluator_.reset();
    binding_ = Binding();
    pool_.reset();
    streams_.clear();
    builtins_.reset();
    kernels_.reset();
    page_.reset();
    device_.reset();
    EXPECT_EQ(Fake().live_objects, 0);
  }

  void Prepare(const HostProgram& program) {
    auto prepared = Evaluator::Prepare(program, options_);
    ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
    evaluator_ = *std::move(prepared);
  }
  Tensors Upload(const std::vector<Values>& params) {
    Tensors tensors;
    for (const Values& values : params) {
      tensors.push_back(*device_->Allocate(std::ssize(values) * 8));
      EXPECT_TRUE(
          device::CopyFromHost(*device_, tensors.back()->buffer(), std::as_bytes(std::span(values)))
              .ok());
    }
    return tensors;
  }
  Values Download(const device::Allocation& tensor) {
    Values values(static_cast<size_t>(tensor.buffer().bytes / 8));
    EXPECT_TRUE(
        device::CopyToHost(*device_, std::as_writable_bytes(std::span(values)), tensor.buffer())
            .ok());
    return values;
  }
  void Bind(const Tensors& tensors, std::vector<int64_t> symbols, double scalar = 0,
            bool has_scalar = false) {
    std::vector<Argument> arguments;
    for (const auto& tensor : tensors) arguments.push_back({.buffer = tensor->buffer()});
    if (has_scalar) arguments.push_back({.scalar_bits = std::bit_cast<int64_t>(scalar)});
    const Status bound = evaluator_->Bind(arguments, symbols, &binding_);
    ASSERT_TRUE(bound.ok()) << bound.ToString();
  }
  void Run(int64_t seq_base = 0) {
    const Status run = evaluator_->Run(binding_, {.seq_base = seq_base});
    ASSERT_TRUE(run.ok()) << run.ToString();
    const Status end = evaluator_->Synchronize(kLong);
    ASSERT_TRUE(end.ok()) << end.ToString();
  }
  int64_t Launched() { return Fake().Calls("GraphLaunch"); }
  int64_t Captured() { return Fake().Calls("StreamBeginCapture"); }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::KernelSource> kernels_, builtins_;
  std::unique_ptr<LibrarySource> library_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  std::vector<device::Stream*> pointers_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<device::Allocation> page_;
  EvaluatorOptions options_;
  std::unique_ptr<Evaluator> evaluator_;
  Binding binding_;
};

TEST_F(CudaEvaluator, RandomProgramsComputeWhatTheyDoOnACpu) {
  int64_t replayed = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const RandomProgram random = ProgramGenerator(seed, /*alone=*/true).Make();
    const auto program = LoadFinished(random.text);
    ASSERT_NE(program, nullptr);
    Prepare(*program);
    std::vector<Tensors> kept;  // So that addresses differ.
    for (uint64_t run = 0; run < 5; ++run) {
      base::Prng values(seed * 10 + (run == 3 ? 2 : run));
      std::vector<Values> params;
      for (int64_t elements : random.param_elements) {
        Values& param = params.emplace_back();
        for (int64_t i = 0; i < elements; ++i) param.push_back(values.Below(1000));
      }
      const auto want =
          RunSimulated({.program = program.get(), .params = [&](int64_t) { return params; }});
      ASSERT_TRUE(want[0].status.ok()) << want[0].status.ToString();
      if (run != 3) {  // The fourth run is bound as the third.
        kept.push_back(Upload(params));
        Bind(kept.back(), {});
      }
      const int64_t before = Launched();
      Run();
      replayed += Launched() - before;
      for (size_t i = 0; i < params.size(); ++i)
        ASSERT_EQ(Download(*kept.back()[i]), want[0].params[i]) << random.text;
    }
    evaluator_.reset();
    binding_ = Binding();
  }
  EXPECT_GT(replayed, 80);  // Of 100 runs that are not the first of their program.
}

constexpr std::string_view kScaled = R"(host @p(%x: i64[i0], %y: i64[i0], %z: i64[i0], %s: f64) {
  %c: i64[i0] = alloc() {space=pool}
  %d: i64[i0] = alloc() {space=pool}
  launch(%x, %c, %s) {kernel="scale", inputs=1, outputs=1, workspaces=0, extents=[i0], grid=i0, stream=0}
  launch(%x, %d) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[i0, 1], grid=i0, stream=0}
  launch(%c, %d, %y) {kernel="mix_2_1", inputs=2, outputs=1, workspaces=0, extents=[i0, 0], grid=i0, stream=0}
  set(%y, %z) {stream=0}
  return %y, %z
})";

TEST_F(CudaEvaluator, TheSecondRunIsCapturedAndPatchedFromThenOn) {
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  EXPECT_TRUE(evaluator_->replays());
  const auto y_of = [](int64_t x, int64_t scale) { return 2 * scale * x + 3 * (2 * x + 1); };
  const Tensors a = Upload({{1, 2, 3}, {0, 0, 0}, {0, 0, 0}});
  Bind(a, {3}, 10, true);
  Run();
  EXPECT_EQ(Captured(), 0);
  EXPECT_EQ(Download(*a[2]), (Values{y_of(1, 10), y_of(2, 10), y_of(3, 10)}));
  Run();
  Run();
  EXPECT_EQ(Captured(), 1);
  EXPECT_EQ(Launched(), 2);
  EXPECT_EQ(Fake().Calls("GraphExecKernelNodeSetParams"), 0);

  const Tensors b = Upload({{4, 5, 6}, {0, 0, 0}, {0, 0, 0}});
  Bind(b, {3}, 7, true);
  Run();
  EXPECT_EQ(Captured(), 1);
  EXPECT_EQ(Launched(), 3);
  EXPECT_EQ(Fake().Calls("GraphExecKernelNodeSetParams"), 3);
  EXPECT_EQ(Fake().Calls("GraphExecMemcpyNodeSetParams"), 1);
  EXPECT_EQ(Download(*b[2]), (Values{y_of(4, 7), y_of(5, 7), y_of(6, 7)}));

  // Other sizes are other runs; the first stay as they are.
  const Tensors c = Upload({{9}, {0}, {0}});
  Bind(c, {1}, 2, true);
  Run();
  EXPECT_EQ(Launched(), 3);
  Run();
  EXPECT_EQ(Captured(), 2);
  EXPECT_EQ(Download(*c[1]), Values{y_of(9, 2)});
  Bind(a, {3}, 1, true);
  Run();
  EXPECT_EQ(Captured(), 2);
  EXPECT_EQ(Download(*a[1]), (Values{y_of(1, 1), y_of(2, 1), y_of(3, 1)}));

  // When the device refuses the change, the run is captured anew.
  Fake().FailNext("GraphExecKernelNodeSetParams", device::kFakeNotFound);
  Bind(b, {3}, 3, true);
  Run();
  EXPECT_EQ(Captured(), 3);
  EXPECT_EQ(Download(*b[1]), (Values{y_of(4, 3), y_of(5, 3), y_of(6, 3)}));
}

TEST_F(CudaEvaluator, ACaptureThatFailsCostsNothingButTime) {
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  const Tensors a = Upload({{1, 2, 3}, {0, 0, 0}, {0, 0, 0}});
  Bind(a, {3}, 10, true);
  Run();
  Fake().FailNext("GraphInstantiateWithFlags", device::kFakeOutOfMemory);
  Run();
  EXPECT_EQ(Launched(), 0);
  EXPECT_EQ(Download(*a[2]), (Values{29, 55, 81}));
  Fake().FailNext("StreamBeginCapture", device::kFakeOutOfMemory);
  Run();
  EXPECT_EQ(Launched(), 0);
  Run();
  EXPECT_EQ(Launched(), 1);
}

TEST_F(CudaEvaluator, LibraryCallsHaveAGraphForEachSetOfOperands) {
  // The kernels take the f64 for int64: only bits are moved and added.
  const auto program = LoadFinished(R"(host @p(%x: f64[2, 2], %w: f64[2, 2], %y: f64[2, 2]) {
  %c: f64[2, 2] = alloc() {space=pool}
  %d: f64[2, 2] = alloc() {space=pool}
  fill(%c) {value=3.0, stream=0}
  launch(%x, %c) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[4, 1], grid=4, stream=0}
  library(%x, %w, %d) {op=matmul, inputs=2, stream=0}
  launch(%c, %d, %y) {kernel="mix_2_1", inputs=2, outputs=1, workspaces=0, extents=[4, 0], grid=4, stream=0}
  return %y
})");
  ASSERT_NE(program, nullptr);
  Prepare(*program);
  std::vector<Tensors> tensors;
  for (int64_t i = 0; i < 6; ++i)
    tensors.push_back(Upload({{i, i, i, i}, {0, 0, 0, 0}, {0, 0, 0, 0}}));
  const auto run = [&](size_t i) {
    Bind(tensors[i], {});
    Run();
    const auto x = static_cast<int64_t>(i);
    EXPECT_EQ(Download(*tensors[i][2]), Values(4, 2 * (2 * x + 1) + 3 * 2 * x));
  };
  for (size_t i = 0; i < 3; ++i) run(i);
  EXPECT_EQ(Captured(), 2);  // The first run is not.
  run(1);
  run(2);
  EXPECT_EQ(Captured(), 2);
  for (size_t i = 3; i < 6; ++i) run(i);
  EXPECT_EQ(Captured(), 5);
  run(1);  // Four are kept: it was the oldest.
  EXPECT_EQ(Captured(), 6);
  for (size_t i = 0; i < 24; ++i) run(i % 6);
  EXPECT_LE(Captured(), 16);
}

TEST_F(CudaEvaluator, ShortProgramsAndWaitingOnesAreQueued) {
  Prepare(*LoadFinished(R"(host @p(%y: i64[4]) {
  fill(%y) {value=3.0, stream=0}
  return %y
})"));
  EXPECT_FALSE(evaluator_->replays());
  options_.replay = false;
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  EXPECT_FALSE(evaluator_->replays());
}

}  // namespace
}  // namespace hir::host
