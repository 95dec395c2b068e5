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

  Sums(ElementEmitter& elements, const LoopWidths& widths)
      : elements_(elements), widths_(widths), writer_(elements.writer()), scopes_(elements.scopes()) {}

  // slot = slot combined with the body's lanes that exist.
  void Accumulate(const Accumulator& accumulator, const std::string& slot);
  Addend EmitAddend(const Accumulator& accumulator);
  V EmitAdded(const Accumulator& accumulator, const V& before, const Addend& addend);
  // A slot of so many lanes, neutral.
  std::string EmitSlot(const Accumulator& accumulator, int lanes);
  // One number of all lanes of all slots, and of `rest`, of fewer lanes, unless it is empty.
  V Collapse(const Accumulator& accumulator, const std::vector<std::string>& slots, int lanes, const std::string& rest);

 private:
  ElementEmitter& elements_;
  const LoopWidths& widths_;
  Writer& writer_;
  Scopes& scopes_;
};

}  // namespace hir::codegen::cpu
