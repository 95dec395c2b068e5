// Sums in lanes of registers, which are one number in the end. Private to csrc/codegen/cpu.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/codegen/cpu/loop_widths.h"

namespace hir::codegen::cpu {

class Sums {
 public:
  struct Addend {  // What an accumulator's body is in the lanes that are computed now,
    V value;
    std::optional<V> times;  // times this.
  };

  // How a loop that adds up is written: vectors of so many lanes, so many at a time.
  struct Widths {
    int lanes = 1;
    int copies = 1;
    bool in_shares = false;
    bool has_rest = false;  // Behind them come vectors of fewer lanes.
  };
  // Where an accumulator adds up: each copy's vectors, and those of the rest, which have one of their own: a slot that
  // is read in two sizes stays in memory.
  struct Slots {
    std::vector<std::string> of_copies;
    std::string rest;
  };

  Sums(ElementEmitter& elements, const LoopWidths& widths)
      : elements_(elements), widths_(widths), writer_(elements.writer()), scopes_(elements.scopes()) {}

  // slot = slot combined with the body's lanes that exist.
  void Accumulate(const Accumulator& accumulator, const std::string& slot);
  Addend EmitAddend(const Accumulator& accumulator);
  V EmitAdded(const Accumulator& accumulator, const V& before, const Addend& addend);
  // Neutral.
  Slots EmitSlots(const Accumulator& accumulator, const Widths& widths);
  // To the slot of one of the copies, or, where fewer lanes are computed now, of the rest.
  void AccumulateIn(const Slots& slots, const Accumulator& accumulator, const Widths& widths, int copy);
  // One number of all lanes of all slots.
  V Collapse(const Accumulator& accumulator, const Slots& slots, const Widths& widths);

 private:
  std::string EmitSlot(const Accumulator& accumulator, int lanes);

  ElementEmitter& elements_;
  const LoopWidths& widths_;
  Writer& writer_;
  Scopes& scopes_;
};

}  // namespace hir::codegen::cpu
