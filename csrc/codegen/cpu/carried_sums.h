// Sums that are carried from row to row: they add up in their workspace, of which a row stays in the first- or
// second-level cache. Private to csrc/codegen/cpu.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "csrc/codegen/cpu/stores.h"
#include "csrc/codegen/cpu/sums.h"
#include "csrc/codegen/cpu/vector_loop.h"

namespace hir::codegen::cpu {

class CarriedSums {
 public:
  CarriedSums(ElementEmitter& elements, const LoopWidths& widths, VectorLoops& loops, Sums& sums, Stores& stores)
      : elements_(elements), widths_(widths), loops_(loops), sums_(sums), stores_(stores) {}

  // In front of the serial loops from number `depth` on, for the sums that begin there, and
  void EmitNeutral(const Phase& phase, int depth);
  // behind those loops.
  void EmitMemoryOrder(const Phase& phase, int depth);
  // In the innermost loop of `phase`; before_row() comes in front of what is computed for each of several rows.
  void Emit(const Phase& phase, const std::function<void()>& before_row);
  // The last serial loop in steps of so many rows, and then of one.
  void OpenRows(int rows, const std::function<void()>& body);
  bool HasRows() const { return !rows_.empty(); }

 private:
  V EmitLoad(const Carried& carried);
  // Adds `addends`, one a row, up in that order.
  void Add(const Carried& carried, std::span<const Sums::Addend> addends);
  // All that depends on the row belongs to `level` from here on.
  void EnterRow(const V& row, size_t level);
  int RowVariable() const { return elements_.region().serial.back().variable; }

  ElementEmitter& elements_;
  const LoopWidths& widths_;
  VectorLoops& loops_;
  Sums& sums_;
  Stores& stores_;
  // Values of the last serial loop's variable in one trip; empty: a trip is a row.
  std::vector<V> rows_;
};

}  // namespace hir::codegen::cpu
