// Programs whose communications write into other ranks' memory, on ranks with a simulated driver: what arrives where,
// run after run, in graphs too, and without windows where a rank has no memory for one.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "host_ir/eval/evaluator.h"
#include "multidevice/comm/peer/peer_memory.h"
#include "multidevice/rendezvous/memory.h"
#include "tests/multidevice/comm/nccl/fake_cuda_streams.h"
#include "tests/multidevice/comm/peer/cpu_kernels.h"

namespace hir::host {
namespace {

using device::Fake;
using std::chrono::seconds;

constexpr int64_t kRanks = 3;

// Chunks of x go around twice: to slots in the order of ranks, and to the place behind, whoever sends.
constexpr std::string_view kProgram = R"(
mesh @m = [0, 1, 2]
mesh @next = [1, 2, 0]
mesh @last = [2, 0, 1]
mesh @alone = [[0], [1], [2]]
host @shifts(%x: i64[4], %y: i64[3, 4], %z: i64[4]) {
  %sync: event[2] = event()
  %all: i64[3, 4] = alloc() {space=pool}
  %one: i64[4] = alloc() {space=pool}
  %own: i64[4] = view_select(%all) {axis=0, index=@m.x}
  %from_last: i64[4] = view_select(%all) {axis=0, index=(@m.x + 2) mod 3}
  %from_next: i64[4] = view_select(%all) {axis=0, index=(@m.x + 1) mod 3}
  communication(%x, %from_last) {type=collective_permute, reduce=none, mesh=@m, dim=none, to=@next, stream=1, seq=0,
    by=copies}
  communication(%x, %from_next) {type=collective_permute, reduce=none, mesh=@m, dim=none, to=@last, stream=1, seq=1,
    by=copies}
  communication(%from_next, %one) {type=collective_permute, reduce=none, mesh=@m, dim=none, to=@last, stream=1, seq=2,
    by=copies}
  record(%sync) {index=0, stream=1}
  communication(%x, %own) {type=allreduce, reduce=sum, mesh=@alone, dim=mesh_x, to=@alone, stream=0, seq=3}
  wait(%sync) {index=0, stream=0}
  communication(%all, %y) {type=allreduce, reduce=sum, mesh=@alone, dim=mesh_x, to=@alone, stream=0, seq=4}
  communication(%one, %z) {type=allreduce, reduce=sum, mesh=@alone, dim=mesh_x, to=@alone, stream=0, seq=5}
  dealloc(%all)
  dealloc(%one)
  return %y, %z
}
)";

class NoKernels final : public device::KernelSource {
 public:
  Result<const device::Kernel*> Get(std::string_view name) override {
    return Status(Code::kNotFound, base::Cat("no kernel ", name));
  }
};

// `bytes_max`: of the device of rank 1. Returns how many pieces of memory were shared.
int64_t RunRanks(int64_t bytes_max) {
  Fake().Reset();
  Fake().num_devices = kRanks;
  Fake().memory_bytes = int64_t{4} << 30;
  comm::MemoryRendezvous rendezvous;
  {
    std::barrier all(kRanks);
    std::vector<std::jthread> threads;
    for (int64_t number = 0; number < kRanks; ++number) {
      threads.emplace_back([&, number] {
        const auto device = *device::OpenCudaDevice(
            {.ordinal = number, .memory_bytes_max = number == 1 ? bytes_max : 0, .driver = HIR_FAKE_CUDA});
        const auto streams = std::array{*device->CreateStream(), *device->CreateUrgentStream()};
        device::Stream* const pointers[] = {streams[0].get(), streams[1].get()};
        comm::NcclOptions options = comm::FakeGpuOptions(number, kRanks, *device);
        options.peers = *comm::PeerMemory::Create({.rank = number,
                                                   .size = kRanks,
                                                   .setup_timeout = seconds(20),
                                                   .device = device.get(),
                                                   .compile = &comm::CompilePeerForCpu,
                                                   .team_bytes = int64_t{1} << 20},
                                                  rendezvous);
        Pool pool(*device);
        NoKernels kernels;
        const auto communicator = *comm::CreateNccl(options, rendezvous);
        const auto program = HostProgram::Load(kProgram);
        ASSERT_TRUE(program.ok()) << program.status().ToString();
        const auto evaluator = *Evaluator::Prepare(**program, {.rank = number,
                                                               .device = device.get(),
                                                               .streams = pointers,
                                                               .kernels = &kernels,
                                                               .communicator = communicator.get(),
                                                               .pool = &pool});
        const auto x = *device->Allocate(32), y = *device->Allocate(96), z = *device->Allocate(32);
        const Argument arguments[] = {{.buffer = x->buffer()}, {.buffer = y->buffer()}, {.buffer = z->buffer()}};
        Binding binding;
        for (int64_t run = 0; run < 6; ++run) {
          const std::vector<int64_t> sent(4, 100 * run + number);
          ASSERT_TRUE(device::CopyFromHost(*device, x->buffer(), std::as_bytes(std::span(sent))).ok());
          ASSERT_TRUE(evaluator->Bind(arguments, {}, &binding).ok());
          const Status status = evaluator->Run(binding, {.seq_base = 10 * run});
          ASSERT_TRUE(status.ok()) << status.ToString();
          const Status end = evaluator->Synchronize(seconds(60));
          ASSERT_TRUE(end.ok()) << end.ToString();
          std::vector<int64_t> got(12), one(4);
          ASSERT_TRUE(device::CopyToHost(*device, std::as_writable_bytes(std::span(got)), y->buffer()).ok());
          ASSERT_TRUE(device::CopyToHost(*device, std::as_writable_bytes(std::span(one)), z->buffer()).ok());
          for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], 100 * run + i / 4) << run;
          // The next rank had it from the one behind it.
          for (const int64_t value : one) EXPECT_EQ(value, 100 * run + (number + 2) % 3) << run;
        }
        all.arrive_and_wait();
      });
    }
  }
  EXPECT_EQ(Fake().live_objects, 0);
  return Fake().Calls("MemImportFromShareableHandle");
}

TEST(Windows, AreWrittenByOtherRanks) {
  EXPECT_EQ(RunRanks(0), 2 * kRanks * (kRanks - 1));  // Of the team, and of its window.
}

// Its team has memory, its window has not: what is exchanged goes by the team's, or by NCCL.
TEST(Windows, AreNotThereWhereARankHasNoMemory) {
  EXPECT_LT(RunRanks((int64_t{2} << 20) + 4096), 2 * kRanks * (kRanks - 1));
}

}  // namespace
}  // namespace hir::host
