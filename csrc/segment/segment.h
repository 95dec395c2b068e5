// Segmentation: which ops of a graph run together. The rule is the caller's: a predicate says
// whether two neighbouring groups may become one, and what that saves; the algorithm only
// guarantees that groups stay acyclic and that the answer does not depend on addresses or hash
// order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/ir/graph.h"

namespace hir::segment {

// Some ops of one graph, in program order, with what they read from outside and what the outside
// (or the program's output list) reads of them. Values are in order of first use, or of definition.
struct GroupView {
  const ir::Graph* graph = nullptr;
  std::span<ir::Op* const> ops = {};
  std::span<ir::Value* const> inputs = {};
  std::span<ir::Value* const> outputs = {};
};

struct Group {
  std::vector<ir::Op*> ops;
  std::vector<ir::Value*> inputs;
  std::vector<ir::Value*> outputs;

  GroupView View(const ir::Graph& graph) const { return {&graph, ops, inputs, outputs}; }
};

// Values of symbols of the program, where they are known; others count as kUnknownExtent.
using Sizes = std::map<std::string, int64_t>;
inline constexpr int64_t kUnknownExtent = 1024;

// The gain of a merge; larger is better, bytes first.
struct Gain {
  int64_t bytes = 0;
  int64_t launches = 0;
};

// Nothing, or a gain below none: keep them apart. `producer` and `consumer` are neighbours, or siblings that read a
// common value; `merged` is what they would become. Must be pure: answers are remembered. An error ends the segmenting.
using ShouldMerge = std::function<Result<std::optional<Gain>>(const GroupView& producer, const GroupView& consumer,
                                                              const GroupView& merged)>;

// At least what the predicate would answer, in less time than it takes; nothing where it would answer nothing, as far
// as that is seen at once. Must be pure.
using GainAtMost = ShouldMerge;

struct Options {
  bool merge_sinks = false;     // Also ask for groups that nothing reads, whatever they read.
  bool merge_siblings = false;  // Also ask for groups that share an input but no edge.
  // With it the predicate is asked of a pair only when no other could save more, which most never
  // come to. The groups are the same.
  GainAtMost gain_at_most = {};
};

// Partitions the ops of graph.body. Every op is in exactly one group; groups are in a topological
// order.
// Errors: the first of the predicate's.
Result<std::vector<Group>> Segment(const ir::Graph& graph, const ShouldMerge& should_merge,
                                   const Options& options = {});

// The group of exactly `ops` (any order).
Group MakeGroup(const ir::Graph& graph, std::vector<ir::Op*> ops);

// Whether `op` makes a part of its one tensor: what it reads is no more than its result.
bool IsSlice(const ir::Op& op);

// Bytes of one rank's storage of `value`: broadcast axes once, reduced axes not at all. At most kStorageBytesMax, more
// than any machine has, so that sums over the values of a program fit.
inline constexpr int64_t kStorageBytesMax = int64_t{1} << 44;
int64_t StorageBytes(const ir::Value& value, const Sizes& sizes = {});

}  // namespace hir::segment
