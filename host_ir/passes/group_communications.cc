// Puts communications of one team that stand side by side, each of at most kGroupedBytesMax, into one `group`: they
// start together, so that what one costs to begin is paid once. What is computed between them ends the row; allocs
// and views do not. (Planning queues small ones side by side where nothing needs them earlier: OrderForOverlap.)
//
// Before: communication(%a, %b) {mesh=@m, dim=mesh_x, seq=0}   %d = alloc()   communication(%c, %d) {..., seq=1}
// After:  %d = alloc()   group() { communication(%a, %b) {seq=0}   communication(%c, %d) {seq=1} }
//
// Right because the members touch no memory that another of them writes, and what they move past touches none.
#include "host_ir/passes/group_communications.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/base/checked.h"
#include "csrc/ir/builder.h"
#include "host_ir/host_ops.h"

namespace hir::host {
namespace {

// Bytes of the larger buffer; nothing where sizes are not constants.
std::optional<int64_t> BytesOf(const ir::Op& op) {
  int64_t most = 0;
  for (const ir::Value* operand : op.operands) {
    int64_t bytes = DTypeBytes(operand->type->dtype);
    for (const ir::Axis& axis : operand->type->axes) {
      if (axis.kind == ir::AxisKind::kBroadcast) continue;
      const auto product = axis.extent->IsConst() ? base::CheckedMul(bytes, axis.extent->value) : std::nullopt;
      if (!product) return std::nullopt;
      bytes = *product;
    }
    most = std::max(most, bytes);
  }
  return most;
}

bool IsSmall(const ir::Op& op) {
  if (CodeOf(op) != HostOp::kCommunication || op.Name("dim") == "none") return false;
  const std::optional<int64_t> bytes = BytesOf(op);
  return bytes && *bytes <= kGroupedBytesMax;
}

bool SameTeam(const ir::Op& a, const ir::Op& b) {
  return a.MeshOf("mesh") == b.MeshOf("mesh") && a.Name("dim") == b.Name("dim") &&
         a.ExprOf("stream") == b.ExprOf("stream");
}

// Operand 1 is written; of views their whole base counts.
bool Conflict(const ir::Op& a, const ir::Op& b) {
  const ir::Value* const written[] = {BaseOf(a.operands[1]), BaseOf(b.operands[1])};
  return written[0] == written[1] || written[0] == BaseOf(b.operands[0]) || written[1] == BaseOf(a.operands[0]);
}

void Flush(ir::Graph& graph, std::vector<ir::Op*>& row) {
  if (row.size() > 1) {
    ir::Builder builder(graph, *row.back()->parent, row.back());
    const Result<ir::Op*> group = builder.Add({.name = "group"});
    HIR_CHECK(group.ok());
    for (ir::Op* op : row) {
      op->parent->Erase(op);
      (*group)->blocks[0]->InsertBefore(nullptr, op);
    }
  }
  row.clear();
}

void Visit(ir::Graph& graph, ir::Block& block) {
  std::vector<ir::Op*> row;
  for (ir::Op* op = block.first; op != nullptr;) {
    ir::Op* const next = op->next;
    if (IsSmall(*op)) {
      const bool fits = std::ranges::all_of(
          row, [&](const ir::Op* other) { return SameTeam(*other, *op) && !Conflict(*other, *op); });
      if (!fits) Flush(graph, row);
      row.push_back(op);
    } else if (CodeOf(*op) != HostOp::kAlloc && !MakesView(*op)) {
      Flush(graph, row);
      if (CodeOf(*op) != HostOp::kGroup) {
        for (ir::Block* inner : op->blocks) Visit(graph, *inner);
      }
    }
    op = next;
  }
  Flush(graph, row);
}

}  // namespace

Status GroupCommunications(ir::Graph& graph) {
  Visit(graph, graph.body);
  return {};
}

}  // namespace hir::host
