// Random host programs: with streams, events and a planned pool, and any delays, they compute what
// they compute in program order; and every wait of theirs is needed.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "csrc/ir/clone.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/order_streams.h"
#include "host_ir/passes/passes.h"
#include "host_ir/verify/verify.h"
#include "tests/from_environment.h"
#include "tests/host_ir/random_program.h"
#include "tests/host_ir/simulated_ranks.h"

namespace hir::host {
namespace {

using Graph = std::unique_ptr<ir::Graph>;

Graph ParseProgram(const RandomProgram& random) {
  auto graph = ir::Parse(random.text, kUnorderedHostOps);
  EXPECT_TRUE(graph.ok()) << graph.status().ToString() << "\n" << random.text;
  return graph.ok() ? std::move(*graph) : nullptr;
}

// count: the value of n.
SimulatedRun RunOf(const RandomProgram& random, const HostProgram& program, uint64_t seed, int64_t count = 0) {
  SimulatedRun run = {.program = &program, .num_ranks = random.num_ranks, .seed = seed, .num_streams = 8};
  if (random.counts) run.symbols = {count};
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

void SetStreams(ir::Graph& graph, const std::function<const ir::Expr*(ir::Op*)>& stream_of) {
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    for (ir::Attr& attr : op->attrs) {
      if (attr.name == "stream") attr.value = stream_of(op);
    }
  });
}

Result<std::string> InProgramOrder(const RandomProgram& random, int64_t count = 0) {
  Graph graph = ParseProgram(random);
  SetStreams(*graph, [&](ir::Op*) { return graph->exprs().Const(0); });
  HIR_TRY(RunHostPasses(*graph, "deallocate"));
  HIR_ASSIGN(const auto program, HostProgram::Load(std::move(graph)));
  return Outcome(RunOf(random, *program, 0, count));
}

// Every queued op on a stream of its own choice; in loops that is often one that goes with the index.
void ScatterStreams(ir::Graph& graph, uint64_t seed) {
  base::Prng random(seed);
  ir::ExprPool& pool = graph.exprs();
  SetStreams(graph, [&](ir::Op* op) {
    const ir::Op* const around = op->parent->owner;
    const bool loop = around != nullptr && CodeOf(*around) == HostOp::kFor;
    if (!loop || random.OneIn(2)) return pool.Const(random.Below(4));
    const ir::Expr* const index = pool.Symbol(base::Cat("%", around->blocks[0]->args[0]->name));
    const ir::Expr* const turn =
        pool.Mod(pool.Add(index, pool.Const(random.Below(3))), pool.Const(random.Between(2, 4)));
    return pool.Add(turn, pool.Const(random.Below(3)));
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

// HOSTIR_SEEDS=N runs N programs.
uint64_t Seeds(int64_t count) { return static_cast<uint64_t>(testing::FromEnvironment("HOSTIR_SEEDS", count)); }

constexpr comm::WorldOptions kDelays = {.random_delay_max = std::chrono::milliseconds(3)};

TEST(RandomHostPrograms, AnyOrderIsProgramOrder) {
  for (uint64_t seed = 1; seed <= Seeds(250); ++seed) {
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

// Loops on streams in turn, of a number of iterations that the program knows or not: none, few, more than are looked
// at.
TEST(RandomHostPrograms, AnyOrderIsProgramOrderOnStreamsInTurn) {
  int64_t turning_waits = 0;  // For an element that goes with an index.
  for (uint64_t seed = 1; seed <= Seeds(50); ++seed) {
    const RandomProgram random = ProgramGenerator(seed, /*alone=*/seed % 3 == 0, /*streams=*/true).Make();
    for (const bool scattered : {false, true}) {
      Graph graph = Ordered(random, scattered, seed);
      ASSERT_NE(graph, nullptr);
      const std::string text = ir::Print(*graph);
      auto program = HostProgram::Load(text);
      ASSERT_TRUE(program.ok()) << "seed " << seed << ": " << program.status().ToString() << "\n" << text;
      for (const int64_t count : {0, 1, 3, 40}) {
        const Result<std::string> want = InProgramOrder(random, count);
        ASSERT_TRUE(want.ok()) << "seed " << seed << ": " << want.status().ToString() << "\n" << random.text;
        for (uint64_t order = 1; order <= 2; ++order) {
          SimulatedRun run = RunOf(random, **program, order, count);
          run.world = kDelays;
          ASSERT_EQ(Outcome(run), *want) << "seed " << seed << ", n " << count << ", order " << order << "\n" << text;
        }
        if (!random.counts) break;
      }
      ir::ForEachOp(graph->body, [&](ir::Op* op) {
        turning_waits += CodeOf(*op) == HostOp::kWait && !op->ExprOf("index")->IsConst() ? 1 : 0;
      });
    }
  }
  EXPECT_GT(turning_waits, 100);
}

// Drops the `index`-th of the ops of a kind; false when there is none.
bool Drop(ir::Graph& graph, HostOp kind, int64_t index) {
  ir::Op* dropped = nullptr;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == kind && index-- == 0) dropped = op;
  });
  if (dropped != nullptr) dropped->parent->Erase(dropped);
  return dropped != nullptr;
}

struct Removed {
  int64_t waits = 0;
  int64_t shown = 0;  // Of these, how many changed a result when the program was run all the same.
};

// After elide_waits no wait is idle: without any one of them the verifier refuses the program. Nor is a record: what
// waits for it then has none.
void RemoveEach(const RandomProgram& random, const Graph& graph, uint64_t seed, Removed& removed) {
  const std::vector<int64_t> counts = {7, 0, 1, 3};  // Some waits are for short loops.
  std::vector<std::string> want;
  for (const int64_t count : counts) {
    const Result<std::string> outcome = InProgramOrder(random, count);
    ASSERT_TRUE(outcome.ok());
    want.push_back(*outcome);
  }
  for (int64_t index = 0;; ++index) {
    Graph broken = ir::Clone(*graph);
    if (!Drop(*broken, HostOp::kWait, index)) break;
    ++removed.waits;
    const Status refused = VerifyComplete(*broken);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << "seed " << seed << ", wait " << index << "\n"
                                                      << ir::Print(*graph);
    EXPECT_NE(refused.message().find("(H8)"), std::string::npos) << refused.ToString();
    const auto program = HostProgram::LoadUnchecked(std::move(broken));
    bool differs = false;
    for (uint64_t order = 1; order <= 12 && !differs; ++order) {
      const size_t which = order % counts.size();
      SimulatedRun run = RunOf(random, *program, order, counts[which]);
      run.world = kDelays;
      differs = Outcome(run) != want[which];
    }
    removed.shown += differs ? 1 : 0;
  }
  for (int64_t index = 0;; ++index) {
    Graph broken = ir::Clone(*graph);
    if (!Drop(*broken, HostOp::kRecord, index)) break;
    EXPECT_EQ(VerifyComplete(*broken).code(), Code::kInvalidArgument) << "seed " << seed << ", record " << index << "\n"
                                                                      << ir::Print(*graph);
  }
}

TEST(RandomHostPrograms, ARemovedWaitIsRefusedAndShows) {
  for (const bool streams : {false, true}) {
    Removed removed;
    for (uint64_t seed = 1; seed <= Seeds(streams ? 15 : 40); ++seed) {
      const RandomProgram random = ProgramGenerator(seed, /*alone=*/false, streams).Make();
      const Graph graph = Ordered(random, seed % 2 == 0, seed);
      ASSERT_NE(graph, nullptr);
      RemoveEach(random, graph, seed, removed);
    }
    std::printf("%lld waits removed, %lld of them changed a result\n", static_cast<long long>(removed.waits),
                static_cast<long long>(removed.shown));
    EXPECT_GT(removed.waits, 50);
    EXPECT_GT(removed.shown, removed.waits / (streams ? 3 : 2));
  }
}

}  // namespace
}  // namespace hir::host
