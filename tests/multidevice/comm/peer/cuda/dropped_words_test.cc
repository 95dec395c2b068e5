// Goal: every word that ranks give each other is needed. Method: short programs of all
// that goes by words, on the fake driver. Each take of a word, each record and each wait for one is left out of what
// was queued in turn: then two ops that touch the same bytes are in no order (word_trace.h). Without a give, something
// waits for ever.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/multidevice/comm/peer/cuda/peer_programs.h"

namespace hir::comm {
namespace {

using device::Fake;
using Kind = device::FakeQueued::Kind;
using base::Cat;

std::vector<PeerProgram> Programs(int64_t ranks, int64_t calls, double pieces) {
  PeerProgram plain = {.ranks = ranks, .calls = calls, .pieces = pieces};
  std::vector<PeerProgram> programs;
  const auto add = [&](std::string name, CommType type, auto... set) {
    PeerProgram& program = programs.emplace_back(plain);
    program.name = Cat(name, " of ", ranks, ", ", calls, " times ", pieces, " pieces");
    program.type = type;
    ((program.*set = true), ...);
  };
  add("allgather", CommType::kAllgather);
  add("reduce_scatter", CommType::kReduceScatter);
  add("all_to_all", CommType::kAllToAll);
  add("all_to_all in place", CommType::kAllToAll, &PeerProgram::in_place);
  add("allreduce", CommType::kAllreduce);
  add("permute", CommType::kCollectivePermute);
  add("permute in place", CommType::kCollectivePermute, &PeerProgram::in_place);
  add("put", CommType::kCollectivePermute, &PeerProgram::windows);
  add("allgather on two streams", CommType::kAllgather, &PeerProgram::two_streams);
  return programs;
}

WordTrace TraceOf(const PeerProgram& program) {
  FakePeers backend(kAllByCopies, kSmallTeamBytes);
  Fake().on_queue = &RecordQueued;
  PeerProgramRun run(program);
  run.Run(backend, kAmple);
  for (const Status& status : run.statuses()) EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(run.wrong().empty()) << run.wrong()[0];
  return run.Trace();
}

// Those of `free` that order nothing, by what is proved here. The message of a phase goes in rounds, with two halves of
// a piece in turn; a receiver gives them back in the order of the rounds.
int64_t NeedlessTakes(const PeerProgram& program) {
  if (program.windows || program.pieces <= 1) return 0;
  const bool ring = program.type == CommType::kCollectivePermute;
  const int64_t words = program.ranks * (ring ? 1 : program.ranks - 1);  // Of one half.
  const int64_t phases = program.calls * (program.type == CommType::kAllreduce ? 2 : 1);
  const bool three_rounds = program.pieces < 3;
  // In place, who sends to me also receives from me, in turn and on one stream: its next piece says that it has taken
  // my last one, before I use that half again. Not so from the last of three rounds to the first of the next call,
  // which use one half: of these takes only that of the very last round is needless.
  if (program.in_place && (!ring || program.ranks == 2)) return words * (three_rounds ? program.calls + 1 : 4 * phases);
  // Of three rounds the second alone uses the second half. The first took the half that the third of the phase before
  // gave back, behind the second half.
  return three_rounds ? words * phases : 0;
}

// What joins the stream that sends with the caller's, after the first phase of an allreduce. All that a rank sends
// there goes into parts of the result, and it has those when the second phase is over.
int64_t NeedlessJoins(const PeerProgram& program) {
  return program.type == CommType::kAllreduce && program.pieces > 1 ? program.ranks * program.calls : 0;
}

TEST(DroppedWords, ATakeLeftOutIsARaceAGiveAHang) {
  int64_t num_takes = 0, takes_needless = 0, num_events = 0, events_needless = 0, num_gives = 0, not_awaited = 0;
  for (const int64_t ranks : {2, 3}) {
    for (const double pieces : {0.7, 2.5, 3.5}) {
      for (const PeerProgram& program : Programs(ranks, 3, pieces)) {
        SCOPED_TRACE(program.name);
        const WordTrace trace = TraceOf(program);
        const WordTrace::Outcome whole = trace.Run({}), words = trace.RunWords({});
        ASSERT_TRUE(whole.fine() && words.fine()) << whole.conflict << words.conflict;
        ASSERT_GT(trace.num_conflicts(), 10u);
        std::string needless;
        int64_t of_takes = 0, of_events = 0;
        for (const OpName& take : trace.All(Kind::kTakeWord)) {
          ++num_takes;
          if (!trace.Run(take).fine()) continue;
          ++of_takes;
          base::Append(needless, trace.Name(take), "\n");
        }
        size_t last_gives = 0;  // Of words that were 1 in the beginning: the next call would wait for them.
        for (const OpName& give : trace.All(Kind::kWriteWord)) {
          ++num_gives;
          const WordTrace::Outcome without = trace.Run(give);
          EXPECT_EQ(without.conflict, "") << trace.Name(give);
          if (!without.stuck) ++last_gives;
        }
        EXPECT_EQ(last_gives, trace.num_given());
        not_awaited += static_cast<int64_t>(last_gives);
        std::set<OpName> events;  // Waits, and the records that they are for.
        for (const OpName& wait : trace.All(Kind::kWait)) {
          events.insert(wait);
          if (const auto record = trace.RecordOf(wait)) events.insert(*record);
        }
        for (const OpName& op : events) {
          ++num_events;
          if (!trace.Run(op).fine() || !trace.RunWords(op).fine()) continue;
          ++of_events;
          base::Append(needless, trace.Name(op), "\n");
        }
        EXPECT_EQ(of_takes, NeedlessTakes(program)) << needless;
        EXPECT_EQ(of_events, 2 * NeedlessJoins(program)) << needless;
        if (of_takes + of_events > 0) {
          std::cout << program.name << ": proven needless: " << of_takes << " takes, " << of_events
                    << " records and waits\n";
        }
        takes_needless += of_takes;
        events_needless += of_events;
      }
    }
  }
  std::cout << num_takes << " takes left out, " << takes_needless << " proven needless, the others races; " << num_gives
            << " gives, " << not_awaited << " for the next call, the others hangs; " << num_events
            << " records and waits, " << events_needless << " proven needless, the others races\n";
  EXPECT_GT(num_takes, 1000);
  EXPECT_GT(num_gives, 1000);
  EXPECT_GT(num_events, 500);
}

}  // namespace
}  // namespace hir::comm
