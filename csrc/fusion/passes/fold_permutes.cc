// Makes one permute of several in a row, and none of those that leave every axis where it was.
//
// Before: %a = permute(%x) {dims=[1, 0]}  %b = permute(%a) {dims=[1, 0]}  %c = permute(%d: of 3) {dims=[0, 1, 2]}
// After:  %x for %b                                                       %d for %c
//
// A gradient of a weight that is read transposed is transposed twice: written out it would take a pass over memory.
// A value whose layout was decided keeps its op. Permutes that nothing reads any more are left to dce.
#include "csrc/fusion/passes/fold_permutes.h"

#include <vector>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

Status FoldPermutes(ir::Graph& graph) {
  Replacements replaced;
  for (ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    replaced.Apply(*op);
    if (CodeOf(*op) != FusionOp::kPermute) continue;
    const ir::Op* const inner = op->operands[0]->def;
    if (inner != nullptr && CodeOf(*inner) == FusionOp::kPermute && inner->results[0]->layout == nullptr) {
      std::vector<int64_t> dims;
      for (const int64_t dim : op->Ints("dims")) dims.push_back(inner->Ints("dims")[static_cast<size_t>(dim)]);
      op->operands[0] = inner->operands[0];
      for (ir::Attr& attr : op->attrs) {
        if (attr.name == "dims") attr.value = graph.Copy(dims);
      }
    }
    bool is_identity = op->results[0]->layout == nullptr;
    const std::span<const int64_t> dims = op->Ints("dims");
    for (size_t axis = 0; axis < dims.size(); ++axis) is_identity &= dims[axis] == static_cast<int64_t>(axis);
    if (is_identity) replaced.Replace(op->results[0], op->operands[0]);
  }
  replaced.ApplyToOutputs(graph);
  return {};
}

}  // namespace hir::fusion
