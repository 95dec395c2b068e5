// What comm/mpi refuses. One process: MPI starts by itself.
#include <gtest/gtest.h>

#include "csrc/device/host/host_device.h"
#include "multidevice/comm/mpi/mpi.h"
#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::comm {
namespace {

TEST(Mpi, CountsInInt) {
  const auto ranks = MpiRendezvous::Start();
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  const auto device = *device::CreateHostDevice({});
  const auto stream = *device->CreateStream();
  const auto comm = CreateMpi({.rank = 0, .size = 1}, **ranks);
  ASSERT_TRUE(comm.ok()) << comm.status().ToString();
  const TeamId team = *(*comm)->Team(std::vector<int64_t>{0}, 0);
  // A permutation in which this rank has neither half: nothing moves, whatever the count.
  CommDesc desc = {.type = CommType::kCollectivePermute,
                   .team = team,
                   .dtype = DType::kBool,
                   .count = kMpiElementsMax,
                   .seq = 4};
  EXPECT_EQ((*comm)->Post(desc, *stream).ToString(), "OK");
  desc.count += 1;
  EXPECT_EQ(
      (*comm)->Post(desc, *stream).ToString(),
      "RESOURCE_EXHAUSTED: collective_permute #4: 2147483648 elements of each of 1 ranks, limit "
      "mpi_elements_max: 2147483647");
  EXPECT_EQ(stream->Synchronize(std::chrono::seconds(20)).ToString(), "OK");
  EXPECT_EQ(CreateMpi({.rank = 0, .size = 2}, **ranks).status().ToString(),
            "INVALID_ARGUMENT: mpi: size is 2; mpirun started 1 ranks");
  EXPECT_EQ(CreateMpi({.rank = 1, .size = 1}, **ranks).status().ToString(),
            "INVALID_ARGUMENT: mpi: rank 1 is not in [0, 1)");
}

}  // namespace
}  // namespace hir::comm
