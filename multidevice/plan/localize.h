// From a program over global tensors to one rank's program over its parts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/ir/graph.h"
#include "multidevice/plan/cost.h"
#include "multidevice/sharding.h"

namespace hir::plan {

// Sizes by symbol.
using SymbolSizes = std::map<std::string, int64_t>;

// One communication of a plan, for people and for `explain`.
struct Communication {
  // "Gather", "Allgather", "Scatter", "Reduce", "Allreduce", "ReduceScatter", "Broadcast", "SendRecv", "AllToAll",
  // "CollectivePermute"
  std::string_view type;
  // Ranks that communicate with each other, a root first; teams run side by side.
  std::vector<std::vector<int64_t>> teams;
  // The larger buffer of one rank: what is gathered, scattered, reduced or sent.
  const ir::Expr* bytes = nullptr;
  std::string tensor;          // The global value, by the user's name where there is one.
  std::string reason;          // "partial over mesh_x -> replicated"
  const ir::Op* op = nullptr;  // In the local graph.
};

// An input or output of the program: what it is as a whole, and where the parts are.
struct Boundary {
  std::string name;  // The program's for it; after PlanProgram as it was written, whatever value stands for it.
  const ir::Type* global = nullptr;             // Over extents of the local graph.
  std::optional<mesh::Sharding> sharding = {};  // Nothing for a host scalar. Never partial.
  ir::Value* local = nullptr;                   // A rank's part; of a scalar the scalar.
  // The axes of `global` as they lie in memory, the outermost first; empty: row-major. `local` has them in that order.
  std::vector<int64_t> memory_order = {};
};

// Every rank of any mesh runs `graph`: an op is run by the devices of its result's mesh, and a communication by those
// of its operand's as well. Extents are of the rank's part, over the symbols of the global program; `@m.x`, `@m.y`,
// `@m.z` are this rank's coordinates in mesh m. Layouts say {mesh=@m} and stream axes alone. The guards are the global
// ones and one for each axis of symbolic extent that is split: that its blocks are even, or, where the sizes at hand
// say so, that some are not. Parameters and outputs are in the order of the global program.
struct LocalProgram {
  std::unique_ptr<ir::Graph> graph;
  std::vector<Boundary> inputs;
  std::vector<Boundary> outputs;
  std::vector<Communication> communications;  // In program order.
  // Those of the graph's guards that say which blocks are even, and up to which sizes reshardings stay within their
  // bound of memory: with other sizes, Localize may give another program.
  std::vector<ir::Guard> evenness = {};
  // For people: of attention whose keys are split whether they go round, or why not.
  std::vector<std::string> notes = {};
};

// Which products run in parts beside their communications (host_ir/lower/overlap.h): of sizes that are constants, and
// no smaller than these.
struct OverlapLimits {
  struct Least {
    int64_t bytes = 0;  // Of what a rank gets or sends: its rows, or its share of a sum.
    int64_t rows = 0;   // Of a part.
    int64_t terms = 0;  // That each rank adds up, of a sum of partial results.
  };
  // Nothing: none does.
  struct Team {
    std::optional<Least> exchanged = {};  // Rows that are gathered for a product, or results that are sent behind one.
    std::optional<Least> scattered = {};  // Sums of partial results of which each rank wants a share,
    std::optional<Least> summed = {};     // and those that all want.
    std::optional<Least> attended = {};   // Keys and values that go round the ranks, a part of them at a time.
  };
  Team within = {};   // Of teams on one node.
  Team between = {};  // Of teams whose ranks are each on another node.
  Links links = {};

  // Wherever it can be.
  static OverlapLimits Unlimited() { return {.within = {Least(), Least(), Least(), Least()}}; }
  // Those of the teams along `type`. None where ranks share the link of a node: a communication sends each byte over it
  // once, and its parts would for each of them.
  const Team& Of(const mesh::DeviceMesh& mesh, mesh::ParallelType type) const;
  // Why there are none, for people.
  std::string_view WhyNone(const mesh::DeviceMesh& mesh, mesh::ParallelType type) const;
};

struct LocalizeOptions {
  // At hand: they choose between sequences of steps, and say which symbolic extents are split into uneven blocks
  // (docs/decisions/0006). Without a size, blocks are even.
  SymbolSizes sizes = {};
  CostModel cost = {};
  // Bytes that one rank may hold at once for one resharding: its parts, and what is packed and unpacked; 0: any. Where
  // sizes are not at hand, a guard says up to which the steps stay within it.
  int64_t resharding_bytes_max = 0;
  // Within these, sums of a product's partial results are exchanges and sums behind them, and gathered where all ranks
  // want them: so the product can run beside the exchange.
  OverlapLimits overlap = {};
};

// `global` has gone through PropagateShardings and DecomposeReshardings.
// Errors: kFailedPrecondition when it has not; those of fusion::PlacementOf; kInvalidArgument for a guard that cannot
//         hold, or an output that takes over an input that lies otherwise; kUnimplemented for an op that cannot be
//         computed on uneven blocks, naming op, axis, size, mesh and remedy; kResourceExhausted where a step needs more
//         axes than a tensor may have, and naming resharding_bytes_max where every way to reshard a value holds more.
Result<LocalProgram> Localize(const ir::Graph& global, const LocalizeOptions& options = {});

}  // namespace hir::plan
