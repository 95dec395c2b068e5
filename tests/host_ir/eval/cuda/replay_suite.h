// The evaluator on a GPU computes what it computes on a CPU, through runs that are queued, captured, patched and
// replayed. A test file instantiates it with its GPU.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "csrc/device/cuda/cuda_device.h"
#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "tests/host_ir/random_program.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {

inline std::unique_ptr<HostProgram> LoadFinished(std::string_view text, std::string_view passes = kFinish) {
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
  void Queue(std::span<const device::Buffer> inputs, std::span<const device::Buffer> outputs,
             device::Stream& stream) override {
    const int64_t args[] = {reinterpret_cast<int64_t>(inputs[0].data), reinterpret_cast<int64_t>(outputs[0].data), 0,
                            0};
    stream.Launch(mix_, args, outputs[0].bytes / 8);
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

// What a test runs on: a simulated GPU or a real one.
struct ReplayCase {
  std::string name;
  std::string driver;
  // Code with the kernels of simulated_ranks.h, and "scale", with slots in, out, count and a factor (the bits of a
  // double): out = factor * in. A CTA does one element. They may be launched early, and wait.
  std::function<Result<std::string>(int architecture)> code;
  std::function<int64_t()> num_replayed;  // Graphs launched so far; null: nobody counts.
};
inline void PrintTo(const ReplayCase& c, std::ostream* out) { *out << c.name; }

// One rank with a GPU.
class CudaEvaluator : public testing::TestWithParam<ReplayCase> {
 protected:
  static constexpr base::Nanos kLong = std::chrono::seconds(60);
  using Tensors = std::vector<std::unique_ptr<device::Allocation>>;

  void SetUp() override {
    auto opened = device::OpenCudaDevice({.driver = GetParam().driver});
    if (!opened.ok()) GTEST_SKIP() << "SKIPPED: " << opened.status().ToString();
    device_ = *std::move(opened);
    const auto code = GetParam().code(device::FactsOf(*device_)->architecture);
    if (code.status().code() == Code::kFailedPrecondition) GTEST_SKIP() << "SKIPPED: " << code.status().ToString();
    ASSERT_TRUE(code.ok()) << code.status().ToString();
    std::vector<device::CudaKernelInfo> infos;
    for (const auto& [name, slots] : {std::pair{"mix_1_1", 4},
                                      {"mix_2_1", 5},
                                      {"mix_3_1", 6},
                                      {"mix_1_2", 5},
                                      {"mix_2_2", 6},
                                      {"scale", 4},
                                      {"copy", 3},
                                      {"add", 4},
                                      {"sub", 4}}) {
      infos.push_back({.name = name, .threads = 32, .dependent = true, .num_slots = slots});
    }
    auto loaded = device::LoadCubin(*device_, *code, infos);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    kernels_ = *std::move(loaded);
    library_ = std::make_unique<Doubling>(**kernels_->Get("mix_1_1"));
    for (int i = 0; i < 4; ++i) {
      streams_.push_back(*device_->CreateStream());
      pointers_.push_back(streams_.back().get());
    }
    pool_ = std::make_unique<Pool>(*device_);
    options_ = {.device = device_.get(),
                .streams = pointers_,
                .kernels = kernels_.get(),
                .libraries = library_.get(),
                .pool = pool_.get()};
  }
  void TearDown() override {
    evaluator_.reset();
    binding_ = Binding();
    pool_.reset();
    streams_.clear();
    kernels_.reset();
    page_.reset();
    device_.reset();
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
      EXPECT_TRUE(device::CopyFromHost(*device_, tensors.back()->buffer(), std::as_bytes(std::span(values))).ok());
    }
    return tensors;
  }
  Values Download(const device::Allocation& tensor) {
    Values values(static_cast<size_t>(tensor.buffer().bytes / 8));
    EXPECT_TRUE(device::CopyToHost(*device_, std::as_writable_bytes(std::span(values)), tensor.buffer()).ok());
    return values;
  }
  void Bind(const Tensors& tensors, std::vector<int64_t> symbols, double scalar = 0, bool has_scalar = false) {
    std::vector<Argument> arguments;
    for (const auto& tensor : tensors) arguments.push_back({.buffer = tensor->buffer()});
    if (has_scalar) arguments.push_back({.scalar_bits = std::bit_cast<int64_t>(scalar)});
    const Status bound = evaluator_->Bind(arguments, symbols, &binding_);
    ASSERT_TRUE(bound.ok()) << bound.ToString();
  }
  void Run(int64_t seq_base = 0, std::vector<OpTime>* times = nullptr) {
    const Status run = evaluator_->Run(binding_, {.seq_base = seq_base, .times = times});
    ASSERT_TRUE(run.ok()) << run.ToString();
    const Status end = evaluator_->Synchronize(kLong);
    ASSERT_TRUE(end.ok()) << end.ToString();
  }
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::KernelSource> kernels_;
  std::unique_ptr<LibrarySource> library_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  std::vector<device::Stream*> pointers_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<device::Allocation> page_;
  EvaluatorOptions options_;
  std::unique_ptr<Evaluator> evaluator_;
  Binding binding_;
};

inline constexpr std::string_view kScaled =
    R"(mesh @one = [0]
host @p(%x: i64[i0], %y: i64[i0], %z: i64[i0], %s: f64) {
  %c: i64[i0] = alloc() {space=pool}
  %d: i64[i0] = alloc() {space=pool}
  launch(%x, %c, %s) {kernel="scale", inputs=1, outputs=1, workspaces=0, extents=[i0], grid=i0, stream=0}
  launch(%x, %d) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[i0, 1], grid=i0, stream=0}
  launch(%c, %d, %y) {kernel="mix_2_1", inputs=2, outputs=1, workspaces=0, extents=[i0, 0], grid=i0, stream=0}
  communication(%y, %z) {type=allreduce, reduce=sum, mesh=@one, dim=mesh_x, to=@one, stream=0, seq=0}
  return %y, %z
})";

TEST_P(CudaEvaluator, RandomProgramsComputeWhatTheyDoOnACpu) {
  int64_t replayed = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
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
      const auto want = RunSimulated({.program = program.get(), .params = [&](int64_t) { return params; }});
      ASSERT_TRUE(want[0].status.ok()) << want[0].status.ToString();
      if (run != 3) {  // The fourth run is bound as the third.
        kept.push_back(Upload(params));
        Bind(kept.back(), {});
      }
      const auto& count = GetParam().num_replayed;
      const int64_t before = count ? count() : 0;
      Run();
      replayed += count ? count() - before : evaluator_->replayable().ok() && run > 0;
      for (size_t i = 0; i < params.size(); ++i) ASSERT_EQ(Download(*kept.back()[i]), want[0].params[i]) << random.text;
    }
    evaluator_.reset();
    binding_ = Binding();
  }
  EXPECT_GT(replayed, 36);  // Of 48 runs that are not the first of their program.
}

// The same program with other tensors and another scalar each time.
TEST_P(CudaEvaluator, ABindingsTensorsAndScalarsReachTheGraph) {
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  std::vector<Tensors> kept;
  for (int64_t run = 0; run < 6; ++run) {
    kept.push_back(Upload({{run, 2, 3}, {0, 0, 0}, {0, 0, 0}}));
    Bind(kept.back(), {3}, static_cast<double>(run), true);
    for (int again = 0; again < 2; ++again) Run();
    Values want;
    for (const int64_t x : {run, int64_t{2}, int64_t{3}}) want.push_back(2 * run * x + 3 * (2 * x + 1));
    EXPECT_EQ(Download(*kept.back()[1]), want);
    EXPECT_EQ(Download(*kept.back()[2]), want);
  }
}

}  // namespace hir::host
