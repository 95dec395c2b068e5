// The communicator suite on processes: every rank is one that mpirun started, with the device and the communicator that
// hostir-eval would give it. Run by mpirun; all ranks run all tests in step.
#include <gtest/gtest.h>

#include <chrono>

#include "host_ir/rank/cpu/cpu_backends.h"
#include "host_ir/rank/cuda/cuda_backends.h"
#include "multidevice/comm/mpi/mpi.h"
#include "tests/conformance/communicator_suite.h"
#include "tests/conformance/mpi/rank_device.h"
#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"

namespace hir::comm {
namespace {

constexpr base::Nanos kTogether = std::chrono::seconds(60);

class ProcessBackend final : public CommBackend {
 public:
  // The communicator's name: "ucx", "mpi", "nccl".
  ProcessBackend(std::string comm, rank::Backends backends) : comm_(std::move(comm)), backends_(std::move(backends)) {}

  std::string Absent() const override {
    const Result<int64_t> device = DeviceOfRank(backends_);
    return device.ok() ? "" : device.status().ToString();
  }
  int64_t size_max() const override { return std::min<int64_t>(4, Ranks().size()); }
  // NCCL adds in an order of its own. Collectives of NCCL and MPI do not know who is missing.
  bool fixed_order() const override { return backends_.uses_host_memory; }
  bool names_missing_rank() const override { return comm_ == "ucx"; }

  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    static int64_t num_runs = 0;
    const int64_t generation = ++num_runs;
    if (Ranks().rank() < size) {
      const Result<int64_t> ordinal = DeviceOfRank(backends_);
      ASSERT_TRUE(ordinal.ok()) << ordinal.status().ToString();
      auto device = backends_.make_device({.rank = Ranks().rank(), .ordinal = *ordinal});
      ASSERT_TRUE(device.ok()) << device.status().ToString();
      auto comm = backends_.make_communicator({.rank = Ranks().rank(),
                                               .size = size,
                                               .generation = generation,
                                               .setup_timeout = kTogether,
                                               .op_timeout = op_timeout},
                                              Ranks(), **device);
      EXPECT_TRUE(comm.ok()) << comm.status().ToString();
      if (comm.ok()) body(**comm, **device);
      Meet(generation, size);  // A rank that is done early stays as long as others may wait for it.
    }
    Meet(-generation, Ranks().size());
  }

 private:
  static void Meet(int64_t place, int64_t size) {
    ASSERT_TRUE(Ranks().Publish(base::Cat("meet/", place, "/", Ranks().rank()), "").ok());
    for (int64_t peer = 0; peer < size; ++peer) {
      ASSERT_TRUE(Ranks().Get(base::Cat("meet/", place, "/", peer), kTogether).ok()) << "rank " << peer;
    }
  }

  const std::string comm_;
  const rank::Backends backends_;
};

Result<std::unique_ptr<Communicator>> MakeMpi(const rank::CommOptions& options, Rendezvous& rendezvous,
                                              device::Device&) {
  return CreateMpi({.rank = options.rank,
                    .size = options.size,
                    .generation = options.generation,
                    .setup_timeout = options.setup_timeout,
                    .op_timeout = options.op_timeout},
                   rendezvous);
}

std::unique_ptr<CommBackend> Nccl() { return std::make_unique<ProcessBackend>("nccl", rank::CudaBackends()); }
std::unique_ptr<CommBackend> Ucx() { return std::make_unique<ProcessBackend>("ucx", rank::CpuBackends()); }
std::unique_ptr<CommBackend> Mpi() {
  rank::Backends backends = rank::CpuBackends();
  backends.make_communicator = &MakeMpi;
  return std::make_unique<ProcessBackend>("mpi", std::move(backends));
}

INSTANTIATE_TEST_SUITE_P(Ucx, CommunicatorSuite, testing::Values(&Ucx));
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorSuite, testing::Values(&Mpi));
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorSuite, testing::Values(&Nccl));

}  // namespace
}  // namespace hir::comm
