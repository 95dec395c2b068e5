// How an op is computed on the ranks of a mesh.
#pragma once

#include <vector>

#include "csrc/fusion/passes/axis_map.h"
#include "csrc/fusion/passes/placement.h"

namespace hir::fusion {

// The placement in which `map`'s op computes its result: one that every rank can compute from its own part of the
// operands, once they lie as AxisMap::Required says. `operands`: how they lie now, one an operand (of a scalar:
// anything). `wanted`: where the result belongs, nothing partial. The result may be partial: split along a reduced
// axis.
//
// For each mesh dimension on its own: an axis along which some operand is split already and that the op reduces, if no
// operand has to be communicated for it; else the axis, or none, for which the least is communicated before and behind
// the op: bytes, and a fixed cost for each communication.
Placement ChooseExecution(const AxisMap& map, const std::vector<Placement>& operands, const Placement& wanted);

}  // namespace hir::fusion
