// Writes one loop nest as the text of an LLVM function: its regions, and their phases one behind the other. Private to
// csrc/codegen/cpu.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/cpu/carried_sums.h"
#include "csrc/codegen/cpu/element_emitter.h"
#include "csrc/codegen/cpu/loop_widths.h"
#include "csrc/codegen/cpu/prefetch.h"
#include "csrc/codegen/cpu/saved.h"
#include "csrc/codegen/cpu/stores.h"
#include "csrc/codegen/cpu/sums.h"
#include "csrc/codegen/cpu/transposed.h"
#include "csrc/codegen/cpu/vector_loop.h"

namespace hir::codegen::cpu {

class Emitter : private KeptElements {
 public:
  // `in_place`: some input may lie where an output does.
  Emitter(const LoopNest& nest, const Target& target, bool in_place);

  // The function "@NAME", the kernel; declarations gather in writer().declarations.
  Result<std::string> Run(const std::string& name);
  Writer& writer() { return elements_.writer(); }

 private:
  std::optional<Place> SavedAt(const fusion::Element* element) override { return saved_.Find(element, phase_); }
  std::optional<Place> TransposedAt(const fusion::Element* load) override { return transposed_.Find(load); }

  Status EmitRegion(const Region& region, const V& begin, const V& end);
  // The variables of the grid's loops, of a number among its items.
  void DefineItem(std::span<const Loop> grid, const V& item);
  // The serial loops from number `depth` on, and what is carried through each.
  void OpenSerial(size_t depth, const std::function<void()>& body);
  void EmitAhead(const Phase& ahead);
  void EmitRowPhase(const Phase& phase);
  // The loops of `phase` from the ones on that its nested sums are added up in; `add` adds to the others.
  void EmitRowLoops(const Phase& phase, const Sums::Widths& widths, const std::function<void(int copy)>& add);
  void EmitColumnPhase(const Phase& phase);
  // Arrays of neutral elements in which the accumulators of `phase` add up, column by column.
  std::vector<std::string> EmitColumnArrays(const Phase& phase, int lanes);
  V AddressIn(const std::string& array, const Accumulator& accumulator, const V& at);

  ElementEmitter elements_;
  Scopes& scopes_;
  Stores stores_;
  LoopWidths widths_;
  VectorLoops loops_;
  Prefetches prefetches_;
  SavedElements saved_;
  TransposedTiles transposed_;
  Sums sums_;
  CarriedSums carried_;
  size_t phase_ = 0;  // Being written.
};

}  // namespace hir::codegen::cpu
