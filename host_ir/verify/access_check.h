// The verifier's walk over one rank's unrolled program: bytes initialised before they are read,
// used while they live, and every conflict ordered.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "host_ir/order.h"
#include "host_ir/unroll.h"

namespace hir::host {

// What holds of a program: before its streams are ordered, all but (H8); when it is ready to run, also that every alloc
// is deallocated (H6).
enum class Stage : uint8_t { kUnordered, kOrdered, kComplete };

class AccessCheck {
 public:
  AccessCheck(const ir::Graph& graph, const RankClass& ranks, ir::ExprPool& pool, Stage stage);

  Status Run(const std::vector<Step>& steps);

 private:
  struct Past {
    const ir::Op* op = nullptr;
    Point point;
    int group = -1;
    int iteration = 0;
    std::vector<int> runs;
    AccessedRegion access;
  };
  struct Base {
    const ir::Op* alloc = nullptr;  // Null for a parameter.
    const ir::Op* dead = nullptr;   // The dealloc, once it is dead.
    bool partly_seen = false;       // Written in a loop of which later iterations are not here.
    std::vector<Past> reads, writes;
    std::vector<Region> written;
  };

  Status CheckNothingLeaks() const;
  Status RunStep(const Step& step);
  Status CheckLives(const Step& step);
  Status CheckContiguous(const Step& step);
  Status CheckWithinOp(const Step& step);
  Status CheckInitialised(const Step& step, const AccessedRegion& access, const Base& base);
  Status CheckNotReplaced(const Step& step, const AccessedRegion& access, const Base& base);
  Status CheckOrdered(const Step& step, const AccessedRegion& access, const Base& base);
  Status CheckWritable(const Step& step, const AccessedRegion& access);
  void Remember(const Step& step, const Point& point, const AccessedRegion& access);
  bool InPlaceIsLegal(const ir::Op& op, const AccessedRegion& a, const AccessedRegion& b);
  // The parameter or alloc by which `op` refers to it; that of an output may be an input's.
  static const ir::Value* MemoryOf(const ir::Op& op, const AccessedRegion& access);
  std::string Name(const ir::Op& op, const AccessedRegion& access) const;

  const RankClass& ranks_;
  ir::ExprPool& pool_;
  const Stage stage_;
  Order order_;
  std::map<int, Base> bases_;                                 // By value id.
  std::set<int> returned_;                                    // The parameters that are outputs.
  std::set<int> empty_at_start_;                              // Those that are written here and take over no input.
  std::map<const ir::Value*, const ir::Value*> replaced_by_;  // Inputs, by another's memory. Lookups only.
};

}  // namespace hir::host
