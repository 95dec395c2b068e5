// Moves every communication to stream 1 and orders the streams by events: a record after an op, a
// wait before another, where the second touches bytes that the first touches, one of them writes,
// and nothing orders them yet. A program that has events or a stream other than 0 is left alone, and
// one whose communications all wait for what is right before them, and keep waiting what is right behind
// them: a second stream would let nothing overlap, and each crossing costs the device some microseconds.
// (All or none: communications of two streams are in no order, and may meet on a device that cannot hold both.)
//
// Before: launch(%x, %c) stream=0   communication(%c, %y) stream=0           launch(%x, %w) launch(%y, %z) stream=0
// After:  launch(%x, %c) stream=0   record(e[0]) 0   wait(e[0]) 1   communication stream=1   record(e[1]) 1
//         launch(%x, %w) stream=0   wait(e[1]) 0   launch(%y, %z) stream=0
//
// Right because every conflict of every rank's run is looked at, in program order, loops unrolled:
// what is not ordered when the later op comes gets its edge there and then. Edges only add order,
// so those of one rank, or of a later iteration, spoil nothing for the others. As late as possible:
// an op waits for the latest conflicting op of each stream, which covers the earlier ones.
#include "host_ir/passes/assign_streams.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "csrc/base/text.h"
#include "csrc/ir/builder.h"
#include "host_ir/host_ops.h"
#include "host_ir/order.h"
#include "host_ir/unroll.h"

namespace hir::host {
namespace {

// Events cannot stand inside a group, so they go around it.
ir::Op* AnchorOf(ir::Op* op) {
  ir::Op* around = op->parent->owner;
  return around != nullptr && CodeOf(*around) == HostOp::kGroup ? around : op;
}

// A place between ops, on one stream: after `op` for a record, before it for a wait.
struct End {
  ir::Op* op = nullptr;              // An anchor.
  const ir::Expr* stream = nullptr;  // As the graph has it.
  bool operator==(const End&) const = default;
  auto operator<=>(const End&) const = default;  // For lookup alone.
};

End EndOf(ir::Op* op) { return {AnchorOf(op), op->ExprOf("stream")}; }

struct Edge {
  End from;
  End to;
};

class Streams {
 public:
  explicit Streams(ir::Graph& graph) : graph_(graph) {
    ir::ForEachOp(graph.body, [this](ir::Op* op) { place_.emplace(op, place_.size()); });
  }

  Status LookAt(const RankClass& ranks) {
    ir::ExprPool pool;
    HIR_ASSIGN(const std::vector<Step> steps, Unroll(graph_, ranks, pool));
    Order order;
    std::map<int, std::vector<Past>> pasts;  // By the id of the base.
    std::map<End, Clock> latest;
    for (const Step& step : steps) {
      if (order.Follow(step) || step.stream == nullptr) continue;
      const End end = EndOf(step.op);
      for (const Edge& edge : edges_[end]) {
        if (const auto found = latest.find(edge.from); found != latest.end()) order.After(step.stream, found->second);
      }
      HIR_TRY(Connect(step, order, pasts, latest, pool));
      const Point point = order.Queue(step.stream);
      latest[end] = order.Ahead(step.stream);
      for (const AccessedRegion& access : step.accesses) {
        Remember({step.op, point, access}, pasts[access.region.base->id]);
      }
    }
    return {};
  }

  void Insert() {
    std::vector<Edge> edges;
    for (const auto& [to, list] : edges_) edges.insert(edges.end(), list.begin(), list.end());
    if (edges.empty()) return;
    std::sort(edges.begin(), edges.end(), [this](const Edge& a, const Edge& b) {
      const int from = Compare(a.from, b.from);
      return from != 0 ? from < 0 : Compare(a.to, b.to) < 0;
    });
    int64_t num_records = 0;
    for (size_t i = 0; i < edges.size(); ++i) num_records += i == 0 || edges[i].from != edges[i - 1].from ? 1 : 0;
    const std::string_view names[] = {"sync"};
    const ir::Type* const types[] = {graph_.Event(num_records)};
    ir::Builder at_start(graph_, graph_.body, graph_.body.first);
    const Result<ir::Op*> made = at_start.Add({.name = "event", .result_names = names, .declared = types});
    HIR_CHECK(made.ok());
    ir::Value* const event = (*made)->results[0];
    End recorded;
    int64_t index = -1;
    for (const Edge& edge : edges) {
      if (edge.from != recorded) {
        recorded = edge.from;
        const ir::Expr* number = graph_.exprs().Const(++index);
        ir::Builder(graph_, *recorded.op->parent, recorded.op->next)
            .Make("record", {event}, {{"index", number}, {"stream", recorded.stream}});
      }
      ir::Builder(graph_, *edge.to.op->parent, edge.to.op)
          .Make("wait", {event}, {{"index", graph_.exprs().Const(index)}, {"stream", edge.to.stream}});
    }
  }

 private:
  struct Past {
    ir::Op* op = nullptr;
    Point point;
    AccessedRegion access;
  };

  Status Connect(const Step& step, Order& order, const std::map<int, std::vector<Past>>& pasts,
                 const std::map<End, Clock>& latest, ir::ExprPool& pool) {
    std::vector<const Past*> conflicts;
    for (const AccessedRegion& access : step.accesses) {
      const auto of_base = pasts.find(access.region.base->id);
      if (of_base == pasts.end()) continue;
      for (const Past& past : of_base->second) {
        if (!Writes(access.access) && !Writes(past.access.access)) continue;
        if (order.Before(past.point, step.stream)) continue;
        if (!ProveDisjoint(pool, past.access.region, access.region)) conflicts.push_back(&past);
      }
    }
    // The latest first: it is likely to be behind the others.
    std::stable_sort(conflicts.begin(), conflicts.end(),
                     [](const Past* a, const Past* b) { return a->point.position > b->point.position; });
    const End to = EndOf(step.op);
    for (const Past* past : conflicts) {
      if (order.Before(past->point, step.stream)) continue;
      const End from = EndOf(past->op);
      if (from.op == to.op && from.op != step.op)
        continue;                                 // In one group: no event can help, and the verifier says so.
      order.After(step.stream, latest.at(from));  // A wait is for the latest record.
      if (!order.Before(past->point, step.stream)) {
        return Unimplemented(base::Cat("the ", past->op->info->name, " of line ", past->op->line,
                                       " changes its stream from iteration to iteration: give it events of its own"));
      }
      std::vector<Edge>& edges = edges_[to];
      const auto known = [&from](const Edge& edge) { return edge.from == from; };
      if (std::any_of(edges.begin(), edges.end(), known)) continue;
      edges.push_back({from, to});
    }
    return {};
  }

  // By now everything that conflicts with a write is before it: who is after it is after those.
  static void Remember(Past past, std::vector<Past>& pasts) {
    if (Writes(past.access.access) && AnchorOf(past.op) == past.op) {
      std::erase_if(pasts, [&](const Past& p) { return Identical(p.access.region, past.access.region); });
    }
    pasts.push_back(std::move(past));
  }

  // In program order, then by stream.
  int Compare(const End& a, const End& b) const {
    const size_t x = place_.at(a.op), y = place_.at(b.op);
    return x != y ? (x < y ? -1 : 1) : ir::Compare(a.stream, b.stream);
  }

  ir::Graph& graph_;
  std::unordered_map<const ir::Op*, size_t> place_;  // In program order.
  std::map<End, std::vector<Edge>> edges_;           // By their later end; sorted before use.
};

bool IsAssigned(const ir::Graph& graph) {
  bool assigned = false;
  ir::ForEachOp(graph.body, [&assigned](ir::Op* op) {
    assigned |= CodeOf(*op) == HostOp::kEvent || (IsQueued(*op) && !op->ExprOf("stream")->IsConst(0));
  });
  return assigned;
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

// Whether on these ranks some communication could run beside the op before it, or the one behind it. Of several in a
// row the first and the last count: they are in order on either stream.
Result<bool> CanOverlap(const ir::Graph& graph, const RankClass& ranks) {
  ir::ExprPool pool;
  HIR_ASSIGN(std::vector<Step> steps, Unroll(graph, ranks, pool));
  // What does nothing on these ranks is not there.
  std::erase_if(steps, [](const Step& step) { return step.stream == nullptr || step.accesses.empty(); });
  const auto communicates = [&](size_t i) {
    return i < steps.size() && CodeOf(*steps[i].op) == HostOp::kCommunication;
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!communicates(i)) continue;
    if (i > 0 && !communicates(i - 1) && !Meets(steps, i, steps[i - 1], pool)) return true;
    if (i + 1 < steps.size() && !communicates(i + 1) && !Meets(steps, i, steps[i + 1], pool)) return true;
  }
  return false;
}

}  // namespace

Status AssignStreams(ir::Graph& graph) {
  if (IsAssigned(graph)) return {};
  bool overlaps = false;
  for (const RankClass& ranks : RankClasses(graph)) {
    HIR_ASSIGN(const bool can, CanOverlap(graph, ranks));
    overlaps |= can;
  }
  if (!overlaps) return {};
  ir::ForEachOp(graph.body, [&graph](ir::Op* op) {
    if (CodeOf(*op) != HostOp::kCommunication) return;
    for (ir::Attr& attr : op->attrs) {
      if (attr.name == "stream") attr.value = graph.exprs().Const(1);
    }
  });
  return OrderStreams(graph);
}

Status OrderStreams(ir::Graph& graph) {
  Streams streams(graph);
  for (const RankClass& ranks : RankClasses(graph)) HIR_TRY(streams.LookAt(ranks));
  streams.Insert();
  return {};
}

}  // namespace hir::host
