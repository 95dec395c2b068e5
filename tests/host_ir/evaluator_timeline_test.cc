// Goal: a run with a timeline gives what any run gives, and for each piece of work and each wait a span on its stream.
// Method: a hand-written program on simulated ranks; spans in order, on each stream one behind the other; a program
// that fails.
#include <gtest/gtest.h>

#include <map>

#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {
namespace {

// Two streams with an event between them, a loop of three rounds, a group of which each rank takes part in both.
constexpr std::string_view kProgram = R"(mesh @m = [0, 1]
host @p(%x: i64[4], %y: i64[4], %z: i64[4], %sum: i64[4], %most: i64[4]) {
  %e: event[1] = event()
  launch(%x, %y) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[4, 1], grid=4, stream=0}
  record(%e) {index=0, stream=0}
  wait(%e) {index=0, stream=1}
  for() {begin=0, end=3, step=1} { |%i: index|
    launch(%y, %z) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[4, 1], grid=4, stream=1}
  }
  group() {
    communication(%y, %sum) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=4}
    communication(%x, %most) {type=allreduce, reduce=max, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=5}
  }
  return %y, %z, %sum, %most
})";

SimulatedRun RunOf(const HostProgram& program, uint64_t seed) {
  return {.program = &program, .num_ranks = 2, .seed = seed, .num_runs = 2, .params = [](int64_t rank) {
            const int64_t r = 10 * rank;
            return std::vector<Values>{{r, r + 1, r + 2, r + 3}, Values(4), Values(4), Values(4), Values(4)};
          }};
}

TEST(EvaluatorTimeline, EachPieceOfWorkHasASpan) {
  auto graph = ir::Parse(kProgram, kHostOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto program = HostProgram::Load(std::move(*graph));
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SimulatedRun run = RunOf(**program, seed);
    const auto plain = RunSimulated(run);
    run.timeline = true;
    const auto marked = RunSimulated(run);
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(marked[rank].status.ToString(), "OK") << "seed " << seed;
      EXPECT_EQ(marked[rank].params, plain[rank].params);
      EXPECT_TRUE(plain[rank].spans.empty());
      std::string names;
      std::map<int, base::Nanos> over;  // By stream.
      for (const OpSpan& span : marked[rank].spans) {
        base::Append(names, names.empty() ? "" : ", ", NameOf(*span.op), "@", span.stream);
        EXPECT_LE(span.queued, span.queued_end);
        EXPECT_LE(span.began, span.ended);
        // The members of a group have one time.
        if (span.op->info->name != "communication") {
          EXPECT_LE(over[span.stream], span.began) << names;
        }
        over[span.stream] = span.ended;
      }
      const std::string once = "mix_1_1@0, wait %e@1, mix_1_1@1, mix_1_1@1, mix_1_1@1, allreduce #4@0, allreduce #5@0";
      EXPECT_EQ(names, once + ", " + once) << "rank " << rank;
    }
  }
}

TEST(EvaluatorTimeline, ARunThatFailsHasNone) {
  auto graph = ir::Parse(kProgram, kHostOps);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  const auto program = HostProgram::Load(std::move(*graph));
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  SimulatedRun run = RunOf(**program, 1);
  run.timeline = true;
  run.world.losses = {{.from = 0, .to = 1, .seq = 5}};
  const auto marked = RunSimulated(run);
  for (const RankResult& result : marked) {
    EXPECT_FALSE(result.status.ok());
    EXPECT_TRUE(result.spans.empty());
  }
}

}  // namespace
}  // namespace hir::host
