// Reductions that keep the same axes, and what is made of their results: for each row (the kept axes) one
// phase after the other.
//
//   sum:        phase 0 adds up; phase 1 stores the epilogue
//   softmax:    phase 0 max; phase 1 sum of exp(x - max); phase 2 stores exp(x - max) / sum
//   layer norm: phase 0 mean; phase 1 variance; phase 2 stores
//
// Pointwise ops are inlined into each phase that needs them: a row that one phase has read is in cache for the
// next, so a phase
// costs arithmetic, not memory. Bytes moved: each input once and each output once, while a row's inputs fit
// the second-level
// cache (1 MiB: 128 Ki float32 elements of two inputs); for longer rows the inputs once a phase.
//
// Reductions and outputs with the same loops share a phase, and so their loads.
#include "csrc/codegen/schedules.h"

namespace hir::codegen {

Region MakeReductionRegion(NestBuilder& builder) {
  const Structure& structure = builder.structure();
  builder.StartRegion();
  Region region;
  for (const int row : structure.rows) region.grid.push_back(builder.LoopOver(row));
  std::vector<Phase> phases(structure.phase_loops.size());
  for (const OutputPlace& output : structure.outputs) {
    if (output.late) builder.ElementOf(output.value);  // For its accumulators.
    if (output.phase < 0) continue;
    phases[static_cast<size_t>(output.phase)].stores.push_back({builder.AddTensor(Tensor::Role::kOutput, output.value),
                                                                builder.CanonicalIndex(output.value),
                                                                builder.ElementOf(output.value)});
  }
  for (size_t p = 0; p < phases.size(); ++p) {
    phases[p].accumulators = builder.accumulators()[static_cast<int>(p)];
    if (phases[p].accumulators.empty() && phases[p].stores.empty()) continue;  // Results that nothing reads.
    for (const int axis : structure.phase_loops[p]) phases[p].loops.push_back(builder.LoopOver(axis));
    region.phases.push_back(std::move(phases[p]));
  }
  return region;
}

}  // namespace hir::codegen
