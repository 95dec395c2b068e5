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
  explicit UcxBackend(int64_t shared_bytes_max) : shared_bytes_max_(shared_bytes_max) {}
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
  const int64_t shared_bytes_max_;
};

template <int64_t kBytesMax>
std::unique_ptr<CommBackend> Ucx() {
  return std::make_unique<UcxBackend>(kBytesMax);
}

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorSuite, testing::Values(&Ucx<kSharedBytesMax>));
INSTANTIATE_TEST_SUITE_P(UcxMessages, CommunicatorSuite, testing::Values(&Ucx<0>));
INSTANTIATE_TEST_SUITE_P(UcxBoth, CommunicatorSuite, testing::Values(&Ucx<2048>));

}  // namespace
}  // namespace hir::comm
