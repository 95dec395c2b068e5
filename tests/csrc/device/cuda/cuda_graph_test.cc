// Captures and graphs, over a driver that simulates a GPU: what is kept, replayed, patched and refused.
#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/csrc/device/cuda/fake_driver.h"
#include "tests/csrc/device/cuda/graph_suite.h"

namespace hir::device {
namespace {

// slots: a cell, a number. The cell becomes twice its value plus the number, plus the CTAs times 1000.
void Step(const int64_t* slots, int64_t ctas) {
  auto* const cell = reinterpret_cast<int64_t*>(slots[0]);
  *cell = 2 * *cell + slots[1] + 1000 * ctas;
}

GraphCase FakeCase() {
  return {"Fake", HIR_FAKE_CUDA, FakeCubin({MakeFakeKernel("step", Step, 2), MakeFakeKernel("other", Step, 2)})};
}
std::string NameOf(const testing::TestParamInfo<GraphCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(FakeCuda, GraphSuite, testing::Values(FakeCase()), NameOf);

// What the driver is asked, and what happens when it refuses.
class FakeGraph : public GraphSuite {
 protected:
  void SetUp() override {
    Fake().Reset();
    GraphSuite::SetUp();
  }
  void TearDown() override {
    GraphSuite::TearDown();
    EXPECT_EQ(Fake().live_objects, 0);
  }
};
INSTANTIATE_TEST_SUITE_P(FakeCuda, FakeGraph, testing::Values(FakeCase()), NameOf);

TEST_P(FakeGraph, AnUpdateAsksForWhatChanges) {
  ASSERT_TRUE(Capture(7, 10, 9).ok());
  for (int i = 0; i < 2; ++i) {  // The same again: nothing to do.
    graph_->BeginUpdate();
    Program(graph_->updater(), graph_->updater(), 8, 11, 12);
    ASSERT_TRUE(graph_->EndUpdate().ok());
    EXPECT_EQ(Fake().Calls("GraphExecKernelNodeSetParams"), 2);
    EXPECT_EQ(Fake().Calls("GraphExecMemcpyNodeSetParams"), 1);
    EXPECT_EQ(Fake().Calls("GraphExecMemsetNodeSetParams"), 1);
    EXPECT_EQ(Fake().Calls("GraphExecBatchMemOpNodeSetParams"), 1);
  }
}

// What is captured as fixed is replayed, and no part of updates.
TEST_P(FakeGraph, FixedWorkIsLeftOutOfUpdates) {
  ASSERT_TRUE(device_->BeginCapture(*streams_[0]).ok());
  Launch(*streams_[0], 0, 1);
  device_->CaptureFixed(true);
  Launch(*streams_[0], 0, 2);
  device_->CaptureFixed(false);
  Launch(*streams_[0], 1, 3);
  graph_ = *device_->EndCapture(*streams_[0]);
  graph_->BeginUpdate();
  Launch(graph_->updater(), 0, 10);
  Launch(graph_->updater(), 1, 30);
  ASSERT_TRUE(graph_->EndUpdate().ok());
  Replay();
  EXPECT_EQ(Cell(0), 2 * 1010 + 1002);
  EXPECT_EQ(Cell(1), 1030);
}

TEST_P(FakeGraph, AnUpdateBySomethingElseIsRefused) {
  ASSERT_TRUE(Capture(7, 10, 9).ok());
  const auto refused = [this](const std::function<void(Stream&)>& work) {
    graph_->BeginUpdate();
    work(graph_->updater());
    const Status status = graph_->EndUpdate();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_EQ(refused([](Stream&) {}), "cuda:0 graph: less work than was captured");
  EXPECT_EQ(refused([this](Stream& stream) { Launch(stream, 0, 7); }),
            "cuda:0 graph: call 0 is another than was captured");
  EXPECT_EQ(refused([this](Stream& stream) {
              stream.Fill(Cells(0, 4), 0, 8);
              const int64_t args[] = {AddressOf(0), 7};
              stream.Launch(**kernels_->Get("other"), args, 1);
            }),
            "cuda:0 graph: kernel other where step was captured");
  EXPECT_EQ(refused([this](Stream& stream) {
              Program(stream, stream, 7, 10, 9);
              Launch(stream, 0, 1);
            }),
            "cuda:0 graph: more work than was captured");
  EXPECT_EQ(refused([](Stream& stream) { stream.HostCallback([] { return Status(); }); }),
            "cuda:0 graph: a host callback");
  Fake().FailNext("GraphExecKernelNodeSetParams", CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(refused([this](Stream& stream) { Program(stream, stream, 8, 10, 9); }),
            "cuda:0 graph: step: CUDA_ERROR_NOT_FOUND (simulated)");
}

// What failed was not done: the next update asks for it again.
TEST_P(FakeGraph, AChangeThatFailedIsAskedForAgain) {
  for (const char* call : {"GraphExecKernelNodeSetParams", "GraphExecMemcpyNodeSetParams",
                           "GraphExecMemsetNodeSetParams", "GraphExecBatchMemOpNodeSetParams"}) {
    ASSERT_TRUE(Capture(7, 10, 9).ok());
    Fake().FailNext(call, CUDA_ERROR_NOT_FOUND);
    for (const bool fails : {true, false}) {
      const int64_t before = Fake().Calls(call);
      graph_->BeginUpdate();
      Program(graph_->updater(), graph_->updater(), 8, 11, 12);
      EXPECT_EQ(graph_->EndUpdate().ok(), !fails) << call;
      EXPECT_GT(Fake().Calls(call), before) << call;
    }
  }
}

TEST_P(FakeGraph, AFailureInACaptureIsItsOwn) {
  ASSERT_TRUE(device_->BeginCapture(*streams_[0]).ok());
  Fake().FailNext("MemcpyAsync", CUDA_ERROR_OUT_OF_MEMORY);
  streams_[0]->Copy(Cells(0, 1), Cells(1, 1));
  EXPECT_EQ(device_->EndCapture(*streams_[0]).status().ToString(),
            "RESOURCE_EXHAUSTED: cuda:0 stream 0: copy: CUDA_ERROR_OUT_OF_MEMORY (simulated)");
  EXPECT_TRUE(streams_[0]->status().ok());
  ASSERT_TRUE(device_->BeginCapture(*streams_[0]).ok());
  Launch(*streams_[0], 0, 1);
  Fake().FailNext("GraphInstantiateWithFlags", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device_->EndCapture(*streams_[0]).status().code(), Code::kResourceExhausted);
  ASSERT_TRUE(Capture(1, 10, 9).ok());
  Replay();
  EXPECT_EQ(Cell(10), Result(1));
}

}  // namespace
}  // namespace hir::device
