// What captures and graphs must do, on a simulated GPU and on real ones: what is kept, replayed, patched and refused.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <ostream>
#include <string>

#include "csrc/device/cuda/cuda_device.h"
#include "tests/csrc/device/pending_operation.h"

namespace hir::device {

struct GraphCase {
  std::string name;
  std::string driver;
  // Two kernels, "step" and "other", that do the same. Slots: the address of a cell, a number. The cell becomes twice
  // its value plus the number, plus the CTAs times 1000.
  std::string code;
};
inline void PrintTo(const GraphCase& c, std::ostream* out) { *out << c.name; }

class GraphSuite : public testing::TestWithParam<GraphCase> {
 protected:
  static constexpr base::Nanos kLong = std::chrono::seconds(30);

  void SetUp() override {
    auto opened = OpenCudaDevice({.driver = GetParam().driver});
    if (!opened.ok()) GTEST_SKIP() << "SKIPPED, no device: " << opened.status().ToString();
    device_ = *std::move(opened);
    const CudaKernelInfo infos[] = {{.name = "step", .threads = 32, .num_slots = 2},
                                    {.name = "other", .threads = 32, .num_slots = 2}};
    auto loaded = LoadCubin(*device_, GetParam().code, infos);
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    kernels_ = *std::move(loaded);
    step_ = *kernels_->Get("step");
    memory_ = *device_->Allocate(64 * 8);
    for (auto& stream : streams_) stream = *device_->CreateStream();
    for (auto& event : events_) event = *device_->CreateEvent();
    streams_[0]->Fill(memory_->buffer(), 0, 8);
    ASSERT_TRUE(streams_[0]->Synchronize(kLong).ok());
  }
  void TearDown() override {
    graph_.reset();
    for (auto& event : events_) event.reset();
    for (auto& stream : streams_) stream.reset();
    memory_.reset();
    kernels_.reset();
    device_.reset();
  }

  int64_t AddressOf(int64_t i) { return reinterpret_cast<int64_t>(Cells(i, 1).data); }
  int64_t Cell(int64_t i) {
    int64_t value = 0;
    EXPECT_TRUE(CopyToHost(*device_, std::as_writable_bytes(std::span(&value, 1)), Cells(i, 1)).ok());
    return value;
  }
  void SetCell(int64_t i, int64_t value) {
    EXPECT_TRUE(CopyFromHost(*device_, Cells(i, 1), std::as_bytes(std::span(&value, 1))).ok());
  }
  Buffer Cells(int64_t begin, int64_t count) { return memory_->buffer().Slice(begin * 8, count * 8); }
  void Launch(Stream& on, int64_t cell, int64_t number, int64_t grid = 1) {
    const int64_t args[] = {AddressOf(cell), number};
    on.Launch(*step_, args, grid);
  }
  // A program over two streams: what it computes depends on all that can be patched.
  void Program(Stream& a, Stream& b, int64_t number, int64_t out, uint64_t word) {
    a.Fill(Cells(0, 4), 0, 8);
    Launch(a, 0, number);
    a.Record(*events_[0]);
    b.Wait(*events_[0]);
    b.Copy(Cells(out, 1), Cells(0, 1));
    Launch(b, out, 1, number);
    b.Fill(Cells(20, 2), word, 4);
    b.Fill(Cells(30, 1), word, 8);
    b.Record(*events_[1]);
    a.Wait(*events_[1]);
    Launch(a, 0, 3, 0);
    Launch(a, 0, 5);
  }
  static int64_t Result(int64_t number) { return 2 * (number + 1000) + 1 + 1000 * number; }
  Status Capture(int64_t number, int64_t out, uint64_t word) {
    HIR_TRY(device_->BeginCapture(*streams_[0]));
    Program(*streams_[0], *streams_[1], number, out, word);
    HIR_ASSIGN(graph_, device_->EndCapture(*streams_[0]));
    return {};
  }
  void Replay() {
    graph_->Launch(*streams_[0]);
    ASSERT_TRUE(streams_[0]->Synchronize(kLong).ok());
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<KernelSource> kernels_;
  const Kernel* step_ = nullptr;
  std::unique_ptr<Allocation> memory_;
  std::array<std::unique_ptr<Stream>, 3> streams_;
  std::array<std::unique_ptr<Event>, 3> events_;
  std::unique_ptr<Graph> graph_;
};

TEST_P(GraphSuite, KeepsWorkOfSeveralStreamsAndRunsItAgain) {
  EXPECT_TRUE(device_->can_capture());
  const Status captured = Capture(7, 10, 9);
  ASSERT_TRUE(captured.ok()) << captured.ToString();
  ASSERT_TRUE(streams_[0]->Synchronize(kLong).ok());
  EXPECT_EQ(Cell(10), 0);  // Nothing ran.
  for (int i = 0; i < 3; ++i) {
    SetCell(10, 0);
    Replay();
    EXPECT_EQ(Cell(10), Result(7));
    EXPECT_EQ(Cell(0), 2 * 1007 + 5 + 1000);
    EXPECT_EQ(Cell(20), (int64_t{9} << 32) + 9);
    EXPECT_EQ(Cell(30), 9);
  }
  // The streams are as before.
  Launch(*streams_[1], 40, 2);
  ASSERT_TRUE(streams_[1]->Synchronize(kLong).ok());
  EXPECT_EQ(Cell(40), 1002);
}

TEST_P(GraphSuite, AnUpdateChangesLaunchesCopiesAndFills) {
  ASSERT_TRUE(Capture(7, 10, 9).ok());
  graph_->BeginUpdate();
  Program(graph_->updater(), graph_->updater(), 8, 11, 12);
  ASSERT_TRUE(graph_->EndUpdate().ok());
  Replay();
  EXPECT_EQ(Cell(10), 0);
  EXPECT_EQ(Cell(11), Result(8));
  EXPECT_EQ(Cell(20), (int64_t{12} << 32) + 12);
  EXPECT_EQ(Cell(30), 12);

  graph_->BeginUpdate();  // The same again: nothing to do.
  Program(graph_->updater(), graph_->updater(), 8, 11, 12);
  ASSERT_TRUE(graph_->EndUpdate().ok());
  SetCell(11, 0);
  Replay();
  EXPECT_EQ(Cell(11), Result(8));
}

TEST_P(GraphSuite, WhatTheHostDoesCannotBeCaptured) {
  PendingOperation op;
  ASSERT_TRUE(device_->BeginCapture(*streams_[0]).ok());
  streams_[0]->Enqueue(op);
  EXPECT_EQ(streams_[0]->Synchronize(kLong).code(), Code::kFailedPrecondition);
  streams_[0]->HostCallback([] { return Status(); });
  EXPECT_EQ(device_->EndCapture(*streams_[0]).status().ToString(),
            "UNIMPLEMENTED: cuda:0 stream 0: an operation that the host completes cannot be captured");
  EXPECT_EQ(op.skipped().code(), Code::kUnimplemented);
  EXPECT_TRUE(streams_[0]->Synchronize(kLong).ok());  // The stream has not failed.
}

TEST_P(GraphSuite, StreamsThatDoNotComeBackAreRefused) {
  ASSERT_TRUE(device_->BeginCapture(*streams_[0]).ok());
  EXPECT_EQ(device_->BeginCapture(*streams_[1]).ToString(), "FAILED_PRECONDITION: cuda:0: a capture is under way");
  EXPECT_EQ(device_->EndCapture(*streams_[1]).status().code(), Code::kFailedPrecondition);
  streams_[0]->Record(*events_[0]);
  streams_[1]->Wait(*events_[0]);
  Launch(*streams_[1], 0, 1);
  const Status unjoined = device_->EndCapture(*streams_[0]).status();
  EXPECT_EQ(unjoined.code(), Code::kInternal);
  EXPECT_NE(unjoined.message().find("CUDA_ERROR_STREAM_CAPTURE_UNJOINED"), std::string::npos) << unjoined.ToString();
  Launch(*streams_[1], 0, 1);
  EXPECT_TRUE(streams_[1]->Synchronize(kLong).ok());
  EXPECT_EQ(Cell(0), 1001);
}

// Events of before mean nothing in a capture, events of a capture nothing outside.
TEST_P(GraphSuite, EventsStayOnTheirSide) {
  streams_[1]->Record(*events_[0]);
  ASSERT_TRUE(device_->BeginCapture(*streams_[0]).ok());
  streams_[0]->Wait(*events_[0]);
  streams_[0]->Wait(*events_[2]);  // Never recorded.
  Launch(*streams_[0], 0, 1);
  streams_[0]->Record(*events_[1]);
  Launch(*streams_[2], 1, 1);  // Not in the capture: runs.
  auto graph = device_->EndCapture(*streams_[0]);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  graph_ = *std::move(graph);
  streams_[2]->Wait(*events_[1]);
  EXPECT_TRUE(events_[1]->Fired());
  EXPECT_TRUE(events_[1]->Synchronize(kLong).ok());
  ASSERT_TRUE(streams_[2]->Synchronize(kLong).ok());
  EXPECT_EQ(Cell(1), 1001);
  EXPECT_EQ(Cell(0), 0);
  streams_[1]->Record(*events_[1]);  // Serves outside again.
  streams_[2]->Wait(*events_[1]);
  EXPECT_TRUE(streams_[2]->Synchronize(kLong).ok());
  Replay();
  EXPECT_EQ(Cell(0), 1001);
}

}  // namespace hir::device
