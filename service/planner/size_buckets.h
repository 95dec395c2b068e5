// Which sizes a plan is for.
#pragma once

#include <set>
#include <span>
#include <string>

#include "csrc/codegen/target.h"
#include "hostir/v1/plan.pb.h"
#include "multidevice/plan/localize.h"

namespace hir::service {

// The symbols in the shapes of the inputs.
std::set<std::string> SymbolsOf(std::span<const plan::Boundary> inputs);

// Limits `plan`, made for `sizes`, to sizes for which its kernels are as quick (codegen::gpu::SizesLike). Kernels that
// come out equal are compiled once.
void AddBuckets(const codegen::Sizes& sizes, ::hostir::v1::Plan* plan);

// The same by the vectors that axes are made of: a GPU's kernels have those (codegen::gpu::VectorOfSize).
void KeepToVectors(const codegen::Sizes& sizes, ::hostir::v1::Plan* plan);

// Limits `plan`, made for `sizes` (all that are pinned, known, or none), to sizes that share one: of those below
// `least_shared` each has a plan of its own (host::LeastShared).
void KeepFromSmall(const codegen::Sizes& least_shared, const codegen::Sizes& sizes, ::hostir::v1::Plan* plan);

}  // namespace hir::service
