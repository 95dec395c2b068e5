// How kernels that are written by hand store, sum, read and write elements. Private to csrc/codegen/gpu.
#pragma once

#include <string>

#include "csrc/base/dtype.h"

namespace hir::codegen::gpu {

// Defines STORED and SUM, types, LOAD and STORE, expressions in x, and INDEX, a type, whatever they were before.
// REQUIRES: `dtype` is not bool, `index` an integer.
std::string DefinitionsOf(DType dtype, DType index);

}  // namespace hir::codegen::gpu
