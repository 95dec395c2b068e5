// Goal: a program computes the same with and without stream axes. Method: random programs, on one device and sharded,
// get random stream axes (whole axes, splits, merges, nested, on reduced axes) and run with 1, 2, 3 and 8 streams on
// simulated ranks, whose messages have random delays, and over UCX; the values are compared with the interpreter's on
// the program as it was written. HOSTIR_SEEDS=334 runs 1,002 programs on either.
#include <gtest/gtest.h>

#include <iostream>
#include <ostream>

#include "csrc/base/text.h"
#include "multidevice/comm/ucx/ucx.h"
#include "tests/property/run_on_ranks.h"
#include "tests/property/sharded_programs.h"

namespace hir::testing {
namespace {

struct StreamCase {
  std::string name;
  std::vector<int64_t> mesh;  // Empty: programs without one.
  int64_t ranks;
  uint64_t first_seed;
};
void PrintTo(const StreamCase& c, std::ostream* out) { *out << c.name << ", seeds from " << c.first_seed; }

class StreamProperty : public ::testing::TestWithParam<StreamCase> {};

constexpr std::string_view kRefused = "reshape needs more than one chunk of its operands for a chunk of it";

// `ranks` null: simulated ones.
void RunSeeds(const StreamCase& c, uint64_t count, Ranks* ranks) {
  codegen::cpu::Compiler compiler({});
  const Seeds seeds = SeedsFromEnvironment({.first = c.first_seed, .count = count});
  StreamTally tally;
  int64_t loops = 0, shared = 0;
  uint64_t refused = 0;
  for (uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    auto made = MakeShardedProgram(seed, c.mesh, c.ranks, {}, StreamsOf(seed));
    // Whether a loop can make a reshape's chunk is asked before axes are split over ranks: of merged ones it may not.
    if (made.status().code() == Code::kUnimplemented && made.status().message().find(kRefused) != std::string::npos) {
      ++refused;
      continue;
    }
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    SCOPED_TRACE(base::Cat(made->program.Describe(), host::DescribeSegments(made->plan)));
    auto outputs = RunOnRanks(made->plan, made->program.inputs,
                              {.num_ranks = c.ranks, .seed = seed, .ranks = ranks, .compiler = &compiler});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (size_t i = 0; i < made->expected.size(); ++i) {
      ASSERT_EQ(Difference((*outputs)[i], made->expected[i], made->program.tolerances[i]), "") << "output " << i;
    }
    tally.Add(made->streams);
    for (const host::LoweredSegment& segment : made->plan.segments) {
      loops += segment.kind == host::SegmentKind::kLoop ? 1 : 0;
      shared += segment.loop != nullptr ? 1 : 0;
    }
  }
  std::cout << seeds.count << " programs equal on " << (ranks == nullptr ? "simulated ranks" : "UCX") << ", seeds from "
            << seeds.first << " but " << refused << " that were refused: " << loops << " loops with " << shared
            << " segments; " << tally.Describe() << "\n";
  EXPECT_TRUE(seeds.count < 30 || loops > 0);
  EXPECT_LE(refused * 20, seeds.count);
}

TEST_P(StreamProperty, EqualsTheProgramWithoutLoops) { RunSeeds(GetParam(), 60, nullptr); }

TEST_P(StreamProperty, EqualsItOverUcx) {
  if (!comm::HasUcx()) GTEST_SKIP() << "this build has no UCX";
  auto ranks = MakeUcxRanks(GetParam().ranks);
  ASSERT_TRUE(ranks.ok()) << ranks.status().ToString();
  RunSeeds(GetParam(), 15, ranks->get());
}

INSTANTIATE_TEST_SUITE_P(Programs, StreamProperty,
                         ::testing::Values(StreamCase{"one_device", {}, 1, 10000}, StreamCase{"mesh_2", {2}, 2, 20000},
                                           StreamCase{"mesh_2_2", {2, 2}, 4, 30000}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hir::testing
