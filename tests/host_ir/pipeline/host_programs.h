// The host programs with events that goldens and the corpus have or come to, and their concrete runs. For tests.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/ir/graph.h"
#include "tests/host_ir/pipeline/concrete_order.h"

namespace hir::host {

using KnownSizes = std::map<std::string, int64_t, std::less<>>;

struct EventProgram {
  std::string name;
  std::unique_ptr<ir::Graph> graph;
  bool finished = false;  // By the passes: elide_waits has been there.
  KnownSizes sizes = {};  // That the corpus runs it with.
};

// What the verifier accepts, each text once: the host programs of goldens, as they stand and finished, and the plans of
// golden and corpus programs, with 1, 2, 3 and 8 streams where they have loops, with overlap and without.
struct EventPrograms {
  std::vector<EventProgram> programs;
  int64_t without_events = 0;
  int64_t plans = 0;
};
const EventPrograms& AllEventPrograms();

// The runs of a program on all its ranks, for sizes that it can have; those that are not known at most `most`.
struct ConcreteRuns {
  std::vector<ConcreteRun> runs;
  int64_t sizes = 0;  // How many.
  Status refused;     // Why it cannot have the last that it cannot have.
};
ConcreteRuns RunsOf(const ir::Graph& graph, const KnownSizes& sizes, int64_t most = 384);
// The first of any run.
std::optional<std::string> FindRace(const ConcreteRuns& runs, const DroppedOps& dropped);

}  // namespace hir::host
