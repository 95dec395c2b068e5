// The innermost loops: vectors, their remainders, and ranges in which conditions on indices are decided; and the loops
// around them. Private to csrc/codegen/cpu.
#pragma once

#include <functional>
#include <span>

#include "csrc/codegen/cpu/loop_widths.h"

namespace hir::codegen::cpu {

class VectorLoops {
 public:
  struct Vectors {
    int lanes = 1;
    int copies = 1;
    bool paired = false;
    bool masked = false;     // All of them, and the body is written once; else what is left is.
    bool in_shares = false;  // As LoopWidths::CopiesFor has it.
    bool any_lanes = false;  // The body keeps nothing from vector to vector: shorter ones are as good.
    int64_t own_way_min = kOwnWayMin;
  };
  using Body = std::function<void(int copy)>;

  VectorLoops(ElementEmitter& elements, const LoopWidths& widths)
      : elements_(elements), widths_(widths), writer_(elements.writer()), scopes_(elements.scopes()) {}

  void StartRegion(const Region& region) { is_short_ = widths_.IsShort(region); }
  // Whether the region's loops are masked vectors alone.
  bool is_short() const { return is_short_; }

  // One inside the other, in scalars.
  void Open(std::span<const Loop> loops, const std::function<void()>& body);
  // body(copy) with the lanes set, over `loop.variable` in vectors, some copies of them at a time: neighbours, or on a
  // long way each in a part of its own.
  void EmitPhase(const Phase& phase, const Loop& loop, Vectors vectors, const Body& body);
  // The same over [first, last), and over `loop`.
  void Emit(int variable, const ir::Expr* first, const ir::Expr* last, const Vectors& vectors, const Body& body);
  void Emit(const Loop& loop, const Vectors& vectors, const Body& body);

 private:
  struct Range {
    V begin, end;
  };
  struct Steps {  // Whole ones end at `middle`. In a step copy k is `distance` after copy k - 1.
    V middle, distance, stride, stop;
  };
  Steps StepsOf(const ir::Expr* first, const ir::Expr* trips, const Range& range, const Vectors& vectors);
  // The elements that whole steps leave, or all of a loop: a vector of `vectors` at a time.
  void EmitRest(int variable, const V& begin, const V& end, const Vectors& vectors, bool masked, const Body& body);
  // The same of a known number, without masks: a vector for each power of two in it.
  void EmitPieces(int variable, const ir::Expr* first, int64_t count, const Vectors& vectors, const Body& body);
  // Sets the lanes for the vector of `vectors` at `first`,
  void Enter(int variable, const Vectors& vectors, const V& first);
  // and their masks: those before `end` exist.
  void Mask(const Vectors& vectors, const V& end);

  ElementEmitter& elements_;
  const LoopWidths& widths_;
  Writer& writer_;
  Scopes& scopes_;
  bool is_short_ = false;
};

}  // namespace hir::codegen::cpu
