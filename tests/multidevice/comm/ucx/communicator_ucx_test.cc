// The communicator suite over UCX: every rank is a thread with a context of its own.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "csrc/device/host/host_device.h"
#include "multidevice/comm/ucx/ucx.h"
#include "multidevice/rendezvous/memory.h"
#include "tests/conformance/communicator_suite.h"

namespace hir::comm {
namespace {

class UcxBackend final : public CommBackend {
 public:
  std::string Absent() const override { return HasUcx() ? "" : "this build has no UCX"; }

  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    MemoryRendezvous rendezvous;
    std::barrier all(size);
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto device = *device::CreateHostDevice({.name = base::Cat("host:", rank)});
        auto comm = CreateUcx(
            {.rank = rank, .size = size, .generation = 3, .op_timeout = op_timeout}, rendezvous);
        EXPECT_TRUE(comm.ok()) << comm.status().ToString();
        if (comm.ok()) body(**comm, *device);
        all.arrive_and_wait();  // A rank that is done early stays as long as others may wait for
                                // it.
      });
    }
  }
};

std::unique_ptr<CommBackend> Ucx() { return std::make_unique<UcxBackend>(); }

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorSuite, testing::Values(&Ucx));

}  // namespace
}  // namespace hir::comm
