// Code for all kernels of a plan, several at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/base/work_pool.h"
#include "csrc/codegen/codegen.h"
#include "host_ir/rank/backends.h"

namespace hir::rank {

struct CompileOptions {
  base::WorkPool* pool = nullptr;  // Its threads help; null: the caller's alone.
  // Called whenever one is compiled, with how many are: one call at a time, the numbers in order, from any thread.
  std::function<void(int64_t num_compiled)> compiled = {};
};

// One artifact for each of `plans`, in their order, whatever the threads did. Errors: the first one's, by that order;
// plans behind one that failed may be left out.
Result<std::vector<codegen::Artifact>> CompileAll(std::span<const codegen::KernelPlan> plans,
                                                  const CompileKernels& compile, const CompileOptions& options);

}  // namespace hir::rank
