// Evaluates one element definition at many indices at once. Private to csrc/fusion/interpret.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/fusion/element.h"
#include "csrc/fusion/interpret/bind.h"

namespace hir::fusion {

// A tensor with its elements as doubles or int64s, row-major; host scalars have no axes.
struct Array {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::vector<double> floats;  // IsFloat(dtype)
  std::vector<int64_t> ints;   // Otherwise.

  explicit Array(const HostTensor& tensor);
  Array(DType dtype_in, std::vector<int64_t> shape_in);
  HostTensor ToTensor() const;
  int64_t num_elements() const;
};

using ArrayOf = std::function<const Array&(const ir::Value*)>;

// Fills `result` (its type and shape are set) with the element `root` at each index, rounded to its type.
// Errors: kInternal when an element reads outside a tensor and no select drops it.
Status Evaluate(const Element* root, const SymbolValues& symbols, const ArrayOf& array_of, Array& result);

}  // namespace hir::fusion
