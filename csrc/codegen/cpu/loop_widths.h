// How wide innermost loops are: lanes of a vector, vectors side by side, rows together. Private to csrc/codegen/cpu.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/cpu/element_emitter.h"

namespace hir::codegen::cpu {

// Vectors that do not wait for each other, and ways through memory: a core has several lines of each on their way,
// and reads four ways at once a third faster than one.
inline constexpr int kCopies = 4;
// From so many trips of each on, copies go their own ways: pages of their own.
inline constexpr int64_t kOwnWayMin = 1024;

// Elements as so many instructions, of those that are not in `seen` yet.
using SeenElements = std::unordered_map<const fusion::Element*, bool>;
size_t InstructionsOf(const Phase& phase, SeenElements& seen);
// The last phase that has any loops.
size_t LastLoops(const Region& region);

class LoopWidths {
 public:
  using Element = fusion::Element;

  explicit LoopWidths(ElementEmitter& elements) : elements_(elements) {}

  int LanesFor(const Loop& loop) const;
  int LanesFor(const Phase& phase, const Loop& inner) const;
  int RestLanes(int lanes) const;  // Of a vector of a loop's rest.
  // `in_shares`: phases ask for a share each of the row to come (prefetch.h).
  int CopiesFor(const Phase& phase, const Loop& inner, int lanes, bool in_shares = false) const;
  // As many of `copies` as a loop of so many trips has vectors for, if that is known.
  static int CopiesIn(const ir::Expr* trips, int lanes, int copies);
  // Sums of columns alone, on cores that read best in order: several rows at a time, each a way through memory of its
  // own, so that what is carried is read and written once for all of them. 1: as everywhere.
  int RowsTogether(const Region& region) const;
  // Where conditions on indices change along `loop`, or along the axis that it is a block of, as far as they are
  // constants; ends with both ends. At most two: nowhere.
  std::vector<int64_t> CutsOf(const Phase& phase, const Loop& loop, int lanes) const;
  // Whether vectors are in pairs (pairs.h).
  bool IsPaired(const Phase& phase, const Loop& inner) const;
  bool IsShort(const Region& region) const;
  // Whether a masked access costs what another does.
  bool HasMasks() const { return cpu::HasMasks(elements_.target()); }

 private:
  // Ways through memory that a vector of `inner` takes; `seen`: what it computes.
  int WaysOf(const Loop& inner, const SeenElements& seen) const;
  int VectorBytes() const { return elements_.target().vector_bytes; }

  ElementEmitter& elements_;
};

}  // namespace hir::codegen::cpu
