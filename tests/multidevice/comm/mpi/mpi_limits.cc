// What comm/mpi refuses. Run by mpirun: MPI starts by itself.
#include <gtest/gtest.h>

#include <numeric>

#include "csrc/base/text.h"
#include "csrc/device/host/host_device.h"
#include "multidevice/comm/mpi/mpi.h"
#include "multidevice/rendezvous/mpi/mpi.h"

namespace hir::comm {
namespace {

using base::Cat;

// As if there was memory: what is refused is not touched.
device::Buffer Pretend(int64_t address, int64_t bytes) { return {reinterpret_cast<std::byte*>(address), bytes}; }

TEST(Mpi, CountsInInt) {
  const auto ranks = MpiRendezvous::Start();
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  const int64_t size = (*ranks)->size();
  const auto device = *device::CreateHostDevice({});
  const auto stream = *device->CreateStream();
  const auto comm = CreateMpi({.rank = (*ranks)->rank(), .size = size}, **ranks);
  ASSERT_TRUE(comm.ok()) << comm.status().ToString();
  std::vector<int64_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  const TeamId team = *(*comm)->Team(all, 0);
  // A permutation in which no rank has a half: nothing moves, whatever the count. Its buffers hold one chunk, on any
  // number of ranks.
  CommDesc desc = {
      .type = CommType::kCollectivePermute, .team = team, .dtype = DType::kBool, .count = kMpiElementsMax, .seq = 4};
  EXPECT_EQ((*comm)->Post(desc, *stream).ToString(), "OK");
  desc.count += 1;
  EXPECT_EQ((*comm)->Post(desc, *stream).ToString(),
            "RESOURCE_EXHAUSTED: collective_permute #4: a buffer of 1 x 2147483648 elements, limit "
            "mpi_elements_max: 2147483647; take a smaller tensor, or another backend");
  // Those of an allgather hold a chunk of each rank.
  desc.type = CommType::kAllgather;
  desc.count = kMpiElementsMax / size + 1;
  desc.src = Pretend(int64_t{1} << 36, desc.count);
  desc.dst = Pretend(int64_t{1} << 40, size * desc.count);
  EXPECT_EQ((*comm)->Post(desc, *stream).ToString(),
            Cat("RESOURCE_EXHAUSTED: allgather #4: a buffer of ", size, " x ", desc.count,
                " elements, limit mpi_elements_max: 2147483647; take a smaller tensor, or another "
                "backend"));
  EXPECT_EQ(stream->Synchronize(std::chrono::seconds(20)).ToString(), "OK");
  EXPECT_EQ(CreateMpi({.rank = 0, .size = size + 1}, **ranks).status().ToString(),
            Cat("INVALID_ARGUMENT: mpi: size is ", size + 1, "; mpirun started ", size, " ranks"));
  EXPECT_EQ(CreateMpi({.rank = size, .size = size}, **ranks).status().ToString(),
            Cat("INVALID_ARGUMENT: mpi: rank ", size, " is not in [0, ", size, ")"));
}

}  // namespace
}  // namespace hir::comm
