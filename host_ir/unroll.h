// A host program as one rank runs it, op by op: blocks of `if` entered or left out, loops unrolled,
// views resolved to regions. The verifier, the passes and the pool planner all look at this.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"
#include "host_ir/host_ops.h"
#include "host_ir/region.h"

namespace hir::host {

// Ranks that run a program alike: in the same meshes, with the same values of the symbols that
// conditions use.
struct RankClass {
  int64_t rank = 0;                                      // The first of them.
  std::vector<int64_t> ranks = {};                       // All of them, ascending.
  std::vector<std::pair<std::string, int64_t>> symbols;  // Values all of them share.
};
// The classes of the devices of the program's meshes; of device 0 when there is no mesh. In order
// of the first rank.
std::vector<RankClass> RankClasses(const ir::Graph& graph);
// `rank` alone, every symbol of it known.
RankClass ClassOfOne(const ir::Graph& graph, int64_t rank);

// The value of `rank`, `@m.in`, `@m.x`, `@m.y` or `@m.z` for `rank`; nothing for another symbol.
std::optional<int64_t> RankSymbol(const ir::Graph& graph, std::string_view symbol, int64_t rank);

// What part `rank` has in a communication.
struct Part {
  bool sends = false;     // reads src
  bool receives = false;  // writes dst
};
Part PartOf(const ir::Op& communication, int64_t rank);

struct AccessedRegion {
  int operand = 0;
  Access access = Access::kNone;
  Region region;  // Of an output that may lie in the memory of an input: of that input.
  // What all iterations of the loops around come to that are not unrolled whole, one a loop, the innermost first.
  std::vector<std::shared_ptr<const Region>> hulls = {};
};

// A loop whose number of iterations is not known: it begins; an iteration is over, and perhaps it was the last; the
// last that is here is over.
enum class Turn : uint8_t { kNone, kBegins, kMayEnd, kEnds };

using Symbols = std::unordered_map<std::string_view, const ir::Expr*>;

// One op in the order in which the host meets it. Ops that are not queued (alloc, views)
// have no stream. A `for` is met at its turns alone.
struct Step {
  ir::Op* op = nullptr;
  const ir::Expr* stream = nullptr;
  const ir::Expr* any_stream = nullptr;  // The same, with the indices of loops left in of which not all is here.
  const ir::Expr* index = nullptr;       // Of the event.
  int group = -1;                        // Steps of one execution of a group share it.
  bool cut = false;                      // In a loop of which only the first iterations are here.
  std::vector<int> runs =
      {};             // Of such loops around, the innermost first: steps of one run of a loop share its number.
  int iteration = 0;  // Of the innermost loop around with turns: steps of one iteration share it. 0 in no such loop.
  Turn turn = Turn::kNone;
  std::shared_ptr<const Symbols> symbols = {};  // The values of those known here: of the rank, of loop indices.
  std::vector<AccessedRegion> accesses = {};
};

// What an access of a step with these `runs` comes to for a step with `other` runs: of loops around the first alone,
// all iterations.
const Region& SeenFrom(const std::vector<int>& other, const std::vector<int>& runs, const AccessedRegion& access);
// Whether the later access touches all that the earlier does, wherever they are seen from.
bool Replaces(const AccessedRegion& later, const AccessedRegion& earlier);

inline constexpr int64_t kStepsMax = 1 << 18;  // Ops met in one rank's run.

// Loops of a constant number of iterations, at most kIterationsMax, are unrolled whole; of others
// come as many as the `mod`s in their bodies need to repeat, at least two: what holds between them
// holds between later ones, and from outside all iterations are seen at once. A constant number of iterations then ends
// where all of them would, as far as the `mod`s show; one that is not known may end anywhere, also before the first.
inline constexpr int64_t kIterationsMax = 64;
inline constexpr int64_t kPeriodMax = 16;  // Of the `mod`s in the body of a loop that is not unrolled whole.

// Errors: kInvalidArgument for conditions and loop bounds that are not the same on all ranks where
// they must be (H15);
//         kUnimplemented for what cannot be followed, as streams of a longer period than kPeriodMax;
//         kResourceExhausted beyond kStepsMax.
Result<std::vector<Step>> Unroll(const ir::Graph& graph, const RankClass& ranks, ir::ExprPool& pool);

// What `stream` is below, whatever its symbols are: of a constant, of `e mod c`, and of sums of such. Nothing for other
// forms, and where it may be negative or above kStreamsMax.
std::optional<int64_t> StreamsEnd(const ir::Expr* stream);
// How many streams the program uses, on any rank; at least 1. Errors: those of Unroll; kInvalidArgument for a stream
// without a bound (H1).
Result<int> CountStreams(const ir::Graph& graph);

// "line 7: op: (H8) text", as all errors of the verifier are.
Status Refuse(const ir::Op& op, int rule, std::string_view text);

}  // namespace hir::host
