// The evaluator on a GPU that a driver of threads simulates: what is captured, patched and replayed, and what happens
// when the driver refuses.
#include "tests/csrc/device/cuda/fake_driver.h"
#include "tests/host_ir/eval/cuda/replay_suite.h"

namespace hir::host {
namespace {

using device::Fake;

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
// in, out, count.
void Copy(const int64_t* slots, int64_t ctas) {
  for (int64_t i = 0; i < ctas; ++i) {
    reinterpret_cast<int64_t*>(slots[1])[i] = reinterpret_cast<const int64_t*>(slots[0])[i];
  }
}
// a, b, out, count: out = a + kSign * b.
template <int kSign>
void Sum(const int64_t* slots, int64_t ctas) {
  for (int64_t i = 0; i < ctas; ++i) {
    reinterpret_cast<uint64_t*>(slots[2])[i] =
        reinterpret_cast<const uint64_t*>(slots[0])[i] +
        static_cast<uint64_t>(kSign) * reinterpret_cast<const uint64_t*>(slots[1])[i];
  }
}
// in, out, count, factor (the bits of a double): out = factor * in.
void Scale(const int64_t* slots, int64_t ctas) {
  double factor = 0;
  std::memcpy(&factor, &slots[3], sizeof(factor));
  for (int64_t i = 0; i < ctas; ++i) {
    reinterpret_cast<int64_t*>(slots[1])[i] =
        static_cast<int64_t>(factor * static_cast<double>(reinterpret_cast<const int64_t*>(slots[0])[i]));
  }
}

ReplayCase FakeCase() {
  const auto code = [](int) -> Result<std::string> {
    return device::FakeCubin(
        {device::MakeFakeKernel("mix_1_1", Mix<1, 1>, 4), device::MakeFakeKernel("mix_2_1", Mix<2, 1>, 5),
         device::MakeFakeKernel("mix_3_1", Mix<3, 1>, 6), device::MakeFakeKernel("mix_1_2", Mix<1, 2>, 5),
         device::MakeFakeKernel("mix_2_2", Mix<2, 2>, 6), device::MakeFakeKernel("scale", Scale, 4),
         device::MakeFakeKernel("copy", Copy, 3), device::MakeFakeKernel("add", Sum<1>, 4),
         device::MakeFakeKernel("sub", Sum<-1>, 4)});
  };
  return {"Fake", HIR_FAKE_CUDA, code, [] { return Fake().Calls("GraphLaunch"); }};
}
std::string NameOf(const testing::TestParamInfo<ReplayCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(FakeCuda, CudaEvaluator, testing::Values(FakeCase()), NameOf);

// The kernels take the f64 for int64: only bits are moved and added.
constexpr std::string_view kWithProduct = R"(host @p(%x: f64[2, 2], %w: f64[2, 2], %y: f64[2, 2]) {
  %c: f64[2, 2] = alloc() {space=pool}
  %d: f64[2, 2] = alloc() {space=pool}
  fill(%c) {value=3.0, stream=0}
  launch(%x, %c) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[4, 1], grid=4, stream=0}
  library(%x, %w, %d) {op=matmul, inputs=2, stream=0}
  launch(%c, %d, %y) {kernel="mix_2_1", inputs=2, outputs=1, workspaces=0, extents=[4, 0], grid=4, stream=0}
  return %y
})";

class FakeEvaluator : public CudaEvaluator {
 protected:
  void SetUp() override {
    Fake().Reset();
    CudaEvaluator::SetUp();
  }
  void TearDown() override {
    CudaEvaluator::TearDown();
    EXPECT_EQ(Fake().live_objects, 0);
  }
  int64_t Launched() { return Fake().Calls("GraphLaunch"); }
  int64_t Captured() { return Fake().Calls("StreamBeginCapture"); }
  // Tensors of kWithProduct, each set at addresses of its own.
  std::vector<Tensors> SetsOf(int64_t count) {
    std::vector<Tensors> sets;
    for (int64_t i = 0; i < count; ++i) sets.push_back(Upload({{i, i, i, i}, {0, 0, 0, 0}, {0, 0, 0, 0}}));
    return sets;
  }
  void RunWithProduct(const std::vector<Tensors>& sets, size_t i) {
    Bind(sets[i], {});
    Run();
    const auto x = static_cast<int64_t>(i);
    EXPECT_EQ(Download(*sets[i][2]), Values(4, 2 * (2 * x + 1) + 3 * 2 * x));
  }
};
INSTANTIATE_TEST_SUITE_P(FakeCuda, FakeEvaluator, testing::Values(FakeCase()), NameOf);

TEST_P(FakeEvaluator, TheSecondRunIsCapturedAndPatchedFromThenOn) {
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  EXPECT_TRUE(evaluator_->replayable().ok());
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

TEST_P(FakeEvaluator, ACaptureThatFailsCostsNothingButTime) {
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

TEST_P(FakeEvaluator, LibraryCallsHaveAGraphForEachSetOfOperands) {
  const auto program = LoadFinished(kWithProduct);
  ASSERT_NE(program, nullptr);
  Prepare(*program);
  const std::vector<Tensors> tensors = SetsOf(6);
  const auto run = [&](size_t i) { RunWithProduct(tensors, i); };
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

// A client that has brought other addresses for a while, and goes round a few from then on.
TEST_P(FakeEvaluator, AddressesThatSettleLateAreCapturedAfterAll) {
  const auto program = LoadFinished(kWithProduct);
  ASSERT_NE(program, nullptr);
  Prepare(*program);
  const std::vector<Tensors> tensors = SetsOf(40);
  const auto run = [&](size_t i) { RunWithProduct(tensors, i); };
  for (size_t i = 0; i < 40; ++i) run(i);
  EXPECT_EQ(Captured(), 16);
  for (size_t i = 0; i < 300; ++i) run(i % 2);
  EXPECT_EQ(Captured(), 18);
  const int64_t launched = Launched();
  for (size_t i = 0; i < 10; ++i) run(i % 2);
  EXPECT_EQ(Captured(), 18);
  EXPECT_EQ(Launched(), launched + 10);
  // More than are kept: at most a capture in 64 runs.
  for (size_t i = 0; i < 640; ++i) run(i % 10);
  EXPECT_LE(Captured(), 18 + 10);
}

// Before the first run, and between runs that are replayed.
TEST_P(FakeEvaluator, AProfileIsQueuedAndLeavesTheGraphs) {
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  const Tensors a = Upload({{1, 2}, {0, 0}, {0, 0}});
  const auto profiled = [&] {
    std::vector<OpTime> times;
    Run(0, &times);
    std::string names;
    for (const OpTime& time : times) {
      EXPECT_GT(time.time.count(), 0);
      base::Append(names, time.op->info->name, " ");
    }
    return names;
  };
  for (const double scale : {10.0, 20.0}) {
    Bind(a, {2}, scale, true);
    EXPECT_EQ(profiled(), "launch launch launch communication ");
    EXPECT_EQ(Captured(), scale == 10.0 ? 0 : 1);
    const auto s = static_cast<int64_t>(scale);
    EXPECT_EQ(Download(*a[2]), (Values{2 * s + 9, 4 * s + 15}));
    Run();
    Run();
    EXPECT_EQ(Captured(), 1);
  }
  EXPECT_EQ(Launched(), 3);
}

TEST_P(FakeEvaluator, ShortProgramsAreQueuedAndAllWhenToldSo) {
  Prepare(*LoadFinished(R"(host @p(%y: i64[4]) {
  fill(%y) {value=3.0, stream=0}
  return %y
})"));
  EXPECT_FALSE(evaluator_->replayable().ok());
  options_.replay = false;
  const auto program = LoadFinished(kScaled);
  Prepare(*program);
  EXPECT_FALSE(evaluator_->replayable().ok());
}

}  // namespace
}  // namespace hir::host
