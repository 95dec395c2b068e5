// Ranks that communicate by peer memory, on the fake CUDA driver and the fake libnccl, with the kernels as CPU code.
#pragma once

#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "multidevice/comm/peer/peer_memory.h"
#include "multidevice/rendezvous/memory.h"
#include "tests/conformance/communicator_suite.h"
#include "tests/multidevice/comm/nccl/fake_cuda_streams.h"
#include "tests/multidevice/comm/peer/cpu_kernels.h"

namespace hir::comm {

class FakePeers final : public CommBackend {
 public:
  // Of device memory; 0: as much as there is.
  void set_bytes_max(int64_t (*bytes_max)(int64_t rank)) { bytes_max_ = bytes_max; }
  // This rank's communications have so much more time.
  void give_time(int64_t rank, base::Nanos more) {
    late_rank_ = rank;
    more_time_ = more;
  }
  // Others run at the same time: these ranks have devices from `first_device` on, and whoever runs them all sees that
  // nothing is left behind.
  void run_beside_others(int64_t first_device) {
    first_device_ = first_device;
    alone_ = false;
  }
  explicit FakePeers(PeerPaths paths, int64_t team_bytes = int64_t{1} << 20) : paths_(paths), team_bytes_(team_bytes) {
    device::Fake().Reset();
    device::Fake().num_devices = 4;
    device::Fake().memory_bytes = int64_t{8} << 30;  // A slab begins with 256 MiB.
  }
  bool fixed_order() const override { return false; }
  bool names_missing_rank() const override { return false; }
  void Run(int64_t size, base::Nanos op_timeout,
           const std::function<void(Communicator&, device::Device&)>& body) override {
    MemoryRendezvous rendezvous;
    std::barrier all(size);
    std::atomic<int64_t> teams = 0, refused = 0;
    {
      std::vector<std::jthread> threads;
      for (int64_t rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank, timeout = op_timeout + (rank == late_rank_ ? more_time_ : base::Nanos())] {
          const auto device = *device::OpenCudaDevice(
              {.ordinal = first_device_ + rank, .memory_bytes_max = bytes_max_(rank), .driver = HIR_FAKE_CUDA});
          auto peers = PeerMemory::Create({.rank = rank,
                                           .size = size,
                                           .generation = 3,
                                           .setup_timeout = std::chrono::seconds(20),
                                           .op_timeout = timeout,
                                           .device = device.get(),
                                           .compile = &CompilePeerForCpu,
                                           .team_bytes = team_bytes_,
                                           .paths = paths_},
                                          rendezvous);
          ASSERT_TRUE(peers.ok()) << peers.status().ToString();
          NcclOptions options = FakeGpuOptions(rank, size, *device);
          options.op_timeout = timeout;
          options.peers = *std::move(peers);
          auto comm = CreateNccl(options, rendezvous);
          EXPECT_TRUE(comm.ok()) << comm.status().ToString();
          if (comm.ok()) body(**comm, *device);
          teams += options.peers->num_teams();
          refused += options.peers->num_refused();
          all.arrive_and_wait();  // A rank that is done early stays as long as others may need it.
        });
      }
    }
    EXPECT_TRUE(!alone_ || device::Fake().live_objects == 0) << device::Fake().live_objects;
    // Else NCCL alone would pass.
    EXPECT_EQ(refused > 0, bytes_max_(1) > 0) << teams << " teams with peer memory, " << refused << " without";
  }

 private:
  const PeerPaths paths_;
  const int64_t team_bytes_;
  int64_t first_device_ = 0;
  int64_t late_rank_ = -1;
  base::Nanos more_time_ = {};
  bool alone_ = true;
  int64_t (*bytes_max_)(int64_t rank) = [](int64_t) { return int64_t{0}; };
};

}  // namespace hir::comm
