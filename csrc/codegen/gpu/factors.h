// Products in a loop over rows, in the order that takes the least work there. Private to csrc/codegen/gpu.
//
// A factor varies from row to row, from column to column, with both, or with neither. Multiplied in this order
//
//   what varies with both, then what varies with columns (one product, made in front of the rows), then what varies
//   with rows (one product a row) and constants
//
// an element costs one multiplication for each factor of the first kind and at most two more, the last of which an
// addition behind it takes in; and products that differ in the last two kinds alone share the first. Rounding differs
// by some units of the last place.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "csrc/codegen/gpu/dependences.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Factors {
 public:
  using Element = fusion::Element;

  // `dependences` are of the region of these loops; new elements are of `elements`.
  Factors(Dependences& dependences, fusion::ElementBuilder& elements, std::span<const Loop> rows,
          std::span<const Loop> columns)
      : dependences_(dependences), elements_(elements), rows_(rows), columns_(columns) {}

  // `element` with the float32 products in it reordered.
  const Element* Ordered(const Element* element);
  const Element* Product(std::span<const Element* const> factors);

  // element = of_row * rest, where of_row, null for 1, is the same in all columns.
  struct Split {
    const Element* of_row = nullptr;
    const Element* rest = nullptr;
  };
  Split SplitRow(const Element* element);

 private:
  struct Parts {
    std::vector<const Element*> both, column, row;
    double constant = 1;
  };
  bool IsAtom(const Element* element) const;
  void Flatten(const Element* element, Parts& parts);
  const Element* Chain(std::vector<const Element*>& factors);
  const Element* OfRow(Parts& parts);
  const Element* OfElement(Parts& parts);
  const Element* Joined(Parts& parts);

  Dependences& dependences_;
  fusion::ElementBuilder& elements_;
  const std::span<const Loop> rows_, columns_;
  std::map<const Element*, const Element*> ordered_;
  std::map<const Element*, int> order_;  // By when they were met: the same in every run.
};

}  // namespace hir::codegen::gpu
