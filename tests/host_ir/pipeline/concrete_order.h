// What one rank's run of a host program orders, found with nothing of what the verifier uses: every size has a value,
// every loop makes all its iterations, memory is sets of elements. A second opinion on (H8), for tests.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/ir/graph.h"

namespace hir::host {

// Values of a program's symbols.
struct ConcreteSizes {
  std::map<std::string, int64_t, std::less<>> known = {};
  int64_t others = 0;  // Of all that are not among them.
};

using DroppedOps = std::set<const ir::Op*>;

class ConcreteRun {
 public:
  // Errors: kInvalidArgument where the program cannot have these sizes, or has too many iterations; kUnimplemented for
  // ops that are not followed here.
  static Result<ConcreteRun> Make(const ir::Graph& graph, int64_t rank, const ConcreteSizes& sizes);

  // Whether another value of the sizes that are not known could change anything.
  bool HasSizes() const { return has_sizes_; }
  // Pairs of accesses that share elements, one of them a write.
  int64_t NumConflicts() const { return static_cast<int64_t>(conflicts_.size()); }
  // A conflict that nothing orders, in words; nothing when all are in program order. Records and waits in `dropped` do
  // nothing.
  std::optional<std::string> FindRace(const DroppedOps& dropped) const;

 private:
  friend class ConcreteWalk;
  // Elements [first, second) of a base, ascending and apart.
  using Elements = std::vector<std::pair<int64_t, int64_t>>;
  struct Touch {
    int base = 0;  // A value's id.
    bool writes = false;
    Elements elements;
  };
  // Work, a record or a wait, as the host meets them.
  struct Event {
    const ir::Op* op = nullptr;
    int64_t stream = 0;
    int64_t index = 0;
    int group = -1;  // Members of one run of a group share it.
    std::vector<Touch> touches = {};
  };

  static bool Share(const Elements& a, const Elements& b);
  void FindConflicts();

  std::vector<Event> events_;
  std::vector<std::pair<size_t, size_t>> conflicts_;  // Of events_, the earlier first.
  bool has_sizes_ = false;
};

}  // namespace hir::host
