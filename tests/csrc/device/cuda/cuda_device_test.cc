// GPUs as devices, over a driver that simulates them: what is refused and how, memory, copies, kernels.
#include "csrc/device/cuda/cuda_device.h"

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "csrc/base/text.h"
#include "tests/csrc/device/cuda/fake_driver.h"
#include "tests/csrc/device/stream_suite.h"

namespace hir::device {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations in tests.

Result<std::unique_ptr<Device>> Open(CudaDeviceOptions options = {}) {
  options.driver = HIR_FAKE_CUDA;
  return OpenCudaDevice(options);
}

std::vector<std::byte> Read(Device& device, Buffer buffer) {
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.bytes));
  EXPECT_TRUE(CopyToHost(device, bytes, buffer).ok());
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(FakeCuda, StreamSuite, testing::Values(DeviceCase{"Fake", [] { return Open(); }, Read}),
                         CaseName);

// Nothing of the driver's is left when a test's device is gone.
class CudaDevice : public testing::Test {
 protected:
  void SetUp() override { Fake().Reset(); }
  void TearDown() override {
    EXPECT_EQ(Fake().live_objects, 0);
    EXPECT_EQ(Fake().created_bytes, 0);
  }
};

TEST_F(CudaDevice, WithoutADriverSaysSo) {
  const Status status = NumCudaDevices("libno_such_driver.so.1").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message().find("no GPU: libno_such_driver.so.1: the NVIDIA driver is not installed"), 0u)
      << status.ToString();
  CudaDeviceOptions options;
  options.driver = "libno_such_driver.so.1";
  EXPECT_EQ(OpenCudaDevice(options).status().ToString(), status.ToString());
}

TEST_F(CudaDevice, AnOldDriverIsRefusedByBothVersions) {
  Fake().version = 11040;
  EXPECT_EQ(NumCudaDevices(HIR_FAKE_CUDA).status().ToString(),
            std::string("FAILED_PRECONDITION: no GPU: ") + HIR_FAKE_CUDA +
                ": the driver is made for CUDA 11.4; CUDA 12.0 or newer is needed: install NVIDIA "
                "driver 525 or newer");
}

TEST_F(CudaDevice, ALibraryThatIsNoDriverIsRefused) {
  EXPECT_EQ(NumCudaDevices("libm.so.6").status().ToString(),
            "FAILED_PRECONDITION: no GPU: libm.so.6: it tells no version: it is no CUDA driver");
}

TEST_F(CudaDevice, ADriverThatDoesNotStartSaysWhy) {
  Fake().init_result = CUDA_ERROR_NO_DEVICE;
  EXPECT_EQ(NumCudaDevices(HIR_FAKE_CUDA).status().ToString(),
            std::string("FAILED_PRECONDITION: no GPU: ") + HIR_FAKE_CUDA + ": the driver sees no GPU");
  Fake().init_result = CUDA_ERROR_STUB_LIBRARY;
  EXPECT_EQ(NumCudaDevices(HIR_FAKE_CUDA).status().code(), Code::kFailedPrecondition);
  Fake().init_result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(NumCudaDevices(HIR_FAKE_CUDA).status().ToString(),
            std::string("UNAVAILABLE: no GPU: ") + HIR_FAKE_CUDA + ": cuInit: CUDA_ERROR_OUT_OF_MEMORY (simulated)");
}

TEST_F(CudaDevice, OneGpuOfSeveralMayFail) {
  Fake().failing_device = 1;
  EXPECT_EQ(*NumCudaDevices(HIR_FAKE_CUDA), 2);
  EXPECT_TRUE(Open({.ordinal = 0}).ok());
  EXPECT_EQ(Open({.ordinal = 1}).status().ToString(),
            "UNAVAILABLE: cuda:1 (Fake H0) cannot be opened: CUDA_ERROR_DEVICE_UNAVAILABLE "
            "(simulated); other GPUs "
            "may work");
  EXPECT_EQ(Open({.ordinal = 2}).status().ToString(), "NOT_FOUND: cuda:2: the driver shows 2 GPUs, numbered from 0");
}

TEST_F(CudaDevice, KnowsItsFacts) {
  const CudaFacts facts = *CudaFactsOf(1, HIR_FAKE_CUDA);
  EXPECT_EQ(Fake().Calls("DevicePrimaryCtxRetain"), 0);  // Not opened.
  EXPECT_EQ(facts.model, "Fake H0");
  EXPECT_EQ(facts.uuid, std::string(16, '\2'));
  EXPECT_EQ(facts.architecture, 90);
  EXPECT_EQ(facts.multiprocessors, 4);
  EXPECT_EQ(facts.shared_bytes_per_block, 232448);
  EXPECT_EQ(facts.driver_version, 13000);
  const auto device = *Open({.ordinal = 1});
  EXPECT_EQ(device->name(), "cuda:1");
  EXPECT_EQ(FactsOf(*device)->architecture, 90);
  EXPECT_NE(NativeContext(*device), nullptr);
}

TEST_F(CudaDevice, MemoryIsLimitedAndGrowsAsItIsUsed) {
  const auto device = *Open({.memory_bytes_max = int64_t{300} << 20});
  EXPECT_EQ(Fake().created_bytes, 0);
  auto first = *device->Allocate(100);
  EXPECT_EQ(Fake().created_bytes, int64_t{256} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->buffer().data) % 512, 0u);
  EXPECT_EQ(device->Allocate(int64_t{300} << 20).status().ToString(),
            "RESOURCE_EXHAUSTED: cuda:0: limit device_bytes_max: 314572800 bytes, 100 in use, "
            "314572800 asked for; free tensors, run smaller sizes, or raise it (hostird "
            "--device-bytes-max)");
  const auto large = *device->Allocate(int64_t{290} << 20);  // Grows by what is missing.
  EXPECT_EQ(Fake().created_bytes, int64_t{300} << 20);
  first.reset();
  EXPECT_EQ(device->allocated_bytes(), int64_t{290} << 20);
  EXPECT_TRUE(CopyFromHost(*device, large->buffer().Slice(0, 5), std::as_bytes(std::span("abcd"))).ok());
}

TEST_F(CudaDevice, MemoryInPiecesIsRefusedAsSuch) {
  const auto device = *Open({.memory_bytes_max = 4 << 20});
  std::vector<std::unique_ptr<Allocation>> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(*device->Allocate(1 << 20));
  pieces[0].reset();
  pieces[2].reset();
  EXPECT_EQ(device->Allocate(3 << 19).status().ToString(),
            "RESOURCE_EXHAUSTED: cuda:0: limit device_bytes_max: 4194304 bytes, 2097152 in use, "
            "1572864 asked for: "
            "what is free is in pieces of at most 1048576 bytes; free tensors, run smaller sizes, or "
            "raise it (hostird --device-bytes-max)");
  pieces[1].reset();
  EXPECT_TRUE(device->Allocate(3 << 20).ok());
}

TEST_F(CudaDevice, MemoryThatOthersHoldIsToldApart) {
  Fake().memory_bytes = int64_t{64} << 20;
  const auto device = *Open({.memory_bytes_max = int64_t{128} << 20});
  EXPECT_TRUE(device->Allocate(int64_t{32} << 20).ok());  // 128 MiB at once are refused: as much as is needed.
  EXPECT_EQ(device->Allocate(int64_t{100} << 20).status().ToString(),
            "RESOURCE_EXHAUSTED: cuda:0: limit device_bytes_max: 134217728 bytes, 0 in use, "
            "104857600 asked for; the "
            "GPU has no more free memory: others use it too");
}

TEST_F(CudaDevice, NinetyPercentOfTheFreeMemoryByDefault) {
  const auto device = *Open();
  EXPECT_EQ(device->memory_bytes_max(), (int64_t{1} << 30) / 10 * 9);
}

TEST_F(CudaDevice, MemoryIsSharedWithOthers) {
  const auto device = *Open();
  SharedMemory shared = *AllocateShared(*device, 1000);
  EXPECT_EQ(device->allocated_bytes(), 2 << 20);  // As much as is mapped.
  ASSERT_TRUE(CopyFromHost(*device, shared.memory->buffer().Slice(8, 4), std::as_bytes(std::span("abc"))).ok());
  const auto other = *Open({.ordinal = 1});
  const auto mapped = *MapShared(*other, shared.fd.get(), 1000);
  EXPECT_EQ(mapped->buffer().bytes, 1000);
  EXPECT_EQ(mapped->buffer().data[9], std::byte{'b'});
  shared.memory = nullptr;  // The other keeps it.
  EXPECT_EQ(mapped->buffer().data[9], std::byte{'b'});
  EXPECT_EQ(device->allocated_bytes(), 0);
  EXPECT_EQ(other->allocated_bytes(), 0);
}

TEST_F(CudaDevice, CopiesToAndFromMemoryOfOthers) {
  const auto theirs = *Open({.ordinal = 1});
  const SharedMemory shared = *AllocateShared(*theirs, 1000);
  ASSERT_TRUE(CopyFromHost(*theirs, shared.memory->buffer().Slice(0, 4), std::as_bytes(std::span("abc"))).ok());
  const auto device = *Open();
  const auto own = *device->Allocate(1000);
  ASSERT_TRUE(CopyShared(*device, own->buffer(), shared.fd.get(), /*to_shared=*/false).ok());
  EXPECT_EQ(own->buffer().data[1], std::byte{'b'});
  own->buffer().data[1] = std::byte{'x'};
  ASSERT_TRUE(CopyShared(*device, own->buffer(), shared.fd.get(), /*to_shared=*/true).ok());
  EXPECT_EQ(shared.memory->buffer().data[1], std::byte{'x'});
  EXPECT_EQ(device->allocated_bytes(), 1000);
  Fake().FailNext("MemImportFromShareableHandle", CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(CopyShared(*device, own->buffer(), shared.fd.get(), false).ToString(),
              testing::StartsWith("INVALID_ARGUMENT: cuda:0: no memory of a GPU of 1000 bytes that it can reach: "));
}

TEST_F(CudaDevice, RefusesToShareMemory) {
  const auto device = *Open({.memory_bytes_max = 3 << 20});
  EXPECT_THAT(AllocateShared(*device, 4 << 20).status().ToString(),
              testing::StartsWith("RESOURCE_EXHAUSTED: cuda:0: limit device_bytes_max: 3145728 bytes"));
  for (const char* call : {"MemCreate", "MemAddressReserve", "MemMap", "MemSetAccess", "MemExportToShareableHandle"}) {
    Fake().FailNext(call, CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(AllocateShared(*device, 1000).status().message(),
              base::Cat("cuda:0: cu", call, ": CUDA_ERROR_NOT_FOUND (simulated)"));
    EXPECT_EQ(device->allocated_bytes(), 0) << call;
  }
  const SharedMemory shared = *AllocateShared(*device, 1000);
  for (const char* call : {"MemImportFromShareableHandle", "MemAddressReserve", "MemMap", "MemSetAccess"}) {
    Fake().FailNext(call, CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(MapShared(*device, shared.fd.get(), 1000).status().message(),
              base::Cat("cuda:0: cu", call, ": CUDA_ERROR_NOT_FOUND (simulated)"));
  }
}

// One takes what the other gives, again and again, in a graph too.
TEST_F(CudaDevice, WordsAreGivenAndTaken) {
  const auto device = *Open();
  const auto memory = *device->Allocate(32);
  const Buffer word = memory->buffer().Slice(0, 8), back = memory->buffer().Slice(8, 8),
               count = memory->buffer().Slice(16, 8);
  const auto giver = *device->CreateStream(), taker = *device->CreateStream();
  giver->Fill(memory->buffer(), 0, 8);
  ASSERT_TRUE(giver->Synchronize(std::chrono::seconds(10)).ok());
  const auto take = [&](uint64_t number) {
    TakeWord(*taker, word);
    taker->Fill(count, number, 8);
    taker->Fill(back, 1, 8);
  };
  const auto give = [&] {
    giver->Fill(word, 1, 8);
    TakeWord(*giver, back);
  };
  ASSERT_TRUE(device->BeginCapture(*taker).ok());
  device->CaptureFixed(true);
  take(7);
  const auto graph = *device->EndCapture(*taker);
  for (uint64_t number : {1, 2, 7, 4}) {
    number == 7 ? graph->Launch(*taker) : take(number);
    give();
    ASSERT_TRUE(giver->Synchronize(std::chrono::seconds(10)).ok());
    uint64_t now = 0;
    ASSERT_TRUE(CopyToHost(*device, std::as_writable_bytes(std::span(&now, 1)), count).ok());
    EXPECT_EQ(now, number);
  }
  ASSERT_TRUE(device->BeginCapture(*taker).ok());
  TakeWord(*taker, word);
  EXPECT_EQ(device->EndCapture(*taker).status().code(), Code::kInternal);
}

TEST_F(CudaDevice, CopiesAnyAmountThroughStagingMemory) {
  const auto device = *Open();
  for (const int64_t bytes : {0, 1, 8 << 20, (8 << 20) + 3, (40 << 20) + 1}) {
    std::vector<std::byte> sent(static_cast<size_t>(bytes)), got(sent.size());
    for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 2654435761U >> 13);
    const auto memory = *device->Allocate(bytes);
    ASSERT_TRUE(CopyFromHost(*device, memory->buffer(), sent).ok());
    ASSERT_TRUE(CopyToHost(*device, got, memory->buffer()).ok());
    EXPECT_TRUE(sent == got) << bytes;
  }
  const auto memory = *device->Allocate(8);
  Fake().FailNext("MemcpyHtoDAsync", CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::array<std::byte, 8> bytes = {};
  EXPECT_EQ(CopyFromHost(*device, memory->buffer(), bytes).ToString(),
            "INTERNAL: cuda:0: cuda:0 copy from host: CUDA_ERROR_ILLEGAL_ADDRESS (simulated); the "
            "GPU's context is "
            "lost: only a new process can use it");
}

TEST_F(CudaDevice, ReachesHostMemory) {
  const auto device = *Open();
  const auto pinned = *AllocateHostMemory(*device, 4096);
  const auto mapped = *MapHostMemory(*device, {pinned->buffer().data, 4096});
  const auto stream = *device->CreateStream();
  stream->Fill(mapped->buffer().Slice(16, 8), 0x1122334455667788, 8);
  ASSERT_TRUE(stream->Synchronize(1s).ok());
  EXPECT_EQ(Fake().Calls("StreamWriteValue64"), 1);  // In one piece: somebody may be looking.
  EXPECT_EQ(pinned->buffer().data[16], std::byte{0x88});
  EXPECT_FALSE(MapHostMemory(*device, {pinned->buffer().data + 1, 4096}).ok());
}

// --- kernels

void AddSlots(const int64_t* slots, int64_t ctas) {
  auto* const out = reinterpret_cast<int64_t*>(slots[0]);
  out[0] += slots[1] + slots[2] + slots[3];
  out[1] = ctas;
}

std::string AddCubin() {
  FakeKernel spills = MakeFakeKernel("spills", AddSlots, 4);
  spills.local_bytes = 48;
  spills.threads_max = 256;
  return FakeCubin({MakeFakeKernel("add", AddSlots, 4), spills});
}

TEST_F(CudaDevice, LaunchesKernelsWithTheirSlots) {
  const auto device = *Open();
  const CudaKernelInfo infos[] = {
      {.name = "add", .threads = 128, .num_slots = 4},
      {.name = "spills", .threads = 32, .ctas_per_sm = 1, .dependent = true, .num_slots = 4}};
  const auto source = *LoadCubin(*device, AddCubin(), infos);
  const Kernel& add = **source->Get("add");
  const Kernel& persistent = **source->Get("spills");
  EXPECT_EQ(FactsOf(add).local_bytes, 0);
  EXPECT_EQ(FactsOf(persistent).local_bytes, 48);
  EXPECT_EQ(FactsOf(add).ctas_that_fit, 2);
  EXPECT_EQ(source->Get("sub").status().ToString(), "NOT_FOUND: no kernel sub in the cubin");

  const auto stream = *device->CreateStream();
  const auto out = *AllocateHostMemory(*device, 16);
  auto* const result = reinterpret_cast<int64_t*>(out->buffer().data);
  result[0] = 0;
  {
    std::vector<int64_t> args = {reinterpret_cast<int64_t>(result), 10, 20};  // The fourth slot is zero.
    stream->Launch(add, args, 1000);
    args = {0, 0, 0};  // They were copied.
    ASSERT_TRUE(stream->Synchronize(1s).ok());
  }
  EXPECT_EQ(result[0], 30);
  EXPECT_EQ(result[1], 1000);
  const int64_t args[] = {reinterpret_cast<int64_t>(result), 1, 2, 3};
  stream->Launch(persistent, args, 1000);
  stream->Launch(add, args, 0);
  ASSERT_TRUE(stream->Synchronize(1s).ok());
  EXPECT_EQ(result[0], 36);
  EXPECT_EQ(result[1], 4);  // One a multiprocessor; the empty launch did nothing.

  stream->Launch(add, args, int64_t{1} << 31);
  EXPECT_EQ(stream->Synchronize(1s).ToString(),
            "INVALID_ARGUMENT: cuda:0 stream 0: kernel add: a grid of 2147483648 CTAs; at most "
            "2147483647 can be "
            "launched");
}

TEST_F(CudaDevice, RefusesKernelsThatDoNotFit) {
  const auto device = *Open();
  const auto load = [&](CudaKernelInfo info) {
    return LoadCubin(*device, AddCubin(), std::array{std::move(info)}).status().ToString();
  };
  EXPECT_EQ(load({.name = "add", .threads = 128, .num_slots = 5}),
            "INVALID_ARGUMENT: cuda:0: kernel add: its parameter must be one block of 40 bytes (5 "
            "slots), not 32 bytes");
  EXPECT_EQ(load({.name = "add", .threads = 2048, .num_slots = 4}),
            "INVALID_ARGUMENT: cuda:0: kernel add: 2048 threads; a CTA has 1 to 1024");
  EXPECT_EQ(load({.name = "spills", .threads = 512, .num_slots = 4}),
            "INVALID_ARGUMENT: cuda:0: kernel spills: 512 threads; its 32 registers a thread leave "
            "room for 256");
  EXPECT_EQ(load({.name = "add", .threads = 32, .shared_bytes = 300'000, .num_slots = 4}),
            "INVALID_ARGUMENT: cuda:0: kernel add: 300000 bytes of shared memory; cuda:0 has 232448");
  EXPECT_EQ(load({.name = "add", .threads = 32, .num_slots = 513}),
            "INVALID_ARGUMENT: cuda:0: kernel add: 513 argument slots; at most 512 are passed to a "
            "kernel");
  EXPECT_EQ(load({.name = "sub", .threads = 32, .num_slots = 4}),
            "INVALID_ARGUMENT: cuda:0: kernel sub: cuModuleGetFunction: CUDA_ERROR_NOT_FOUND "
            "(simulated)");
  EXPECT_EQ(LoadCubin(*device, "not a cubin at all", {}).status().ToString(),
            "INVALID_ARGUMENT: cuda:0: cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE (simulated)");
}

TEST_F(CudaDevice, ACallThatFailsFailsItsStream) {
  const auto device = *Open();
  const auto a = *device->CreateStream();
  const auto b = *device->CreateStream();
  const auto event = *device->CreateEvent();
  const auto memory = *device->Allocate(16);
  Fake().FailNext("MemsetD8Async", CUDA_ERROR_OUT_OF_MEMORY);
  a->Fill(memory->buffer(), 1, 1);
  const std::string failure = "RESOURCE_EXHAUSTED: cuda:0 stream 0: fill: CUDA_ERROR_OUT_OF_MEMORY (simulated)";
  EXPECT_EQ(a->status().ToString(), failure);
  a->Fill(memory->buffer(), 1, 1);
  EXPECT_EQ(Fake().Calls("MemsetD8Async"), 1);  // Skipped.
  PendingOperation skipped;
  a->Enqueue(skipped);
  EXPECT_EQ(skipped.skipped().ToString(), failure);
  a->Record(*event);
  b->Wait(*event);
  EXPECT_EQ(b->Synchronize(1s).ToString(), failure);
  a->ClearError();
  b->ClearError();
  EXPECT_TRUE(a->Synchronize(1s).ok());
  EXPECT_TRUE(b->Synchronize(1s).ok());

  PendingOperation unstarted;
  Fake().FailNext("LaunchHostFunc", CUDA_ERROR_OUT_OF_MEMORY);
  a->Enqueue(unstarted);
  EXPECT_EQ(unstarted.skipped().code(), Code::kResourceExhausted);
  EXPECT_EQ(a->Synchronize(1s).code(), Code::kResourceExhausted);
}

// A library's work fails after it was queued: its stream has failed at that point, and so has one
// that waited for it before anybody knew.
TEST_F(CudaDevice, ALibrarysWorkMayFailLater) {
  const auto device = *Open();
  const auto a = *device->CreateStream();
  const auto b = *device->CreateStream();
  const auto before = *device->CreateStream();
  const auto event = *device->CreateEvent();
  a->Record(*event);
  before->Wait(*event);
  Completion done = BeginWork(*a), fails = BeginWork(*a);
  a->Record(*event);
  b->Wait(*event);
  done.Done({});
  EXPECT_TRUE(a->Synchronize(1s).ok());
  fails.Done(Unavailable("a rank was lost"));
  EXPECT_EQ(a->Synchronize(1s).ToString(), "UNAVAILABLE: a rank was lost");
  EXPECT_EQ(b->Synchronize(1s).ToString(), "UNAVAILABLE: a rank was lost");
  EXPECT_TRUE(before->Synchronize(1s).ok());
}

// Reported by the call that meets it and by all that follow.
TEST_F(CudaDevice, AKernelsFaultIsToldByEverySynchronize) {
  const auto device = *Open();
  const auto stream = *device->CreateStream();
  const std::string lost =
      "INTERNAL: cuda:0 stream 0: CUDA_ERROR_ILLEGAL_ADDRESS (simulated); the GPU's context is "
      "lost: only a new "
      "process can use it";
  Fake().FailNext("EventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(stream->Synchronize(1s).ToString(), lost);
  Fake().FailNext("StreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(stream->status().ToString(), lost);
}

TEST_F(CudaDevice, SynchronizeGivesUpInTime) {
  const auto device = *Open();
  const auto stream = *device->CreateStream();
  PendingOperation op;
  stream->Enqueue(op);
  EXPECT_EQ(stream->Synchronize(2ms).ToString(), "DEADLINE_EXCEEDED: cuda:0 stream 0: its work goes on after 0.002 s");
  op.WaitStarted();
  op.Done();
  EXPECT_TRUE(stream->Synchronize(10s).ok());
}

TEST_F(CudaDevice, TimedEventsTellTheTime) {
  const auto device = *Open();
  const auto stream = *device->CreateStream();
  const auto from = *CreateTimedEvent(*device), to = *CreateTimedEvent(*device);
  const auto plain = *device->CreateEvent();
  EXPECT_EQ(ElapsedMs(*from, *to).status().code(), Code::kFailedPrecondition);
  stream->Record(*from);
  stream->Record(*to);
  stream->Record(*plain);
  ASSERT_TRUE(stream->Synchronize(1s).ok());
  EXPECT_EQ(*ElapsedMs(*from, *to), 1.5);
  EXPECT_EQ(ElapsedMs(*from, *plain).status().ToString(),
            "FAILED_PRECONDITION: an event keeps no time: make it by CreateTimedEvent");
}

TEST_F(CudaDevice, MarksAreOnTheMachinesClock) {
  const auto device = *Open();
  const auto stream = *device->CreateStream();
  const base::Nanos before = base::Clock::Steady().Now();
  const auto marks = *device->CreateMarks();
  const base::Nanos after = base::Clock::Steady().Now();
  const auto first = marks->Mark(*stream), second = marks->Mark(*stream);
  ASSERT_EQ(*first, 0);
  ASSERT_EQ(*second, 1);
  ASSERT_TRUE(stream->Synchronize(1s).ok());
  for (const int64_t mark : {0, 1}) {  // 1.5 ms after the origin, says the driver.
    EXPECT_GE(*marks->TimeOf(mark), before + 1500us);
    EXPECT_LE(*marks->TimeOf(mark), after + 1500us);
  }
}

TEST_F(CudaDevice, StreamsAreLimitedByNameAndServeAgain) {
  const auto device = *Open({.streams_max = 2});
  const auto first = *device->CreateStream();
  {
    const auto second = *device->CreateStream();
    EXPECT_EQ(device->CreateStream().status().ToString(),
              "RESOURCE_EXHAUSTED: cuda:0: limit streams_max: 2 streams exist");
  }
  const auto again = *device->CreateStream();
  PendingOperation op;
  again->Enqueue(op);
  op.WaitStarted();
  op.Done();
  EXPECT_TRUE(again->Synchronize(10s).ok());
}

TEST_F(CudaDevice, EventsArePooled) {
  const auto device = *Open();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(device->CreateEvent().ok());
  EXPECT_EQ(Fake().Calls("EventCreate"), 1);
}

}  // namespace
}  // namespace hir::device
