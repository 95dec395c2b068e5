// The communicator suite over UCX: every rank is a thread with a context of its own. Once as it is by default, once
// without shared memory, and once with so little of it that the sizes of most cases lie on both sides of it.
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
  // `domains`: as if ranks were on so many nodes, dealt out.
  UcxBackend(int64_t shared_bytes_max, int64_t domains) : shared_bytes_max_(shared_bytes_max), domains_(domains) {}
  std::string Absent() const override { return HasUcx() ? "" : "this build has no UCX"; }

  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    MemoryRendezvous rendezvous;
    std::barrier all(size);
    std::vector<std::jthread> threads;
    for (int64_t rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto device = *device::CreateHostDevice({.name = base::Cat("host:", rank)});
        auto comm = CreateUcx({.rank = rank,
                               .size = size,
                               .generation = 3,
                               .op_timeout = op_timeout,
                               .domain = domains_ != 0 ? base::Cat("node ", NodeOf(rank, size)) : "",
                               .transports = "posix,sysv,self",  // Not TCP, of which ranks here have no need.
                               .shared_bytes_max = shared_bytes_max_},
                              rendezvous);
        EXPECT_TRUE(comm.ok()) << comm.status().ToString();
        if (comm.ok()) body(**comm, *device);
        all.arrive_and_wait();  // A rank that is done early stays as long as others may wait for
                                // it.
      });
    }
  }

 private:
  // Below 0: nodes with as many ranks each, side by side. Else of different sizes, and the first rank is with the last.
  int64_t NodeOf(int64_t rank, int64_t size) const {
    if (domains_ < 0) return rank * -domains_ / size;
    return rank == 0 ? domains_ - 1 : rank * rank * domains_ / (size * size);
  }

  const int64_t shared_bytes_max_;
  const int64_t domains_;
};

template <int64_t kBytesMax, int64_t kDomains = 0>
std::unique_ptr<CommBackend> Ucx() {
  return std::make_unique<UcxBackend>(kBytesMax, kDomains);
}

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorSuite, testing::Values(&Ucx<kSharedBytesMax>));
INSTANTIATE_TEST_SUITE_P(UcxMessages, CommunicatorSuite, testing::Values(&Ucx<0>));
INSTANTIATE_TEST_SUITE_P(UcxTwoNodes, CommunicatorSuite, testing::Values(&Ucx<kSharedBytesMax, 2>));
INSTANTIATE_TEST_SUITE_P(UcxThreeNodes, CommunicatorSuite, testing::Values(&Ucx<kSharedBytesMax, 3>));
INSTANTIATE_TEST_SUITE_P(UcxEqualNodes, CommunicatorSuite, testing::Values(&Ucx<kSharedBytesMax, -2>));
INSTANTIATE_TEST_SUITE_P(UcxBoth, CommunicatorSuite, testing::Values(&Ucx<2048>));

}  // namespace
}  // namespace hir::comm
