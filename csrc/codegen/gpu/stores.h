// Stores as code: addresses, and values as they are stored. Private to csrc/codegen/gpu.
#pragma once

#include <span>
#include <string>

#include "csrc/codegen/gpu/arguments.h"
#include "csrc/codegen/gpu/guards.h"
#include "csrc/codegen/gpu/indices.h"
#include "csrc/codegen/gpu/places.h"
#include "csrc/codegen/gpu/scopes.h"
#include "csrc/codegen/gpu/values.h"
#include "csrc/codegen/index_math.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

class Stores {
 public:
  using Element = fusion::Element;

  // All outlive this.
  Stores(const Scopes& code, IndexMath& math, const Arguments& arguments, Guards& guards, Indices& indices,
         Places& places, Values& values)
      : code_(code),
        math_(math),
        arguments_(arguments),
        guards_(guards),
        indices_(indices),
        places_(places),
        values_(values) {}

  // The address of an element of `tensor`: of the lane, where a loop over lanes is open.
  std::string AddressOf(int tensor, std::span<const Element* const> index);
  // One element: what `store` stores, in registers, and the statement that stores it once it is `text`.
  std::string ValueText(const Store& store) { return ValueText(store.value, DTypeOf(store)); }
  // The element of which ValueText is the text: without roundings that storing does anyway.
  const Element* ValueOf(const Store& store) const;
  std::string ElementText(const Store& store, const std::string& text);
  // The value to store as `dtype`, in registers: packing rounds to 16 bits.
  std::string ValueText(const Element* value, DType dtype, int guard = 0);
  DType DTypeOf(const Store& store) const { return arguments_.tensor(store.tensor).dtype; }

  // The value of a vector's store. Where indices alone tell that it is a copy, it stays packed: taking it apart and
  // rounding it again is a fifth of the instructions of a rotary embedding that copies most of each head.
  struct Packed {
    std::string copy = {};              // A pack; empty: nothing is copied.
    std::string condition = {};         // Whether it is copied; empty: always.
    const Element* computed = nullptr;  // Stored otherwise, lane by lane,
    int guard = 0;                      // where this holds.
  };
  Packed FindCopy(const Store& store);
  // A select below `value` by a condition on indices that has one answer for all lanes, where a side takes functions to
  // compute: a piece of a concatenation. Null: there is none.
  const Element* FindBranch(const Element* value, int guard);
  // The statement that stores it, with what was computed in `array`.
  std::string PackedText(const Store& store, const Packed& packed, const std::string& array);

 private:
  const Scopes& code_;
  IndexMath& math_;
  const Arguments& arguments_;
  Guards& guards_;
  Indices& indices_;
  Places& places_;
  Values& values_;
};

}  // namespace hir::codegen::gpu
