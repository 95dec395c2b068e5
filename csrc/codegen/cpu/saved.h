// Elements that one phase of a row computes and a later one needs again: softmax sums exponentials and then divides
// them. Those that cost more than a store and a load are kept, a row of them, on the stack.
//
// Beside blocks of columns it is what their results make: a norm's 1 / sqrt(variance + eps) is the same in all trips of
// the loops of the phase that scales by it, and is computed once a column. (RMS norm in bfloat16 of 2x248x20640 over
// the middle axis: 2.9 to 1.75 ms.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/cpu/vector_loop.h"

namespace hir::codegen::cpu {

class SavedElements {
 public:
  using Element = fusion::Element;

  SavedElements(ElementEmitter& elements, const LoopWidths& widths, VectorLoops& loops)
      : elements_(elements), widths_(widths), loops_(loops) {}

  void Choose(const Region& region);
  // Those of phase number `phase`, in its innermost loop,
  void Emit(size_t phase);
  // or behind its loops, over the columns.
  void EmitColumns(size_t phase);
  // Where `element` is, if a phase before `phase` has computed it.
  std::optional<KeptElements::Place> Find(const Element* element, size_t phase);

 private:
  struct Saved {
    size_t phase = 0;  // Which computes it.
    int variable = -1;
    std::string array;
  };
  void ChooseColumns(const Region& region);
  int64_t ColumnsIn(const Region& region) const;  // Of a block, in whole vectors.
  const ir::Expr* OffsetOf(const Saved& saved);   // In its array.

  ElementEmitter& elements_;
  const LoopWidths& widths_;
  VectorLoops& loops_;
  std::unordered_map<const Element*, Saved> saved_;
  std::vector<const Element*> saved_order_;
};

}  // namespace hir::codegen::cpu
