// The resharding oracle on processes. Run by mpirun.
#include <gtest/gtest.h>

#include <iostream>

#include "csrc/base/text.h"
#include "tests/conformance/mpi/process_rank.h"
#include "tests/multidevice/rendezvous/mpi/mpi_ranks.h"
#include "tests/property/resharding_oracle.h"
#include "tools/eval/device_kind.h"

namespace hir::testing {
namespace {

constexpr int64_t kPairsBetweenWords = 250;

void RunPairs(std::string_view comm, const rank::Backends& backends, size_t count) {
  OnProcessRanks(backends, [&](const RankRunOptions& options, const codegen::Target& target) {
    const PairSample sample = DrawPairs(AllReshardingPairs(options.num_ranks), count, 1);
    PairTally tally;
    for (const ReshardingPair& pair : sample.pairs) {
      const Status status = CheckPair(pair, options, target, tally);
      ASSERT_TRUE(status.ok()) << status.ToString();
      if (tally.pairs % kPairsBetweenWords == 0 && comm::Ranks().rank() == 0)
        std::cout << comm << ": " << tally.pairs << " of " << sample.pairs.size() << " pairs equal" << std::endl;
    }
    ASSERT_EQ(tally.pairs, std::ssize(sample.pairs));
    if (comm::Ranks().rank() == 0)
      std::cout << tally.Describe(base::Cat(comm, ", ", options.num_ranks, " processes"), sample) << "\n";
  });
}

TEST(Ucx, ReshardingOracle) { RunPairs("ucx", eval::CpuKind("ucx").backends, 60); }
TEST(Mpi, ReshardingOracle) { RunPairs("mpi", eval::CpuKind("mpi").backends, 60); }
TEST(Nccl, ReshardingOracle) { RunPairs("nccl", eval::CudaKind().backends, 30); }

}  // namespace
}  // namespace hir::testing
