// Makes one permute of several in a row, and none of those that leave every axis where it was.
//
// Before: %a = permute(%x) {dims=[1, 0]}  %b = permute(%a) {dims=[1, 0]}  %c = permute(%d: of 3) {dims=[0, 1, 2]}
// After:  %x for %b                                                       %d for %c
//
// A gradient of a weight that is read transposed is transposed twice: written out it would take a pass over memory.
// Before: %a = grouped_outer(%x, %y, %ends)  %b = permute(%a) {dims=[0, 2, 1]}, which alone reads %a
// After:  %b = grouped_outer(%y, %x, %ends)
//
// A value whose layout was decided keeps its op. Permutes that nothing reads any more are left to dce.
#include "csrc/fusion/passes/fold_permutes.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "csrc/fusion/fusion_ops.h"
#include "csrc/fusion/passes/replacements.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/graph.h"

namespace hir::fusion {

namespace {

// Outer products of swapped operands, in front of the permute `op` that swaps those of its operand; null where it is
// something else.
ir::Value* Swapped(ir::Graph& graph, ir::Op* op) {
  const ir::Op* const inner = op->operands[0]->def;
  const bool is_outer = inner != nullptr && CodeOf(*inner) == FusionOp::kGroupedOuter;
  constexpr std::array<int64_t, 3> kSwap = {0, 2, 1};
  if (!is_outer || !std::ranges::equal(op->Ints("dims"), kSwap)) return nullptr;
  if (inner->results[0]->layout != nullptr || op->results[0]->layout != nullptr) return nullptr;
  std::vector<const ir::Expr*> offset(inner->Exprs("offset").begin(), inner->Exprs("offset").end());
  std::swap(offset[1], offset[2]);
  ir::Builder builder(graph, graph.body, op);
  return builder.Make("grouped_outer", {inner->operands[1], inner->operands[0], inner->operands[2]},
                      {{"offset", std::span<const ir::Expr* const>(offset)}}, op->results[0]->name);
}

}  // namespace

Status FoldPermutes(ir::Graph& graph) {
  std::vector<int> readers(graph.values().size(), 0);
  ir::ForEachOp(graph.body, [&](const ir::Op* op) {
    for (const ir::Value* operand : op->operands) ++readers[static_cast<size_t>(operand->id)];
  });
  for (const ir::Output& output : graph.outputs) ++readers[static_cast<size_t>(output.value->id)];
  Replacements replaced;
  for (ir::Op* op = graph.body.first; op != nullptr; op = op->next) {
    const bool is_only_reader = !op->operands.empty() && readers[static_cast<size_t>(op->operands[0]->id)] == 1;
    replaced.Apply(*op);
    if (CodeOf(*op) != FusionOp::kPermute) continue;
    if (ir::Value* const swapped = is_only_reader ? Swapped(graph, op) : nullptr; swapped != nullptr) {
      replaced.Replace(op->results[0], swapped);
      continue;
    }
    const ir::Op* const inner = op->operands[0]->def;
    if (inner != nullptr && CodeOf(*inner) == FusionOp::kPermute && inner->results[0]->layout == nullptr) {
      std::vector<int64_t> dims;
      for (const int64_t dim : op->Ints("dims")) dims.push_back(inner->Ints("dims")[static_cast<size_t>(dim)]);
      op->operands[0] = inner->operands[0];
      for (ir::Attr& attr : op->attrs) {
        if (attr.name == "dims") attr.value = graph.Copy(dims);
      }
    }
    const bool takes_over = TakesOver(graph, op->results[0]);
    bool is_identity = op->results[0]->layout == nullptr && !(takes_over && op->operands[0]->layout != nullptr);
    const std::span<const int64_t> dims = op->Ints("dims");
    for (size_t axis = 0; axis < dims.size(); ++axis) is_identity &= dims[axis] == static_cast<int64_t>(axis);
    if (is_identity) replaced.Replace(op->results[0], op->operands[0]);
  }
  replaced.ApplyToOutputs(graph);
  return {};
}

}  // namespace hir::fusion
