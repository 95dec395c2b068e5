// Prefetches: of what a row to come reads first, while this one is finished, and of what a loop that goes through
// memory reads a while later. Private to csrc/codegen/cpu.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/codegen/cpu/loop_widths.h"

namespace hir::codegen::cpu {

// Localities, as LLVM knows them. Rows to come go into the second-level cache: the first has the one that is being
// read, and fewer misses under way.
inline constexpr int kFirstLevel = 3, kSecondLevel = 2;
void EmitPrefetch(Writer& writer, std::string& code, const V& address, int into);

class Prefetches {
 public:
  using Element = fusion::Element;

  Prefetches(ElementEmitter& elements, const LoopWidths& widths) : elements_(elements), widths_(widths) {}

  void Choose(const Region& region);
  // Whether phases before the last ask for a share of the row to come, too.
  bool shares_rows() const { return shares_rows_; }
  // In an innermost loop of phase number `phase`, with the copy of so many.
  void Emit(size_t phase, int copy, int copies);

 private:
  struct RowsAhead {
    int64_t bytes_max;
    int into;
  };
  void ChooseRowsToCome(const Phase& first, int row, int lane, const RowsAhead& rows);
  void ChooseAhead(const Region& region);  // Where a loop only stores: what it reads a while later.
  // The loads of `phase` that go along `inner`, `bytes` ahead.
  void ChooseAlong(const Phase& phase, const Loop& inner, int64_t bytes, int into);
  bool SharesRowsToCome(const Region& region);
  int64_t LargestBytes(const Phase& phase) const;         // Of an element that it loads.
  bool AsksForShare(size_t phase, int copy, int copies);  // In a phase before the last;
  bool WasAskedFor(int copy, int copies) const;           // in the last.

  ElementEmitter& elements_;
  const LoopWidths& widths_;
  struct Prefetched {
    const Element* load;
    const ir::Expr* offset;  // Of what is asked for;
    const ir::Expr* nearer;  // of what was asked for a row before. Null where no rows are.
  };
  std::vector<Prefetched> prefetched_;
  size_t prefetching_phase_ = 0;
  bool asks_again_ = false;  // In the phase before that one.
  bool shares_rows_ = false;
  struct Shares {
    int copies = 0;  // Whose lines phases before that one have asked for, of vectors
    int lanes = 0;   // of so many elements.
  } shares_;
  int prefetching_into_ = 0;
};

}  // namespace hir::codegen::cpu
