// Drops a `wait` that adds nothing: what was recorded is already known to come before the stream's
// next work, by stream order or by what the stream waited for before. Then drops the records that
// nothing waits for, and the events that nothing names.
//
// Before: launch(..., stream=0)   record(e[0], 0)   wait(e[0], 0)   wait(e[0], 1)   wait(e[0], 1)
// After:  launch(..., stream=0)   record(e[0], 0)                   wait(e[0], 1)
//
// Right because a wait is dropped only when in every rank's run, every time it is met, the stream's
// clock would be the same without it when the next work is queued: it adds nothing to what was
// known, or nothing to that and to the waits that follow it at once, which then stay for this
// round. Rounds go on until nothing more can go.
#include "host_ir/passes/elide_waits.h"

#include <set>
#include <unordered_map>

#include "host_ir/host_ops.h"
#include "host_ir/order.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

struct Seen {
  bool idle = true;                   // Each time it was met, given what follows at once.
  std::set<const ir::Op*> followers;  // The waits of its stream that followed at once, some time.
};
using Waits = std::unordered_map<const ir::Op*, Seen>;

// What the stream of the wait steps[at] knows without it when its next work is queued.
Clock WithoutIt(const std::vector<Step>& steps, size_t at, Order& order, Seen& seen) {
  Clock clock = order.Ahead(steps[at].stream);
  for (size_t i = at + 1; i < steps.size() && CodeOf(*steps[i].op) == HostOp::kWait; ++i) {
    if (steps[i].stream != steps[at].stream || steps[i].op == steps[at].op) continue;
    seen.followers.insert(steps[i].op);
    const Clock* follower = order.Recorded(steps[i].op->operands[0]->id, steps[i].index);
    if (follower != nullptr) Join(clock, *follower);
  }
  return clock;
}

Status LookAt(const ir::Graph& graph, const RankClass& ranks, Waits& waits) {
  ir::ExprPool pool;
  HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph, ranks, pool));
  Order order;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const ir::Op& op = *step.op;
    if (CodeOf(op) == HostOp::kWait) {
      // Without a record before it a wait waits for nothing, if the records can be told apart.
      Seen& seen = waits[&op];
      const Clock* clock = order.Recorded(op.operands[0]->id, step.index);
      seen.idle &= clock == nullptr ? !order.HasSymbolicIndex() : AtMost(*clock, WithoutIt(steps, i, order, seen));
    }
    if (!order.Follow(step) && step.stream != nullptr) order.Queue(step.stream);
  }
  return {};
}

// One round. False when nothing went.
Result<bool> DropIdleWaits(ir::Graph& graph) {
  Waits waits;
  for (const RankClass& ranks : RankClasses(graph)) HIR_TRY(LookAt(graph, ranks, waits));
  std::set<const ir::Op*> kept;  // Others went because of them.
  bool dropped = false;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    const auto found = waits.find(op);
    if (found == waits.end() || !found->second.idle || kept.contains(op)) return;
    kept.insert(found->second.followers.begin(), found->second.followers.end());
    op->parent->Erase(op);
    dropped = true;
  });
  return dropped;
}

bool MayEqual(const ir::Expr* a, const ir::Expr* b) { return !a->IsConst() || !b->IsConst() || a->value == b->value; }

void DropUnusedRecords(ir::Graph& graph) {
  std::unordered_map<const ir::Value*, std::vector<const ir::Expr*>> waited;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    if (CodeOf(*op) == HostOp::kWait) waited[op->operands[0]].push_back(op->ExprOf("index"));
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
  for (bool more = true; more;) {
    HIR_ASSIGN(more, DropIdleWaits(graph));
  }
  DropUnusedRecords(graph);
  return {};
}

}  // namespace hir::host
