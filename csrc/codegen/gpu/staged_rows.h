// Short rows by way of shared memory: a CTA copies its rows there in vectors, each thread goes through its own, and
// what it stores goes back in vectors. Without it, neighbouring threads are at places a row apart: for each element of
// a row they take as many lines of memory as all elements of their rows have. Private to csrc/codegen/gpu.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/codegen/gpu/emitter.h"
#include "csrc/codegen/loop_nest.h"

namespace hir::codegen::gpu {

// A tensor whose rows follow each other as the grid's do, each as long as the loops over it.
struct StagedTensor {
  int tensor = 0;
  int64_t row = 0;    // Elements,
  int64_t bytes = 0;  // of so many each.
  bool is_stored = false;
  // The staged input in whose place it is stored, where each thread has read the same element; -1: it has memory of its
  // own.
  int instead_of = -1;
};

// Those of `region`, `rows` being its grid, `width` of which a CTA has at a time. Empty: some tensor of theirs is none,
// they take more than `bytes_max`, or it would not pay.
std::vector<StagedTensor> StagedTensorsOf(Emitter& em, const Region& region, std::span<const Loop> rows, int width,
                                          int64_t bytes_max);

// From where `unit`, `t` and `ix` are known: copies what is read of rows unit * width and on, of `rows` in all, and has
// it read there, as what is stored is written, until EndStaging. All `threads` of the CTA do both; several may share a
// row, by its elements.
void BeginStaging(Emitter& em, std::span<const StagedTensor> staged, const std::string& rows, int width, int threads);
void EndStaging(Emitter& em, std::span<const StagedTensor> staged, int threads);

}  // namespace hir::codegen::gpu
