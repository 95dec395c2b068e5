// Drops a `wait` that adds nothing: what was recorded is already known to come before the stream's next work, by stream
// order or by what the stream, or the host, waited for before. Then drops the records that nothing waits for, and the
// events that nothing names.
//
// Before: set(..., stream=0)   record(e[0], 0)   wait(e[0], 0)   wait(e[0], 1)   wait(e[0], 1)
// After:  set(..., stream=0)   record(e[0], 0)                   wait(e[0], 1)
//
// Right because a wait is dropped only when in every rank's run, every time it is met, it leaves the stream's clock as it was;
// so all such waits may go at once, and every other wait still means the same.
#include "host_ir/passes/elide_waits.h"

#include <map>
#include <unordered_map>

#include "host_ir/host_ops.h"
#include "host_ir/order.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

// Whether each wait that was met was idle each time.
using Idle = std::unordered_map<const ir::Op*, bool>;

Status LookAt(const ir::Graph& graph, const RankClass& ranks, Idle& idle) {
  ir::ExprPool pool;
  HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph, ranks, pool));
  Order order;
  for (const Step& step : steps) {
    const ir::Op& op = *step.op;
    const HostOp code = CodeOf(op);
    if (code == HostOp::kRecord) {
      order.Record(op.operands[0], step.index, step.stream);
    } else if (code == HostOp::kHostWait) {
      order.HostWait(op.operands[0], step.index);
    } else if (code == HostOp::kWait) {
      // Without a record before it a wait waits for nothing, if the records can be told apart.
      const Clock* clock = order.Recorded(op.operands[0], step.index);
      const bool adds_nothing = clock != nullptr ? AtMost(*clock, order.Ahead(step.stream)) : !order.HasSymbolicIndex();
      const auto [at, first] = idle.emplace(&op, true);
      at->second &= adds_nothing;
      order.Wait(op.operands[0], step.index, step.stream);
    } else if (step.stream != nullptr) {
      order.Queue(step.stream);
    }
  }
  return {};
}

bool MayEqual(const ir::Expr* a, const ir::Expr* b) { return !a->IsConst() || !b->IsConst() || a->value == b->value; }

void DropUnusedRecords(ir::Graph& graph) {
  std::unordered_map<const ir::Value*, std::vector<const ir::Expr*>> waited;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    const bool waits = CodeOf(*op) == HostOp::kWait || CodeOf(*op) == HostOp::kHostWait;
    if (waits) waited[op->operands[0]].push_back(op->ExprOf("index"));
  });
  std::unordered_map<const ir::Value*, bool> named;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kRecord) {
      bool wanted = false;
      for (const ir::Expr* index : waited[op->operands[0]]) wanted |= MayEqual(index, op->ExprOf("index"));
      if (!wanted) {
        op->parent->Erase(op);
        return;
      }
    }
    for (const ir::Value* operand : op->operands) named[operand] = true;
  });
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kEvent && !named[op->results[0]]) op->parent->Erase(op);
  });
}

}  // namespace

Status ElideWaits(ir::Graph& graph) {
  Idle idle;
  for (const RankClass& ranks : RankClasses(graph)) HIR_TRY(LookAt(graph, ranks, idle));
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (const auto found = idle.find(op); found != idle.end() && found->second) op->parent->Erase(op);
  });
  DropUnusedRecords(graph);
  return {};
}

}  // namespace hir::host
