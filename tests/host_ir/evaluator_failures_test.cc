// Runs that go wrong: every rank ends with the first cause, under the name of the communication
// that was under way.
#include <gtest/gtest.h>

#include "csrc/ir/parse.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/passes.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {
namespace {

constexpr std::string_view kProgram = R"(mesh @m = [0, 1, 2]
host @p(%x: i64[4], %y: i64[4], %z: i64[3, 4]) {
  communication(%x, %y) {type=allreduce, reduce=sum, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=0}
  launch(%y, %x) {kernel="mix_1_1", inputs=1, outputs=1, workspaces=0, extents=[4, 0], grid=4, stream=0}
  communication(%x, %z) {type=allgather, reduce=none, mesh=@m, dim=mesh_x, to=@m, stream=0, seq=1}
  return %x alias %x, %y, %z
})";

std::vector<RankResult> RunProgram(const comm::WorldOptions& world,
                                   std::function<void(Evaluator&, int64_t rank)> after_run = {}) {
  auto graph = ir::Parse(kProgram, kHostOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_TRUE(FinishProgram(**graph).ok());
  const auto program = HostProgram::Load(std::move(*graph));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return RunSimulated({.program = program->get(),
                       .num_ranks = 3,
                       .world = world,
                       .after_run = std::move(after_run),
                       .params = [](int64_t) {
                         return std::vector<Values>{Values(4), Values(4), Values(12)};
                       }});
}

TEST(EvaluatorFailures, AStuckRankIsNamed) {
  const auto results = RunProgram({.op_timeout = std::chrono::seconds(5), .deaths = {{.rank = 2, .seq = 1}}});
  for (size_t rank : {0, 1}) {
    EXPECT_EQ(results[rank].status.ToString(),
              "DEADLINE_EXCEEDED: program @p: allgather #1 (%x -> %z): rank 2 has not entered "
              "allgather #1; 2 peers "
              "waiting 5.0 s");
  }
}

TEST(EvaluatorFailures, ADeadRankIsNamed) {
  const auto results = RunProgram({.deaths = {{.rank = 1, .seq = 0, .noticed_after = std::chrono::milliseconds(100)}}});
  for (size_t rank : {0, 2}) {
    EXPECT_EQ(results[rank].status.ToString(), "UNAVAILABLE: program @p: allreduce #0 (%x -> %y): rank 1 died");
  }
}

TEST(EvaluatorFailures, ALostMessageMissesTheDeadline) {
  const auto results = RunProgram({.losses = {{.from = 0, .to = 1, .seq = 0}}});
  for (const RankResult& result : results)
    EXPECT_EQ(result.status.code(), Code::kDeadlineExceeded) << result.status.ToString();
}

// Rank 2 hangs; the others are told to give up, rank 0 twice: the first cause stays.
TEST(EvaluatorFailures, AnAbortedRunEndsWithItsFirstCause) {
  const auto results = RunProgram({.op_timeout = std::chrono::hours(1), .deaths = {{.rank = 2, .seq = 0}}},
                                  [](Evaluator& evaluator, int64_t rank) {
                                    if (rank == 2) return;
                                    evaluator.Abort(Unavailable(base::Cat("rank ", rank, " was told to stop")));
                                    evaluator.Abort(Internal("too late"));
                                  });
  for (size_t rank : {0, 1}) {
    EXPECT_EQ(results[rank].status.code(), Code::kUnavailable) << results[rank].status.ToString();
    EXPECT_NE(results[rank].status.message().find("was told to stop"), std::string::npos);
  }
}

}  // namespace
}  // namespace hir::host
