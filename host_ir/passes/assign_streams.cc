// Moves the communications of stream 0 to stream 1, where something could run beside one, and orders what the program
// has on several streams by events (order_streams.h). A program that has events is left alone. The communications stay
// where they are when they all wait for what is right before them, and keep waiting what is right behind
// them: a second stream would let nothing overlap, and each crossing costs the device some microseconds.
// (All or none: communications of two streams are in no order, and may meet on a device that cannot hold both.)
//
// Before: launch(%x, %c) stream=0   communication(%c, %y) stream=0           launch(%x, %w) launch(%y, %z) stream=0
// After:  launch(%x, %c) stream=0   record(e[0]) 0   wait(e[0]) 1   communication stream=1   record(e[1]) 1
//         launch(%x, %w) stream=0   wait(e[1]) 0   launch(%y, %z) stream=0
//
// Right because the order of the streams makes good what the one stream was for.
#include "host_ir/passes/assign_streams.h"

#include "csrc/ir/graph.h"
#include "host_ir/host_ops.h"
#include "host_ir/passes/order_streams.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

bool HasEvents(const ir::Graph& graph) {
  bool has = false;
  ir::ForEachOp(graph.body, [&has](ir::Op* op) { has |= CodeOf(*op) == HostOp::kEvent; });
  return has;
}

bool Conflict(const Step& a, const Step& b, ir::ExprPool& pool) {
  for (const AccessedRegion& x : a.accesses) {
    for (const AccessedRegion& y : b.accesses) {
      const bool same = x.region.base == y.region.base && (Writes(x.access) || Writes(y.access));
      if (same && !ProveDisjoint(pool, x.region, y.region)) return true;
    }
  }
  return false;
}

// Whether `outside` conflicts with steps[at], or with one that starts together with it.
bool Meets(const std::vector<Step>& steps, size_t at, const Step& outside, ir::ExprPool& pool) {
  const auto together = [&](size_t i) {
    return i == at || (steps[at].group >= 0 && steps[i].group == steps[at].group);
  };
  size_t first = at;
  while (first > 0 && together(first - 1)) --first;
  for (size_t i = first; i < steps.size() && together(i); ++i) {
    if (Conflict(steps[i], outside, pool)) return true;
  }
  return false;
}

// Whether on these ranks some communication of stream 0 could run beside the op before it, or the one behind it: an op
// of another stream does in any case. Of several in a row the first and the last count: they are in order on either
// stream.
Result<bool> CanOverlap(const ir::Graph& graph, const RankClass& ranks) {
  ir::ExprPool pool;
  HIR_ASSIGN(std::vector<Step> steps, Unroll(graph, ranks, pool));
  // What does nothing on these ranks is not there.
  std::erase_if(steps, [](const Step& step) { return step.stream == nullptr || step.accesses.empty(); });
  const auto communicates = [&](size_t i) {
    return i < steps.size() && CodeOf(*steps[i].op) == HostOp::kCommunication;
  };
  const auto beside = [&](size_t i, size_t other) {
    return !communicates(other) && (!steps[other].stream->IsConst(0) || !Meets(steps, i, steps[other], pool));
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!communicates(i) || !steps[i].stream->IsConst(0)) continue;
    if (i > 0 && beside(i, i - 1)) return true;
    if (i + 1 < steps.size() && beside(i, i + 1)) return true;
  }
  return false;
}

}  // namespace

Status AssignStreams(ir::Graph& graph) {
  if (HasEvents(graph)) return {};
  bool overlaps = false;
  for (const RankClass& ranks : RankClasses(graph)) {
    HIR_ASSIGN(const bool can, CanOverlap(graph, ranks));
    overlaps |= can;
  }
  bool several = overlaps;
  ir::ForEachOp(graph.body, [&](ir::Op* op) {
    for (ir::Attr& attr : op->attrs) {
      if (attr.name != "stream") continue;
      if (!std::get<const ir::Expr*>(attr.value)->IsConst(0)) {
        several = true;
      } else if (overlaps && CodeOf(*op) == HostOp::kCommunication) {
        attr.value = graph.exprs().Const(1);
      }
    }
  });
  return several ? OrderStreams(graph) : Status();
}

}  // namespace hir::host
