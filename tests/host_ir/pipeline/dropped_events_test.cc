// Goal: the verifier misses no order that a program needs, and finished programs have no event too many. Method: of the
// host programs of host_programs.h each wait is dropped in turn, each record, and each record with its waits. The
// verifier refuses what is left, or runs for concrete sizes prove that the event ordered nothing: every conflict is
// still in order on every rank.
#include <gtest/gtest.h>

#include <iostream>

#include "csrc/ir/clone.h"
#include "csrc/ir/print.h"
#include "host_ir/host_ops.h"
#include "host_ir/verify/verify.h"
#include "tests/host_ir/pipeline/host_programs.h"

namespace hir::host {
namespace {

enum Kind { kWait, kRecord, kRecordAndWaits, kKinds };
constexpr const char* kNames[kKinds] = {"waits", "records", "records with their waits"};

struct Verdicts {
  int64_t made = 0;
  int64_t h3 = 0, h8 = 0;  // Refused, by the rule.
  int64_t shown = 0;       // Of h8: some run has a conflict that nothing orders.
  int64_t needless = 0;    // Accepted, and proven to order nothing.
};

bool MayEqual(const ir::Expr* a, const ir::Expr* b) { return !a->IsConst() || !b->IsConst() || a->value == b->value; }

std::vector<ir::Op*> OpsOf(const ir::Graph& graph) {
  std::vector<ir::Op*> ops;
  ir::ForEachOp(graph.body, [&ops](ir::Op* op) { ops.push_back(op); });
  return ops;
}

// The ops to drop, by their place among all.
std::vector<std::vector<size_t>> Mutations(const std::vector<ir::Op*>& ops, Kind kind) {
  std::vector<std::vector<size_t>> all;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (CodeOf(*ops[i]) != (kind == kWait ? HostOp::kWait : HostOp::kRecord)) continue;
    std::vector<size_t>& dropped = all.emplace_back();
    dropped.push_back(i);
    for (size_t j = 0; kind == kRecordAndWaits && j < ops.size(); ++j) {
      if (CodeOf(*ops[j]) != HostOp::kWait || ops[j]->operands[0] != ops[i]->operands[0]) continue;
      if (MayEqual(ops[j]->ExprOf("index"), ops[i]->ExprOf("index"))) dropped.push_back(j);
    }
  }
  return all;
}

void DropEach(const EventProgram& program, const ConcreteRuns& runs, Kind kind, Verdicts& verdicts) {
  const std::vector<ir::Op*> ops = OpsOf(*program.graph);
  for (const std::vector<size_t>& places : Mutations(ops, kind)) {
    ++verdicts.made;
    const auto broken = ir::Clone(*program.graph);
    const std::vector<ir::Op*> copies = OpsOf(*broken);
    DroppedOps dropped;
    for (const size_t place : places) {
      dropped.insert(ops[place]);
      copies[place]->parent->Erase(copies[place]);
    }
    const Status status = VerifyHost(*broken);
    const std::optional<std::string> race = FindRace(runs, dropped);
    if (!status.ok()) {
      const bool by_h3 = status.message().find("(H3)") != std::string::npos;
      const bool by_h8 = status.message().find("(H8)") != std::string::npos;
      EXPECT_TRUE(by_h3 || by_h8) << status.ToString();
      verdicts.h3 += by_h3 ? 1 : 0;
      verdicts.h8 += by_h8 ? 1 : 0;
      verdicts.shown += by_h8 && race ? 1 : 0;
      if (by_h8 && !race) std::cout << "  in order for all sizes tried, and refused: " << status.message() << "\n";
      continue;
    }
    EXPECT_FALSE(race) << "the verifier accepts it, but " << race.value_or("") << "\n" << ir::Print(*broken);
    ++verdicts.needless;
    std::cout << "  nothing needs the " << ops[places[0]]->info->name << " of line " << ops[places[0]]->line << "\n";
  }
}

TEST(DroppedEvents, AreRefusedOrOrderNothing) {
  Verdicts finished[kKinds], written[kKinds];
  int64_t num_finished = 0, num_runs = 0, num_conflicts = 0;
  for (const EventProgram& program : AllEventPrograms().programs) {
    SCOPED_TRACE(program.name);
    std::cout << program.name << "\n";
    const ConcreteRuns runs = RunsOf(*program.graph, program.sizes);
    ASSERT_GT(runs.sizes, 0) << runs.refused.ToString();
    for (const ConcreteRun& run : runs.runs) num_conflicts += run.NumConflicts();
    num_runs += std::ssize(runs.runs);
    num_finished += program.finished ? 1 : 0;
    const std::optional<std::string> race = FindRace(runs, {});
    ASSERT_FALSE(race) << *race << "\n" << ir::Print(*program.graph);
    for (const Kind kind : {kWait, kRecord, kRecordAndWaits}) {
      DropEach(program, runs, kind, (program.finished ? finished : written)[kind]);
    }
  }
  const EventPrograms& all = AllEventPrograms();
  std::cout << all.programs.size() << " programs with events, " << num_finished << " of them finished; "
            << all.without_events << " without, from " << all.plans << " plans; " << num_runs << " runs with "
            << num_conflicts << " conflicts, all in order\n";
  for (const bool of_finished : {true, false}) {
    for (const Kind kind : {kWait, kRecord, kRecordAndWaits}) {
      const Verdicts& v = (of_finished ? finished : written)[kind];
      std::cout << (of_finished ? "finished: " : "as written: ") << v.made << " times " << kNames[kind] << " dropped; "
                << v.h3 << " refused by H3, " << v.h8 << " by H8 (" << v.shown << " shown by a run), " << v.needless
                << " needless\n";
      EXPECT_GT(v.made, 50);
      EXPECT_EQ(v.made, v.h3 + v.h8 + v.needless);
    }
  }
  for (const Verdicts& v : finished) EXPECT_EQ(v.needless, 0);
  // Waits that the passes leave and no run shows to be needed. In assign_streams/later_iteration, an element of a loop
  // too long to unroll is read, and which stream wrote it is not looked at; in rotating_symbolic and nested_guards the
  // rest of a division, behind a loop over the whole parts, is not seen to be apart from them.
  EXPECT_LE(finished[kWait].h8 - finished[kWait].shown, 12);
  // Those of goldens that show what is dropped: elide_waits/*, assign_streams/rotating_more_streams_than_slots.
  EXPECT_LE(written[kWait].needless, 7);
}

}  // namespace
}  // namespace hir::host
