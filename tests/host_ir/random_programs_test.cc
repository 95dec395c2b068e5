// Random host programs: with streams, events and a planned pool, and any delays, they compute what
// they compute in program order; and every wait of theirs is needed.
#include <gtest/gtest.h>

#include <cstdio>

#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/assign_streams.h"
#include "host_ir/passes/passes.h"
#include "host_ir/verify.h"
#include "tests/host_ir/random_program.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {
namespace {

using Graph = std::unique_ptr<ir::Graph>;

Graph ParseProgram(const RandomProgram& random) {
  auto graph = ir::Parse(random.text, kHostOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString() << "\n" << random.text;
  return graph.ok() ? std::move(*graph) : nullptr;
}

SimulatedRun RunOf(const RandomProgram& random, const HostProgram& program, uint64_t seed) {
  SimulatedRun run = {.program = &program, .num_ranks = random.num_ranks, .seed = seed};
  run.params = [&random](int64_t rank) {
    std::vector<Values> params;
    base::Prng values(static_cast<uint64_t>(rank) + 1);
    for (int64_t elements : random.param_elements) {
      Values& param = params.emplace_back();
      for (int64_t i = 0; i < elements; ++i) param.push_back(values.Below(1000));
    }
    return params;
  };
  return run;
}

// All ranks' parameters after the run, or the first error in front.
std::string Outcome(const SimulatedRun& run) {
  std::string text;
  for (const RankResult& result : RunSimulated(run)) {
    if (!result.status.ok()) return result.status.ToString();
    for (const Values& values : result.params) base::Append(text, base::JoinInts(values, " "), "\n");
  }
  return text;
}

Result<std::string> InProgramOrder(const RandomProgram& random) {
  Graph graph = ParseProgram(random);
  HIR_TRY(RunHostPasses(*graph, "deallocate"));
  HIR_ASSIGN(const auto program, HostProgram::Load(std::move(graph)));
  return Outcome(RunOf(random, *program, 0));
}

// Every queued op on a stream of its own choice.
void ScatterStreams(ir::Graph& graph, uint64_t seed) {
  base::Prng random(seed);
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    for (ir::Attr& attr : op->attrs) {
      if (attr.name == "stream") attr.value = graph.exprs().Const(random.Below(4));
    }
  });
}

// The program under streams of its own (scattered) or those of assign_streams, ready to run.
Graph Ordered(const RandomProgram& random, bool scattered, uint64_t seed) {
  Graph graph = ParseProgram(random);
  if (graph == nullptr) return nullptr;
  Status status;
  if (scattered) {
    ScatterStreams(*graph, seed);
    status = OrderStreams(*graph);
  }
  if (status.ok()) status = RunHostPasses(*graph, scattered ? "elide_waits,deallocate,check_complete" : kFinish);
  EXPECT_TRUE(status.ok()) << "seed " << seed << ": " << status.ToString() << "\n" << ir::Print(*graph);
  return status.ok() ? std::move(graph) : nullptr;
}

constexpr comm::WorldOptions kDelays = {.random_delay_max = std::chrono::milliseconds(3)};

TEST(RandomHostPrograms, AnyOrderIsProgramOrder) {
  for (uint64_t seed = 1; seed <= 250; ++seed) {
    const RandomProgram random = ProgramGenerator(seed).Make();
    const Result<std::string> want = InProgramOrder(random);
    ASSERT_TRUE(want.ok()) << "seed " << seed << ": " << want.status().ToString() << "\n" << random.text;
    for (const bool scattered : {false, true}) {
      Graph graph = Ordered(random, scattered, seed);
      ASSERT_NE(graph, nullptr);
      const std::string text = ir::Print(*graph);
      auto program = HostProgram::Load(text);  // From text: that round trip is part of it.
      ASSERT_TRUE(program.ok()) << "seed " << seed << ": " << program.status().ToString() << "\n" << text;
      for (uint64_t order = 1; order <= 3; ++order) {
        SimulatedRun run = RunOf(random, **program, order);
        run.world = kDelays;
        run.num_runs = order == 3 ? 2 : 1;
        ASSERT_EQ(Outcome(run), *want) << "seed " << seed << ", order " << order << "\n" << text;
      }
    }
  }
}

// Drops the `index`-th wait; false when there is none.
bool DropWait(ir::Graph& graph, int64_t index) {
  ir::Op* wait = nullptr;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kWait && index-- == 0) wait = op;
  });
  if (wait != nullptr) wait->parent->Erase(wait);
  return wait != nullptr;
}

// After elide_waits no wait is idle: without any one of them the verifier refuses the program, and if it is run all the
// same, some order of the work mostly shows.
TEST(RandomHostPrograms, ARemovedWaitIsRefusedAndShows) {
  int64_t removed = 0, shown = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RandomProgram random = ProgramGenerator(seed).Make();
    const Result<std::string> want = InProgramOrder(random);
    ASSERT_TRUE(want.ok());
    const Graph graph = Ordered(random, seed % 2 == 0, seed);
    ASSERT_NE(graph, nullptr);
    for (int64_t index = 0;; ++index) {
      Graph broken = ir::Clone(*graph);
      if (!DropWait(*broken, index)) break;
      ++removed;
      const Status refused = VerifyComplete(*broken);
      EXPECT_EQ(refused.code(), Code::kInvalidArgument) << "seed " << seed << ", wait " << index << "\n"
                                                        << ir::Print(*graph);
      EXPECT_NE(refused.message().find("(H8)"), std::string::npos) << refused.ToString();
      const auto program = HostProgram::LoadUnchecked(std::move(broken));
      bool differs = false;
      for (uint64_t order = 1; order <= 12 && !differs; ++order) {
        SimulatedRun run = RunOf(random, *program, order);
        run.world = kDelays;
        differs = Outcome(run) != *want;
      }
      shown += differs ? 1 : 0;
    }
  }
  std::printf("%lld waits removed, %lld of them changed a result\n", static_cast<long long>(removed),
              static_cast<long long>(shown));
  EXPECT_GT(removed, 50);
  EXPECT_GT(shown, removed / 2);
}

}  // namespace
}  // namespace hir::host
