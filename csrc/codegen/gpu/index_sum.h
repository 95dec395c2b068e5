// Kernels of sums of rows by index, written by hand: no loop nest has a loop whose next step is data.
//
// Updates of equal index are linked to a list in their order, so that a thread makes each element of the output by
// walking the list of its row: no atomics, and the same sums in every run. "links" links those of a tile of updates, a
// CTA a tile; "heads", one CTA, goes over the tiles from the last to the first and links what is left of each to what
// comes behind; "sums" walks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/gpu/gpu.h"
#include "csrc/codegen/library/index_sum.h"

namespace hir::codegen::gpu {

inline constexpr std::array<const char*, 3> kIndexSumKernels = {"links", "heads", "sums"};

Source EmitIndexSum(DType dtype, DType index);

// Memory that they work in. Its first bytes are set before each call, all bits of them.
struct IndexSumWorkspace {
  int64_t bytes = 0;
  int64_t bytes_set = 0;
};
IndexSumWorkspace WorkspaceOf(const library::IndexSum& sum);

struct IndexSumLaunch {
  int kernel = 0;  // Of kIndexSumKernels.
  std::vector<int64_t> args = {};
  int64_t grid = 0;
};
// The launches that make the output, in order; nothing where it has no element. Arguments are addresses.
std::vector<IndexSumLaunch> LaunchesOf(const library::IndexSum& sum, int64_t updates, int64_t indices, int64_t output,
                                       int64_t workspace);

}  // namespace hir::codegen::gpu
