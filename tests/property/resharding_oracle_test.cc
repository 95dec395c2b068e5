// Goal: what the resharding planner plans moves the right elements, also when communicators carry it out. Method: the
// resharding oracle (resharding_oracle.h) on simulated ranks with random delays and over UCX, here on threads; by
// mpirun, on processes: tests/conformance/mpi/resharding_ranks.cc. HOSTIR_PAIRS=all runs every pair.
#include "tests/property/resharding_oracle.h"

#include <gtest/gtest.h>

#include <iostream>

#include "csrc/codegen/cpu/cpu.h"
#include "csrc/codegen/disk_cache.h"
#include "multidevice/comm/ucx/ucx.h"
#include "tests/property/program_generator.h"

namespace hir::testing {
namespace {

constexpr int64_t kRanks = 6;  // What a mesh of 2x3 takes.

// `ranks` null: simulated ones.
void RunPairs(std::string_view backend, size_t count, Ranks* ranks) {
  codegen::cpu::Compiler compiler({.cache_directory = codegen::DefaultCacheDirectory()});
  const PairSample sample = DrawPairs(AllReshardingPairs(kRanks), count, 2);
  PairTally tally;
  for (size_t i = 0; i < sample.pairs.size(); ++i) {
    const RankRunOptions options = {
        .num_ranks = kRanks, .seed = sample.seed + i, .ranks = ranks, .compiler = &compiler};
    const Status status = CheckPair(sample.pairs[i], options, codegen::Target(), tally);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  std::cout << tally.Describe(backend, sample) << "\n  " << compiler.num_compiled() << " kernels compiled\n";
  ASSERT_EQ(tally.pairs, std::ssize(sample.pairs));
  if (sample.pairs.size() < count) return;
  EXPECT_GT(tally.refused, 0);
  EXPECT_GT(tally.meshes["dealt"], 0);
  for (const char* type : {"Gather", "Allgather", "Scatter", "Reduce", "Allreduce", "ReduceScatter", "Broadcast",
                           "SendRecv", "AllToAll", "CollectivePermute"}) {
    EXPECT_GT(tally.types[type], 0) << "no pair needs a " << type;
  }
}

TEST(ReshardingOracle, OnSimulatedRanks) { RunPairs("local", 90, nullptr); }

TEST(ReshardingOracle, OverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  auto ranks = MakeUcxRanks(kRanks);
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  RunPairs("ucx", 60, ranks->get());
}

// What finds nothing would find no mistake either.
TEST(ReshardingOracle, WrongValuesAreFound) {
  codegen::cpu::Compiler compiler({});
  const ReshardingPair pair = AllReshardingPairs(2).front();
  plan::Case what = pair.what;
  what.shape = pair.shapes.front();
  plan::PairProgram program = plan::MakePair(what, pair.from_mesh, pair.from, pair.to_mesh, pair.to);
  auto plan = host::PlanProgram(std::move(program.graph), {.num_devices = 2});
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const fusion::HostTensor wrong = plan::Counting(what.shape);
  const PartCheck equal = [](size_t, const fusion::HostTensor& got, const fusion::HostTensor& want) {
    return Difference(got, want, 0);
  };
  const Status status =
      CheckOnRanks(*plan, {&program.input, 1}, {&wrong, 1}, equal, {.num_ranks = 2, .compiler = &compiler});
  EXPECT_EQ(status.code(), Code::kInternal);
  EXPECT_NE(status.message().find("output 0: in its block ["), std::string::npos) << status.ToString();
}

TEST(ReshardingOracle, HasEveryPair) {
  // Of a mesh of two: whole, partial, and for each of 1, 2 and 3 axes split and dealt, before; not partial after. Each
  // of 4, 7 and 7 sizes, and of one of whole turns where anything is dealt.
  const std::vector<ReshardingPair> of_two = AllReshardingPairs(2);
  EXPECT_EQ(of_two.size(), 4U * 3 + 6 * 5 + 8 * 7);
  EXPECT_EQ(of_two.front().shapes.size(), 4U);
  EXPECT_EQ(of_two.back().shapes.size(), 8U);
  size_t runs = 0;
  for (const ReshardingPair& pair : AllReshardingPairs(6)) runs += pair.shapes.size();
  EXPECT_GT(runs, 10'000U);
}

}  // namespace
}  // namespace hir::testing
