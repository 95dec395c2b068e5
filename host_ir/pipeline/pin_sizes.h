// A program for one set of sizes.
#pragma once

#include <memory>

#include "csrc/base/status.h"
#include "csrc/codegen/codegen.h"
#include "csrc/ir/graph.h"

namespace hir::host {

// `program`, built again with the symbols of `sizes` as constants: what is known changes types, as of axes of no
// element. Layouts stay. Errors: kInvalidArgument for sizes that an op refuses, or that a guard does.
Result<std::unique_ptr<ir::Graph>> PinSizes(const ir::Graph& program, const codegen::Sizes& sizes);

}  // namespace hir::host
