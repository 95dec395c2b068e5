// A dense row-major array in host memory. A value; many threads may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/ir/type.h"

namespace hir::fusion {

struct HostTensor {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;    // Empty: one number.
  std::vector<std::byte> bytes;  // Bools are bytes 0 or 1.

  int64_t num_elements() const;
  bool operator==(const HostTensor&) const = default;  // Bit by bit.
};

// All zeros. REQUIRES: extents are not negative and the bytes fit memory.
HostTensor ZeroTensor(DType dtype, std::vector<int64_t> shape);

// Rounded to `dtype` as RoundTo and kConvert do. REQUIRES: as many values as elements.
HostTensor TensorOf(DType dtype, std::vector<int64_t> shape, std::span<const double> values);
HostTensor TensorOfInts(DType dtype, std::vector<int64_t> shape, std::span<const int64_t> values);

// Every element, exactly where the type allows it.
std::vector<double> ToDoubles(const HostTensor& tensor);
std::vector<int64_t> ToInts(const HostTensor& tensor);  // Floats truncate.

// `tensor`, held whole, in the form in which a kernel keeps a value of `type`: broadcast axes have extent 1.
HostTensor Stored(const ir::Type& type, const HostTensor& tensor);
// The other way: axes of extent 1 repeated to `shape`.
HostTensor WrittenOut(const HostTensor& stored, const std::vector<int64_t>& shape);

}  // namespace hir::fusion
