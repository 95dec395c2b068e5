// Tiles of a transposition. A tensor that is contiguous along a tile's rows is read first: square blocks go through
// registers, transposed by shuffles, into a tile on the stack that is contiguous along the columns, from where the
// tile's rows are computed. (A gather reads an element a cycle at best, and a line of memory for each.)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/codegen/cpu/element_emitter.h"

namespace hir::codegen::cpu {

class TransposedTiles {
 public:
  using Element = fusion::Element;

  explicit TransposedTiles(ElementEmitter& elements)
      : elements_(elements), writer_(elements.writer()), scopes_(elements.scopes()) {}

  void Choose(const Region& region);
  // Transposes them, before the rows of a tile run.
  void Emit();
  // Where what `load` reads is in its tile, if it was transposed.
  std::optional<KeptElements::Place> Find(const Element* load);
  // The kernel's own, that transpose blocks.
  std::string Functions() const;

 private:
  struct Transposed {
    const ir::Expr* base = nullptr;    // The offset of a load, less the rows and the columns;
    const ir::Expr* stride = nullptr;  // from a column to the next.
    std::string array;                 // A tile in rows of columns_max.
  };
  void EmitTile(const Transposed& transposed, int slot);
  std::string TransposeOf(Ty type, int side);

  ElementEmitter& elements_;
  Writer& writer_;
  Scopes& scopes_;
  std::unordered_map<const Element*, Transposed> transposed_;
  std::vector<const Element*> transposed_order_;
  int64_t transposed_bytes_ = 0;                  // Of all regions.
  std::map<std::string, std::string> functions_;  // By name.
};

}  // namespace hir::codegen::cpu
