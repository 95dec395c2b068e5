// The communicator suite on simulated ranks, undisturbed and with random delays.
#include "csrc/device/host/host_device.h"
#include "multidevice/comm/local/world.h"
#include "tests/conformance/communicator_suite.h"

namespace hir::comm {
namespace {

class LocalBackend final : public CommBackend {
 public:
  explicit LocalBackend(base::Nanos random_delay_max) : random_delay_max_(random_delay_max) {}

  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    const auto world =
        World::Create({.size = size, .seed = 7, .op_timeout = op_timeout, .random_delay_max = random_delay_max_});
    world->Run([&](int64_t rank) {
      const auto device = *device::CreateHostDevice({.name = base::Cat("host:", rank)}, world->executor(rank));
      const auto comm = world->Join(rank);
      body(*comm, *device);
    });
  }

 private:
  const base::Nanos random_delay_max_;
};

std::unique_ptr<CommBackend> Prompt() { return std::make_unique<LocalBackend>(base::Nanos()); }
std::unique_ptr<CommBackend> Delayed() { return std::make_unique<LocalBackend>(std::chrono::milliseconds(1)); }

INSTANTIATE_TEST_SUITE_P(Local, CommunicatorSuite, testing::Values(&Prompt));
INSTANTIATE_TEST_SUITE_P(LocalWithDelays, CommunicatorSuite, testing::Values(&Delayed));

}  // namespace
}  // namespace hir::comm
